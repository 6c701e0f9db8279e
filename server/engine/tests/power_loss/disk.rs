//! What a disk may hold after a power failure.
//!
//! A history is a sequence of events from a folder whose contents were on the disk. At any point of it, what was
//! flushed is there. Of the rest anything may be there: for each file, every sector of 512 or 4,096 bytes is as one
//! of the writes since the last flush left it, and the length is one the file has had since; for each folder, every
//! name means what it meant at the last flush or at some time since. So writes are lost, torn and reordered, files
//! are long and empty, renames happen by half, and a file whose name was never flushed is forgotten. Nothing is
//! assumed of a journal; what a journal would leave is among the possible states, and is chosen often.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::random::Random;
use crate::recorder::Event;
use crate::tree::{Entry, Node, Nodes, ROOT, Tree, is_shared_memory};

/// Events, and what was on the disk before them.
#[derive(Debug, Clone)]
pub(crate) struct History {
    contents: HashMap<Node, Arc<[u8]>>,
    names: BTreeMap<(Node, String), Node>,
    pub(crate) nodes: Nodes,
    pub(crate) events: Vec<Event>,
}

impl History {
    /// Begins with files and folders that are on the disk.
    pub(crate) fn from(tree: &Tree) -> Self {
        let mut history = Self {
            contents: HashMap::new(),
            names: BTreeMap::new(),
            nodes: Nodes::new(),
            events: Vec::new(),
        };
        let mut by_path = HashMap::new();
        for (path, entry) in &tree.0 {
            let (folder, name) = match path.rsplit_once('/') {
                Some((folder, name)) => (by_path[folder], name),
                None => (ROOT, path.as_str()),
            };
            let node = history.nodes.add(*entry == Entry::Folder);
            by_path.insert(path.as_str(), node);
            history.names.insert((folder, name.to_owned()), node);
            if let Entry::File(bytes) = entry {
                history.contents.insert(node, Arc::clone(bytes));
            }
        }
        history
    }

    /// This history up to `position`, to be gone on with: a process was killed there, and the system lives on.
    pub(crate) fn until(&self, position: usize) -> Self {
        Self { events: self.events[..position].to_vec(), ..self.clone() }
    }

    /// What every process sees after the first `position` events, and which node each path is.
    pub(crate) fn seen(&self, position: usize) -> (Tree, Vec<(String, Node)>) {
        Choice { state: State::at(self, position), nodes: &self.nodes, fate: Fate::Kept }
            .tree(&mut Random::new(0))
    }

    /// What one power failure after the first `position` events leaves.
    pub(crate) fn crash(&self, position: usize, random: &mut Random) -> Tree {
        let fate =
            *random.pick(&[Fate::Lost, Fate::Kept, Fate::Mixed, Fate::Mixed, Fate::Mixed, Fate::Journal]);
        Choice { state: State::at(self, position), nodes: &self.nodes, fate }.tree(random).0
    }
}

/// A change of a file's contents.
#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    Write(u64, &'a [u8]),
    Resize(u64),
}

#[derive(Debug, Default)]
struct FileState<'a> {
    flushed: Vec<u8>,
    since: Vec<Change<'a>>,
}

/// Files and names: what was flushed, and what happened since.
#[derive(Debug)]
struct State<'a> {
    files: HashMap<Node, FileState<'a>>,
    names: BTreeMap<(Node, &'a str), Name>,
}

