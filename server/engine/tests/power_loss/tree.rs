//! Files and folders: as they lie in a real folder, and as values.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A file or folder of a recording, whatever its names are.
pub(crate) type Node = usize;

/// The watched folder itself. It is durable, and so is its name.
pub(crate) const ROOT: Node = 0;

/// What there is of nodes: for each, whether it is a folder.
#[derive(Debug, Clone)]
pub(crate) struct Nodes(Vec<bool>);

impl Nodes {
    pub(crate) fn new() -> Self {
        Self(vec![true])
    }

    pub(crate) fn add(&mut self, is_folder: bool) -> Node {
        self.0.push(is_folder);
        self.0.len() - 1
    }

    pub(crate) fn is_folder(&self, node: Node) -> bool {
        self.0[node]
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Folder,
    File(Arc<[u8]>),
}

/// All files and folders below a folder, by path; folders come before what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Entry>);

/// SQLite's shared memory of a database: lost with the process, whatever the disk says of it.
pub(crate) fn is_shared_memory(name: &str) -> bool {
    name.ends_with("-shm")
}

impl Tree {
    /// What lies in a real folder.
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.read_folder(root, "");
        tree
    }

    fn read_folder(&mut self, root: &Path, below: &str) {
        for entry in std::fs::read_dir(root.join(below)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if entry.file_type().unwrap().is_dir() {
                self.0.insert(path.clone(), Entry::Folder);
                self.read_folder(root, &path);
            } else if !is_shared_memory(&path) {
                self.0.insert(path, Entry::File(std::fs::read(entry.path()).unwrap().into()));
            }
        }
    }

    /// Makes all of it in a real folder, which is empty.
    pub(crate) fn write(&self, root: &Path) {
        for (path, entry) in &self.0 {
            match entry {
                Entry::Folder => std::fs::create_dir(root.join(path)).unwrap(),
                Entry::File(bytes) => std::fs::write(root.join(path), bytes).unwrap(),
            }
        }
    }

    /// The same for the same files, names and contents.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (path, entry) in &self.0 {
            hasher.update(path.as_bytes());
            match entry {
                Entry::Folder => hasher.update(b"/"),
                Entry::File(bytes) => hasher.update(&[0]).update(&bytes.len().to_le_bytes()).update(bytes),
            };
        }
        *hasher.finalize().as_bytes()
    }

    /// Where two trees differ, in words.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let paths: std::collections::BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let say = |entry: Option<&Entry>| match entry {
            None => "missing".to_owned(),
            Some(Entry::Folder) => "a folder".to_owned(),
            Some(Entry::File(bytes)) => format!("{} bytes, {}", bytes.len(), blake3::hash(bytes)),
        };
        paths
            .into_iter()
            .filter(|path| self.0.get(*path) != other.0.get(*path))
            .map(|path| format!("{path}: {} / {}", say(self.0.get(path)), say(other.0.get(path))))
            .collect()
    }
}
