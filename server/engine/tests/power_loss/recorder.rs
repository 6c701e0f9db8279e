//! What this process does to the files of watched folders, in order.
//!
//! The system calls of `interpose.rs` tell it; a recording is taken from one folder, so several threads may record
//! folders of their own at the same time. A file is known by its device and inode number from the moment it is
//! created until it loses its last name: what is written to it afterwards can never be seen again.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tree::{Node, Nodes, ROOT};

/// One change, or one promise of the disk.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A name in a folder means another file or folder now, or none. Renaming is two of these.
    Bind {
        folder: Node,
        name: String,
        node: Option<Node>,
    },
    Write {
        node: Node,
        at: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        node: Node,
        len: u64,
    },
    /// Of a file: what was written to it is on the disk. Of a folder: its names are.
    Sync {
        node: Node,
    },
}

/// Recordings in progress: a look without the lock keeps the calls of everything else cheap.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static RECORDINGS: Mutex<Vec<Recording>> = Mutex::new(Vec::new());

/// One watched folder.
#[derive(Debug)]
pub(crate) struct Recording {
    root: PathBuf,
    events: Vec<Event>,
    names: HashMap<(Node, String), Node>,
    /// By device and inode.
    known: HashMap<(u64, u64), Node>,
    /// By node.
    name_counts: HashMap<Node, usize>,
    nodes: Nodes,
}

/// A recording of the folder `root`; ends when it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    root: PathBuf,
}

impl Recorder {
    /// Watches `root`, an absolute path without symbolic links. What is in it already is `existing`, by path below it.
    pub(crate) fn start(root: &Path, nodes: Nodes, existing: &[(String, Node)]) -> Self {
        let mut recording = Recording {
            root: root.to_owned(),
            events: Vec::new(),
            names: HashMap::new(),
            known: HashMap::from([(identity(root), ROOT)]),
            name_counts: HashMap::new(),
            nodes,
        };
        for (path, node) in existing {
            let (folder, name) = recording.resolve(&root.join(path)).unwrap();
            recording.known.insert(identity(&root.join(path)), *node);
            recording.names.insert((folder, name), *node);
            *recording.name_counts.entry(*node).or_default() += 1;
        }
        lock().push(recording);
        ACTIVE.fetch_add(1, Ordering::SeqCst);
        Self { root: root.to_owned() }
    }

    /// Events so far.
    pub(crate) fn position(&self) -> usize {
        self.with(|recording| recording.events.len())
    }

    /// Ends the recording.
    pub(crate) fn finish(self) -> (Vec<Event>, Nodes) {
        self.with(|recording| (std::mem::take(&mut recording.events), recording.nodes.clone()))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Recording) -> T) -> T {
        look(lock().iter_mut().find(|recording| recording.root == self.root).unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, Ordering::SeqCst);
        lock().retain(|recording| recording.root != self.root);
    }
}

fn identity(path: &Path) -> (u64, u64) {
    let metadata = path.symlink_metadata().unwrap();
    (metadata.dev(), metadata.ino())
}

fn lock() -> MutexGuard<'static, Vec<Recording>> {
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Recordings, held so that the order of events is the order of the calls.
pub(crate) struct Watch {
    recordings: MutexGuard<'static, Vec<Recording>>,
    at: usize,
}

impl Watch {
    /// The recording that `path` is in.
    pub(crate) fn path(path: &Path) -> Option<Self> {
        if ACTIVE.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let recordings = lock();
        let at = recordings.iter().position(|recording| path.starts_with(&recording.root))?;
        Some(Self { recordings, at })
    }

    /// The recording that an open file or folder is in, and which it is there.
    pub(crate) fn file(identity: impl FnOnce() -> Option<(u64, u64)>) -> Option<(Self, Node)> {
        if ACTIVE.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let identity = identity()?;
        let recordings = lock();
        let found = recordings
            .iter()
            .enumerate()
            .find_map(|(at, recording)| recording.known.get(&identity).map(|node| (at, *node)));
        found.map(|(at, node)| (Self { recordings, at }, node))
    }

    fn recording(&mut self) -> &mut Recording {
        &mut self.recordings[self.at]
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.recording().events.push(event);
    }

    /// What `path` is.
    pub(crate) fn node(&mut self, path: &Path) -> Option<Node> {
        let recording = self.recording();
        let key = recording.resolve(path)?;
        recording.names.get(&key).copied()
    }

    /// `path` was made: a file, or a folder.
    pub(crate) fn created(&mut self, path: &Path, identity: (u64, u64), is_folder: bool) {
        let recording = self.recording();
        let node = recording.nodes.add(is_folder);
        recording.known.insert(identity, node);
        self.bind(path, Some(node));
    }

    /// `path` means `node` now.
    pub(crate) fn bind(&mut self, path: &Path, node: Option<Node>) {
        let recording = self.recording();
        let Some((folder, name)) = recording.resolve(path) else { return };
        let old = match node {
            Some(node) => {
                *recording.name_counts.entry(node).or_default() += 1;
                recording.names.insert((folder, name.clone()), node)
            }
            None => recording.names.remove(&(folder, name.clone())),
        };
        if let Some(old) = old {
            let count = recording.name_counts.entry(old).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                // Its inode number may be given to another file from now on.
                recording.known.retain(|_, node| *node != old);
            }
        }
        recording.events.push(Event::Bind { folder, name, node });
    }
}

impl Recording {
    /// The folder that `path` is in, and its name there.
    fn resolve(&self, path: &Path) -> Option<(Node, String)> {
        let below = path.strip_prefix(&self.root).ok()?;
        let mut folder = ROOT;
        let mut parts =
            below.components().map(|part| part.as_os_str().to_str().map(str::to_owned)).peekable();
        while let Some(part) = parts.next() {
            let name = part?;
            if parts.peek().is_none() {
                return Some((folder, name));
            }
            folder = *self.names.get(&(folder, name))?;
        }
        None
    }
}
