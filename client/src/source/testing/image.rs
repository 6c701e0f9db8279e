//! Disk images for tests.

use std::os::unix::fs::FileExt as _;

use holdfast_proto::chunker::is_zero;

use crate::source::RawDisk;

/// Unit of holes, as in most file systems.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Bytes that neither compress nor repeat; the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// `size` zeros with up to 100 ones at each of `places`.
pub(crate) fn sparse(size: usize, places: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for &at in places {
        let end = size.min(at + 100);
        bytes[at..end].fill(1);
    }
    bytes
}

/// `bytes` in a file whose blocks of zeros are holes, opened as disk `d`.
pub(crate) fn raw(bytes: &[u8]) -> (tempfile::NamedTempFile, RawDisk) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(bytes.len() as u64).unwrap();
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| !is_zero(block)) {
        file.as_file().write_all_at(block, (number * BLOCK_BYTES) as u64).unwrap();
    }
    let disk = RawDisk::open("d", file.path()).unwrap();
    (file, disk)
}