#[derive(Debug, Default)]
struct Name {
    flushed: Option<Node>,
    since: Vec<Option<Node>>,
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

fn apply(bytes: &mut Vec<u8>, change: Change<'_>) {
    match change {
        Change::Resize(len) => bytes.resize(index(len), 0),
        Change::Write(at, new) => {
            let (at, end) = (index(at), index(at) + new.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(new);
        }
    }
}

impl<'a> State<'a> {
    fn at(history: &'a History, position: usize) -> Self {
        let mut state = Self { files: HashMap::new(), names: BTreeMap::new() };
        for (node, bytes) in &history.contents {
            state.files.insert(*node, FileState { flushed: bytes.to_vec(), since: Vec::new() });
        }
        for ((folder, name), node) in &history.names {
            let name = state.names.entry((*folder, name.as_str())).or_default();
            name.flushed = Some(*node);
        }
        for event in &history.events[..position] {
            state.take(event, &history.nodes);
        }
        state
    }

    fn take(&mut self, event: &'a Event, nodes: &Nodes) {
        match event {
            Event::Bind { folder, name, node } => {
                self.names.entry((*folder, name.as_str())).or_default().since.push(*node);
            }
            Event::Write { node, at, bytes } => {
                self.files.entry(*node).or_default().since.push(Change::Write(*at, bytes));
            }
            Event::Resize { node, len } => {
                self.files.entry(*node).or_default().since.push(Change::Resize(*len));
            }
            Event::Sync { node } if nodes.is_folder(*node) => {
                for (_, name) in self.names.range_mut((*node, "")..(*node + 1, "")) {
                    if let Some(last) = name.since.pop() {
                        name.flushed = last;
                        name.since.clear();
                    }
                }
            }
            Event::Sync { node } => {
                let file = self.files.entry(*node).or_default();
                for change in std::mem::take(&mut file.since) {
                    apply(&mut file.flushed, change);
                }
            }
        }
    }
}

/// What becomes of everything that was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    /// Names as a journal keeps them that was written in time; contents at random.
    Journal,
    Mixed,
}

struct Choice<'a> {
    state: State<'a>,
    nodes: &'a Nodes,
    fate: Fate,
}

impl Choice<'_> {
    /// One tree, and which node each path is.
    fn tree(&self, random: &mut Random) -> (Tree, Vec<(String, Node)>) {
        let mut folders: HashMap<Node, Vec<(&str, Node)>> = HashMap::new();
        for ((folder, name), meaning) in &self.state.names {
            if let Some(node) = self.meaning(meaning, random)
                && !is_shared_memory(name)
            {
                folders.entry(*folder).or_default().push((name, node));
            }
        }
        let (mut tree, mut paths) = (Tree::default(), Vec::new());
        let mut contents: HashMap<Node, Arc<[u8]>> = HashMap::new();
        let mut waiting = vec![(ROOT, String::new())];
        while let Some((folder, below)) = waiting.pop() {
            for (name, node) in folders.get(&folder).into_iter().flatten() {
                let path = if below.is_empty() { (*name).to_owned() } else { format!("{below}/{name}") };
                paths.push((path.clone(), *node));
                if self.nodes.is_folder(*node) {
                    tree.0.insert(path.clone(), Entry::Folder);
                    waiting.push((*node, path));
                } else {
                    let bytes = contents.entry(*node).or_insert_with(|| self.contents(*node, random).into());
                    tree.0.insert(path, Entry::File(Arc::clone(bytes)));
                }
            }
        }
        (tree, paths)
    }

    fn meaning(&self, name: &Name, random: &mut Random) -> Option<Node> {
        let last = name.since.last().copied().unwrap_or(name.flushed);
        match self.fate {
            Fate::Lost => name.flushed,
            Fate::Kept | Fate::Journal => last,
            Fate::Mixed => match random.below(name.since.len() + 1) {
                0 => name.flushed,
                after => name.since[after - 1],
            },
        }
    }

    fn contents(&self, node: Node, random: &mut Random) -> Vec<u8> {
        let Some(file) = self.state.files.get(&node) else { return Vec::new() };
        let mut bytes = file.flushed.clone();
        let first = match self.fate {
            Fate::Lost => 0,
            Fate::Kept => file.since.len(),
            Fate::Journal | Fate::Mixed => match random.below(4) {
                // Some of the first writes, and nothing after them.
                0 => random.below(file.since.len() + 1),
                1 => file.since.len(),
                // The length is there, the data is not.
                2 => return all_zero(file),
                _ => return torn(file, random),
            },
        };
        file.since[..first].iter().for_each(|change| apply(&mut bytes, *change));
        bytes
    }
}

/// As long as it should be, and of what was written only what was flushed.
fn all_zero(file: &FileState<'_>) -> Vec<u8> {
    let mut bytes = file.flushed.clone();
    for change in &file.since {
        match change {
            Change::Resize(len) => bytes.resize(index(*len), 0),
            Change::Write(at, new) => bytes.resize(bytes.len().max(index(*at) + new.len()), 0),
        }
    }
    bytes
}

