//! The server's files, to inspect and to damage. Knows nothing of the format but the first bytes of a container, as in
//! `docs/FORMAT.md`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

/// Class of a container, from byte 6 of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Chunks of disks.
    Data,
    /// Recipe nodes.
    Recipe,
}

/// A container's file.
#[derive(Debug, Clone)]
pub struct Container {
    /// Path of the file.
    pub path: PathBuf,
    /// Class of the container.
    pub class: Class,
    /// Length in bytes.
    pub len: u64,
}

impl Container {
    /// Flips one bit.
    ///
    /// # Panics
    /// When the file cannot be changed.
    pub fn flip_bit(&self, offset: u64) {
        let file = File::options().read(true).write(true).open(&self.path).expect("the container is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("the offset is within the container");
        file.write_all_at(&byte.map(|byte| byte ^ 0x10), offset).expect("the container can be changed");
    }

    /// Truncates it.
    ///
    /// # Panics
    /// When the file cannot be changed.
    pub fn truncate(&self, len: u64) {
        let file = File::options().write(true).open(&self.path).expect("the container is there");
        file.set_len(len).expect("the container can be changed");
    }

    /// Its file's name without the folder.
    ///
    /// # Panics
    /// When there is none.
    pub fn name(&self) -> String {
        self.path.file_name().expect("a file").to_string_lossy().into_owned()
    }
}

/// Every container of a repository, in order of path.
///
/// # Panics
/// When one cannot be read or has an unknown class.
pub fn containers(data_dir: &Path) -> Vec<Container> {
    files(&data_dir.join("blobs/containers"))
        .into_iter()
        .map(|path| {
            let file = File::open(&path).expect("the container is there");
            let mut header = [0; 8];
            file.read_exact_at(&mut header, 0).expect("a container has a header");
            let [b'H', b'F', b'C', b'N', _, _, class, _] = header else {
                panic!("{} does not begin like a container", path.display())
            };
            let class = match class {
                1 => Class::Data,
                2 => Class::Recipe,
                other => panic!("{} is of class {other}", path.display()),
            };
            Container { len: file.metadata().expect("open").len(), path, class }
        })
        .collect()
}

/// The containers of one class.
pub fn containers_of(data_dir: &Path, class: Class) -> Vec<Container> {
    containers(data_dir).into_iter().filter(|container| container.class == class).collect()
}

/// Bytes of all containers of one class.
pub fn container_bytes(data_dir: &Path, class: Class) -> u64 {
    containers_of(data_dir, class).iter().map(|container| container.len).sum()
}

/// Every regular file below `folder`, in order of path; none if it does not exist.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Copies a folder with its contents; existing files are replaced.
///
/// # Panics
/// When something cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for entry in fs::read_dir(from).expect("the folder is there").map_while(Result::ok) {
        let to = to.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).expect("the file can be copied");
        }
    }
}

/// Changes the owner of a folder and its contents.
///
/// # Panics
/// When an owner cannot be changed; only root can.
pub fn give_to(folder: &Path, user: u32) {
    lchown(folder, Some(user), Some(user)).expect("root gives what it has");
    for path in not_of(folder, user) {
        lchown(path, Some(user), Some(user)).expect("root gives what it has");
    }
}

/// Files and folders below a folder with another owner. Owners of links are ignored.
///
/// # Panics
/// When one cannot be read.
pub fn not_of(folder: &Path, user: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("the folder is readable").path()) {
        let metadata = fs::symlink_metadata(&path).expect("the file is there");
        if metadata.uid() != user && !metadata.is_symlink() {
            found.push(path.clone());
        }
        if metadata.is_dir() {
            found.extend(not_of(&path, user));
        }
    }
    found
}
