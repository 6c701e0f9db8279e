//! Nowhere: for verifying.

use super::Target;
use crate::error::ClientError;

/// Takes everything and keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct NullTarget;

impl Target for NullTarget {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
        Ok(())
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        Ok(())
    }
}