/// Every sector as it was at some time since the flush, and some length of that time.
fn torn(file: &FileState<'_>, random: &mut Random) -> Vec<u8> {
    let sector = *random.pick(&[512, 4096]);
    let mut versions = vec![file.flushed.clone()];
    // Bounds the work; what comes later is lost.
    for change in file.since.iter().take(64) {
        let mut next = versions.last().cloned().unwrap_or_default();
        apply(&mut next, *change);
        versions.push(next);
    }
    let longest = versions.iter().map(Vec::len).max().unwrap_or(0);
    let mut bytes = vec![0; longest];
    for (number, place) in bytes.chunks_mut(sector).enumerate() {
        let version = random.pick(&versions);
        let start = number * sector;
        let end = version.len().min(start + place.len());
        if start < end {
            place[..end - start].copy_from_slice(&version[start..end]);
        }
    }
    bytes.truncate(random.pick(&versions).len());
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn write(node: Node, at: u64, bytes: &[u8]) -> Event {
        Event::Write { node, at, bytes: bytes.into() }
    }

    fn bind(name: &str, node: Option<Node>) -> Event {
        Event::Bind { folder: ROOT, name: name.to_owned(), node }
    }

    /// Everything that 2,000 crashes leave.
    fn outcomes(history: &History) -> BTreeSet<Vec<(String, Vec<u8>)>> {
        let tree = |seed| history.crash(history.events.len(), &mut Random::new(seed));
        let files = |tree: Tree| {
            let file = |(path, entry)| match entry {
                Entry::File(bytes) => (path, Vec::from(&*bytes)),
                Entry::Folder => (path, b"folder".to_vec()),
            };
            tree.0.into_iter().map(file).collect()
        };
        (0..2000).map(tree).map(files).collect()
    }

    fn history(events: Vec<Event>) -> History {
        let mut history =
            History::from(&Tree(BTreeMap::from([("old".to_owned(), Entry::File(b"old".to_vec().into()))])));
        history.nodes.add(false);
        history.events = events;
        history
    }

    #[test]
    fn what_was_flushed_is_there_and_nothing_else_is_sure() {
        let named = [bind("new", Some(2)), write(2, 0, b"data")];
        let sync = |node| Event::Sync { node };
        let unsure = outcomes(&history(named.to_vec()));
        let with_new =
            |bytes: &[u8]| vec![("new".to_owned(), bytes.to_vec()), ("old".to_owned(), b"old".to_vec())];
        let without = vec![("old".to_owned(), b"old".to_vec())];
        assert_eq!(
            unsure,
            BTreeSet::from([without.clone(), with_new(b""), with_new(b"data"), with_new(&[0; 4])])
        );
        let data = outcomes(&history([&named[..], &[sync(2)]].concat()));
        assert_eq!(data, BTreeSet::from([without, with_new(b"data")]), "its name was not flushed");
        let both = outcomes(&history([&named[..], &[sync(2), sync(ROOT)]].concat()));
        assert_eq!(both, BTreeSet::from([with_new(b"data")]));
    }

    #[test]
    fn renames_may_happen_by_half() {
        let events = vec![bind("new", Some(1)), bind("old", None)];
        let names = |files: &Vec<(String, Vec<u8>)>| files.iter().map(|(name, _)| name.clone()).collect();
        let outcomes: BTreeSet<Vec<String>> = outcomes(&history(events)).iter().map(names).collect();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(outcomes, BTreeSet::from([of(&[]), of(&["new"]), of(&["old"]), of(&["new", "old"])]));
    }

    #[test]
    fn sectors_are_torn_and_reordered() {
        let (first, second) = ([1; 1024], [2; 1024]);
        let events =
            vec![bind("new", Some(2)), Event::Sync { node: ROOT }, write(2, 0, &first), write(2, 0, &second)];
        let of = |files: &Vec<(String, Vec<u8>)>| {
            let bytes = &files[0].1;
            (bytes.len(), bytes.first().copied(), bytes.get(512).copied())
        };
        let outcomes: BTreeSet<_> = outcomes(&history(events)).iter().map(of).collect();
        for wanted in
            [(0, None, None), (1024, Some(0), Some(2)), (1024, Some(2), Some(1)), (1024, Some(1), Some(0))]
        {
            assert!(outcomes.contains(&wanted), "{wanted:?} is not among {outcomes:?}");
        }
    }
}
