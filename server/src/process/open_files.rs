//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// With fewer than this a server with the default settings may run out: 1,024 connections of agents and 256 of browsers,
/// 32 streams with a few files each, and the index's files.
const ENOUGH: u64 = 2048;

/// Raises the soft limit to the hard limit and logs the result.
///
/// The soft limit is usually 1,024 for the sake of programs that use `select(2)`; this one does not.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    // `None`: unlimited.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < ENOUGH {
        tracing::warn!(limit, "the limit of open files is low; raise LimitNOFILE of the service");
    } else {
        tracing::info!(limit, "limit of open files");
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
