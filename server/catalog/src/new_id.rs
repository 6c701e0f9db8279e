//! New ULIDs, from the given clock and the operating system's random numbers.

use holdfast_types::clock::Clock;
use ulid::Ulid;

use super::CatalogError;

/// A ULID of this moment. Those of one millisecond are in no particular order.
///
/// # Errors
/// [`CatalogError::Io`] when the operating system has no random numbers.
pub fn new_id(clock: &dyn Clock) -> Result<Ulid, CatalogError> {
    let mut random = [0; 16];
    fill_random(&mut random)?;
    // A clock before 1970 is wrong anyway; the random part keeps the name unique.
    let now_ms = u64::try_from(clock.now_ms()).unwrap_or(0);
    Ok(Ulid::from_parts(now_ms, u128::from_be_bytes(random)))
}

/// Fills `buffer` with unpredictable bytes.
pub(super) fn fill_random(buffer: &mut [u8]) -> Result<(), CatalogError> {
    getrandom::fill(buffer).map_err(|cause| CatalogError::io("get random numbers for", cause.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::clock::ManualClock;

    #[test]
    fn ulids_carry_the_time_and_differ() {
        let clock = ManualClock::new(1_700_000_000_123);
        let (a, b) = (new_id(&clock).unwrap(), new_id(&clock).unwrap());
        assert_eq!(a.timestamp_ms(), 1_700_000_000_123);
        assert_ne!(a, b);
        assert_eq!(new_id(&ManualClock::new(-5)).unwrap().timestamp_ms(), 0);
    }
}
