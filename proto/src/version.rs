//! Which protocol versions this build speaks, and how two sides settle on one.

/// Oldest protocol version this build still speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol version this build speaks.
pub const PROTOCOL_MAX: u32 = 1;
/// gRPC metadata key that carries the negotiated version on every call after `Hello`.
pub const PROTOCOL_METADATA: &str = "holdfast-protocol";

/// The two sides have no version in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent speaks protocol versions {theirs_min} to {theirs_max}, this server {PROTOCOL_MIN} to {PROTOCOL_MAX}; update the older side"
)]
pub struct NoCommonVersion {
    pub theirs_min: u32,
    pub theirs_max: u32,
}

/// The newest version both sides speak.
///
/// # Errors
/// [`NoCommonVersion`] when the ranges do not meet.
pub fn negotiate(theirs_min: u32, theirs_max: u32) -> Result<u32, NoCommonVersion> {
    let newest = theirs_max.min(PROTOCOL_MAX);
    if newest >= PROTOCOL_MIN && newest >= theirs_min {
        Ok(newest)
    } else {
        Err(NoCommonVersion { theirs_min, theirs_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_common_version_wins() {
        assert_eq!(negotiate(0, PROTOCOL_MAX + 5), Ok(PROTOCOL_MAX));
        assert_eq!(negotiate(PROTOCOL_MAX, PROTOCOL_MAX), Ok(PROTOCOL_MAX));
        assert!(negotiate(PROTOCOL_MAX + 1, PROTOCOL_MAX + 2).is_err());
        assert!(negotiate(0, PROTOCOL_MIN - 1).is_err());
        assert!(negotiate(3, 1).is_err(), "a range turned round meets nothing");
    }
}
