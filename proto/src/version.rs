//! Protocol versions of this build, and how two sides settle on one.

/// Oldest protocol version this build still speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol version this build speaks.
pub const PROTOCOL_MAX: u32 = 1;
/// Header (metadata key of gRPC) with the negotiated version, on every call after `Hello`, of the API as well.
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

/// Why a call is not accepted for the version that it says it speaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSpoken {
    #[error(
        "the call does not say which protocol version it speaks; call Hello first, then send the version in \
         {PROTOCOL_METADATA}"
    )]
    Missing,
    #[error(
        "the call speaks protocol version {0}, this server speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}; update the older side"
    )]
    Unsupported(u32),
}

/// Checks the value of [`PROTOCOL_METADATA`].
///
/// # Errors
/// [`NotSpoken`] when it is missing, no number, or a version that this build does not speak.
pub fn check_spoken(value: Option<&[u8]>) -> Result<(), NotSpoken> {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    let version = text.and_then(|text| text.parse().ok()).ok_or(NotSpoken::Missing)?;
    if (PROTOCOL_MIN..=PROTOCOL_MAX).contains(&version) {
        Ok(())
    } else {
        Err(NotSpoken::Unsupported(version))
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

    #[test]
    fn a_call_says_a_version_that_is_spoken() {
        assert_eq!(check_spoken(Some(PROTOCOL_MAX.to_string().as_bytes())), Ok(()));
        assert_eq!(check_spoken(Some(b"4000000000")), Err(NotSpoken::Unsupported(4_000_000_000)));
        for value in [None, Some(&b""[..]), Some(b"one"), Some(b"-1"), Some(&[0xff])] {
            assert_eq!(check_spoken(value), Err(NotSpoken::Missing), "{value:?}");
        }
    }
}
