//! The two checksums of every structure on disk: CRC-32C for small ones and payloads, CRC-64/NVME for large
//! ones, where 32 bits would let one damage in four billion pass.

/// CRC-32C (CRC-32/ISCSI).
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-64/NVME.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::crc64_nvme(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the catalogue of parametrised CRC algorithms.
    #[test]
    fn checksums_are_the_catalogued_ones() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
    }
}
