//! The steps of a round, so that tests can act between them.

/// How far a round is, for tests that do something in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundStep {
    /// What sessions hold is kept, and their containers are known.
    Begun,
    /// The containers that are looked at are known.
    Listed,
    /// So are the roots.
    Rooted,
    Marked,
    /// Copies are in the index.
    Copied,
    /// The catalog has condemned containers.
    Condemned,
    Deleted,
}

impl RoundStep {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [Self::Begun, Self::Listed, Self::Rooted, Self::Marked, Self::Copied, Self::Condemned, Self::Deleted];
}

/// Told of each step.
pub(crate) type Watch<'a> = &'a (dyn Fn(RoundStep) + Send + Sync);
