//! Disks with known contents.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Pseudorandom bytes without repetition that do not compress; the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes that compress but do not repeat; the same for the same seed.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        noise(seed, len.div_ceil(2)).iter().flat_map(|b| [b'a' + (b & 15), b'k' + (b >> 4)]).collect();
    bytes.truncate(len);
    bytes
}

/// A file that is a VM's disk.
#[derive(Debug, Clone)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// A disk of `size_bytes` without any data: one hole.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn empty(path: impl Into<PathBuf>, size_bytes: u64) -> Self {
        let path = path.into();
        File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("a disk can be made");
        Self { path }
    }

    /// A disk of `size_bytes` with everything that real ones have: text, noise, written zeros, and holes.
    pub fn varied(path: impl Into<PathBuf>, seed: u64, size_bytes: u64) -> Self {
        let disk = Self::empty(path, size_bytes);
        let parts: [(u64, Vec<u8>); 4] = [
            (0, text(seed, 700_000)),
            (3 << 20, noise(seed + 1, 2_500_000)),
            (6 << 20, vec![0; 300_000]),
            (13 << 20, text(seed + 2, 1_234_567)),
        ];
        for (offset, bytes) in parts {
            let room = usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            disk.put(offset, bytes.get(..room).unwrap_or(&bytes));
        }
        if size_bytes > 0 {
            disk.put(size_bytes - 1, &[0xA5]);
        }
        disk
    }

    /// A disk full of noise.
    pub fn of_noise(path: impl Into<PathBuf>, seed: u64, size_bytes: usize) -> Self {
        let disk = Self::empty(path, size_bytes as u64);
        disk.put(0, &noise(seed, size_bytes));
        disk
    }

    /// Writes bytes.
    ///
    /// # Panics
    /// When that fails.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.path).expect("the disk is there");
        file.write_all_at(bytes, offset).expect("the disk can be written");
    }

    /// Makes it longer or shorter.
    ///
    /// # Panics
    /// When that fails.
    pub fn resize(&self, size_bytes: u64) {
        let file = File::options().write(true).open(&self.path).expect("the disk is there");
        file.set_len(size_bytes).expect("the disk can be resized");
    }

    /// Path of the disk.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the disk, as an argument.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn arg(&self) -> &str {
        self.path.to_str().expect("test folders are UTF-8")
    }

    /// Reads the whole disk.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the disk can be read")
    }

    /// Asserts that the file at `path` has the same bytes.
    ///
    /// # Panics
    /// When it differs; the message says where.
    pub fn assert_same(&self, path: &Path) {
        assert_same(&self.bytes(), &fs::read(path).expect("the restored disk can be read"));
    }
}

/// Asserts that two disks are equal.
///
/// # Panics
/// When they differ; the message says where.
pub fn assert_same(expected: &[u8], actual: &[u8]) {
    assert_eq!(expected.len(), actual.len(), "length");
    if expected != actual {
        let at = expected.iter().zip(actual).take_while(|(a, b)| a == b).count();
        panic!("bytes differ from byte {at} of {}", expected.len());
    }
}

/// Bytes that the file system allocated for a file.
///
/// # Panics
/// When it does not exist.
pub fn allocated_bytes(path: &Path) -> u64 {
    fs::metadata(path).expect("the file is there").blocks() * 512
}
