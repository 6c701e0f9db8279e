//! Reading, copying and comparing disk images, which are mostly holes, without reading the holes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{SeekFrom, seek};

/// Calls `action` with the offset and bytes of all data of a file, leaving out holes.
pub(crate) fn for_data(file: &File, mut action: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut position = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        position = start;
        while position < end {
            let read = file.read_at(&mut buffer, position)?;
            action(position, buffer.get(..read).unwrap_or_default())?;
            position += read as u64;
        }
    }
}

/// Copies a file; holes stay holes.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    target.set_len(source.metadata()?.len())?;
    for_data(&source, |offset, bytes| Ok(target.write_all_at(bytes, offset)?))
}

/// Compares two files byte for byte, with holes as zeros, and returns their length.
///
/// # Errors
/// When they differ.
pub(crate) fn same(one: &Path, other: &Path) -> Result<u64> {
    let (a, b) = (File::open(one)?, File::open(other)?);
    let differ = || format!("{} and {} differ", one.display(), other.display());
    let len = a.metadata()?.len();
    ensure!(len == b.metadata()?.len(), "{} in length", differ());
    let mut buffer = vec![0; 1 << 20];
    // Data of either must equal the other's; where both have holes both are zeros.
    for (this, that) in [(&a, &b), (&b, &a)] {
        for_data(this, |offset, bytes| {
            let there = buffer.get_mut(..bytes.len()).context("reads are at most 1 MiB")?;
            that.read_exact_at(there, offset)?;
            ensure!(there == bytes, "{} within 1 MiB of byte {offset}", differ());
            Ok(())
        })?;
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn sparse_copies_are_the_same_and_a_flipped_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let file = File::create(&one).unwrap();
        file.set_len(40 << 20).unwrap();
        file.write_all_at(&[7; 100_000], 10 << 20).unwrap();
        copy(&one, &other).unwrap();
        assert_eq!(same(&one, &other).unwrap(), 40 << 20);
        // Some file systems allocate more than is written.
        assert!(other.metadata().unwrap().blocks() * 512 < 10 << 20, "holes stay holes");
        let file = File::options().write(true).open(&other).unwrap();
        file.write_all_at(&[1], 30 << 20).unwrap();
        assert!(same(&one, &other).is_err());
    }
}
