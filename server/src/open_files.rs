//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Below this a server with the default settings may run out: 256 connections on each of two addresses, 32
/// streams with a few files each, and the index's runs.
const ENOUGH: u64 = 1024;

/// Raises the limit the process has to the one it may have; says what it is now.
///
/// The lower one is usually 1,024, kept for programs that use `select(2)`; this one does not.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < ENOUGH {
        tracing::warn!(limit, "few files may be open at once; raise LimitNOFILE of the service");
    } else {
        tracing::info!(limit, "open files at most");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be_afterwards() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
