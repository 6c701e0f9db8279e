//! Space used on a day.

/// Space used by the end of a day, as last recorded on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceDay {
    /// Days since 1970-01-01, in UTC.
    pub day: i32,
    /// Containers in the data folder that are in use, by class.
    pub data_bytes: u64,
    pub recipe_bytes: u64,
    /// Parity in the data folder.
    pub parity_bytes: u64,
    /// Containers in the data folder that are to go.
    pub condemned_bytes: u64,
    /// Containers in the bucket, whether or not they are in the data folder too.
    pub bucket_bytes: u64,
    /// Bytes in the bucket that lie in an archive.
    pub archive_bytes: u64,
}

impl SpaceDay {
    /// Space used in the data folder.
    pub fn here_bytes(&self) -> u64 {
        [self.data_bytes, self.recipe_bytes, self.parity_bytes, self.condemned_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
