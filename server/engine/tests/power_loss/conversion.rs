//! Power fails while everything on a volume is sealed anew: first what lies in the open, then what old data keys sealed.
//!
//! After every event of such a life a disk is left with several of the states it may have. What is opened from that must
//! read every blob as it was written, list each once, and come to its end; and once a table of keys says that nothing in the
//! open is believed, nothing lies in the open any more (K2, K3).

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use holdfast_keys::slots::{NewSlot, SlotSecret};
use holdfast_keys::{DataKeyState, OpenKeys, Owner as KeyOwner, Secret, SystemRandom};
use holdfast_sealing::{
    Cause, Conversion, Converting, Keys, KeysError, Room, SealedVolume, Surroundings, inventory, read_table,
    write_table,
};
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::testing::put;
use holdfast_volume::{Blob, BlobName, LocalVolume, Owner, Volume, VolumeError, list_all};

use crate::disk::History;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::tree::Tree;

const FOLDERS: [&str; 3] = ["containers", "index", "points"];

/// States of the disk that are looked at after each event.
const STATES: u64 = 4;

type Contents = BTreeMap<String, Vec<u8>>;

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn folders() -> Vec<BlobName> {
    FOLDERS.map(name).to_vec()
}

fn secret() -> SlotSecret {
    SlotSecret::key_file(Secret::from_bytes(&[1; 32]))
}

/// Several pages, less than one, and none.
fn contents() -> Contents {
    let lens = [
        ("containers/0000000/0000000001.data", 150_000),
        ("containers/0000000/0000000002.recipe", 3000),
        ("index/runs/1", 9000),
        ("points/a/b/x.1", 200),
        ("points/a/b/y.1", 0),
    ];
    let mut random = Random::new(7);
    let mut bytes = |len| std::iter::repeat_with(|| random.next().to_le_bytes()[0]).take(len).collect();
    lens.into_iter().map(|(name, len)| (name.to_owned(), bytes(len))).collect()
}

/// A repository as a start finds it.
struct Scene {
    below: Arc<LocalVolume>,
    keys: Arc<Keys>,
    volume: SealedVolume,
    conversion: Conversion,
}

impl Scene {
    fn open(root: &Path) -> Self {
        let below = Arc::new(LocalVolume::open(root.join("blobs")).unwrap());
        below.discard_unfinished().unwrap();
        let (open, _) = read_table(&*below).unwrap().unwrap().unlock(&secret()).unwrap();
        let raw = Arc::clone(&below) as Arc<dyn Volume>;
        let clock = Arc::new(ManualClock::default());
        let keys = Arc::new(Keys::new(open, Arc::clone(&raw), clock, Arc::new(SystemRandom)));
        let volume = SealedVolume::new(raw, Arc::clone(&keys));
        let conversion = Conversion::new(volume.clone(), Arc::clone(&keys), folders());
        Self { below, keys, volume, conversion }
    }

    fn convert(&self) {
        while self.conversion.step(&Around).unwrap() != Converting::Done {}
    }

    /// As `key rotate --data-keys` does.
    fn retire_keys(&self) {
        let owners: Vec<KeyOwner> =
            self.keys.with_table(|table| table.data_keys().map(|key| key.owner).collect());
        let retire = |keys: &mut OpenKeys, now_ms: i64, random: &dyn holdfast_keys::SecretRandom| {
            for owner in owners {
                keys.retire(owner, now_ms, random)?;
            }
            Ok::<_, KeysError>(())
        };
        self.keys.change(retire).unwrap();
    }

    /// Everything is there, once, and reads as it was written; and nothing lies in the open that must not.
    fn check(&self, contents: &Contents) -> Result<(), String> {
        let mut listed = Vec::new();
        for folder in folders() {
            for entry in list_all(&self.volume, &folder) {
                let entry = entry.map_err(|error| error.to_string())?;
                listed.push((entry.name.to_string(), entry.len));
            }
        }
        listed.sort();
        let wanted: Vec<_> =
            contents.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
        if listed != wanted {
            return Err(format!("there is {listed:?}"));
        }
        for (text, bytes) in contents {
            let blob = self.volume.open(&name(text)).map_err(|error| format!("{text}: {error}"))?;
            let found = blob.read_vec(&name(text), 0, bytes.len());
            if found.map_err(|error| format!("{text}: {error}"))? != *bytes {
                return Err(format!("{text} is another"));
            }
        }
        let found = inventory(&*self.below, &folders()).unwrap();
        if !self.keys.accepts_plain() && found.plain > 0 {
            return Err(format!("nothing in the open is believed, and {} blobs lie there so", found.plain));
        }
        Ok(())
    }

    /// All is sealed with the keys of today, once.
    fn is_done(&self, contents: &Contents) -> Result<(), String> {
        self.check(contents)?;
        let found = inventory(&*self.below, &folders()).unwrap();
        let old = self
            .keys
            .with_table(|table| table.data_keys().filter(|key| key.state == DataKeyState::Old).count());
        let is_done = !self.keys.accepts_plain() && old == 0 && found.sealed == contents.len() as u64;
        if is_done { Ok(()) } else { Err(format!("done, with {found:?} and {old} old keys")) }
    }
}

struct NoLimit;

impl Room for NoLimit {
    fn wrote(&mut self, _: u64) {}
    fn sealed(self: Box<Self>, _: u64) {}
}

/// Lets everything happen.
struct Around;

impl Surroundings for Around {
    fn owner(&self, name: &BlobName, _: &Arc<dyn Blob>) -> Result<Owner, Cause> {
        let is_index = name.as_str().starts_with("index");
        Ok(if is_index { Owner::REPOSITORY } else { Owner::namespace([7; 16]) })
    }

    fn room(&self, _: u64) -> Result<Box<dyn Room>, Cause> {
        Ok(Box::new(NoLimit))
    }

    fn write_failed(&self, error: &VolumeError) {
        panic!("{error}");
    }

    fn removed_so_far(&self) -> Result<u64, Cause> {
        Ok(0)
    }

    fn lie_elsewhere(&self, _: u64) -> Result<u64, Cause> {
        Ok(0)
    }

    fn lies_elsewhere(&self, _: &BlobName) -> Result<bool, Cause> {
        Ok(false)
    }

    fn charge(&self, _: u64, _: u64) {}

    fn is_spent(&self) -> bool {
        false
    }

    fn must_stop(&self) -> bool {
        false
    }
}

/// Both conversions, from blobs in the open on.
fn record(root: &Path, contents: &Contents) -> History {
    let below = LocalVolume::open(root.join("blobs")).unwrap();
    contents.iter().for_each(|(name, bytes)| put(&below, name, bytes));
    let (secret, id) = (secret(), RepositoryId::from_bytes([1; 16]));
    let slot = NewSlot::new(&secret, "a test");
    write_table(&below, OpenKeys::create(id, &slot, true, 0, &SystemRandom).unwrap().table()).unwrap();
    drop(below);
    let mut history = History::from(&Tree::read(root));
    let recorder = Recorder::start(root, history.nodes.clone(), &history.seen(0).1);
    let scene = Scene::open(root);
    scene.convert();
    scene.is_done(contents).unwrap();
    scene.retire_keys();
    scene.convert();
    scene.is_done(contents).unwrap();
    (history.events, history.nodes) = recorder.finish();
    history
}

/// Every event, several states each.
pub(crate) fn run(folder: &Path) {
    let (life, crashed) = (folder.join("life"), folder.join("crashed"));
    std::fs::create_dir(&life).unwrap();
    let contents = contents();
    let history = record(&std::fs::canonicalize(&life).unwrap(), &contents);
    // The folders of temporary files and of blobs, the table, and ten blobs that are written, named and removed.
    assert!(history.events.len() > 60, "{} events", history.events.len());
    let mut seen = HashSet::new();
    for position in 0..=history.events.len() {
        for state in 0..STATES {
            let seed = position as u64 * STATES + state;
            let left = history.crash(position, &mut Random::new(seed));
            if !seen.insert(left.digest()) {
                continue;
            }
            std::fs::create_dir(&crashed).unwrap();
            left.write(&crashed);
            let scene = Scene::open(&crashed);
            let checked = scene.check(&contents).and_then(|()| {
                scene.convert();
                scene.is_done(&contents)
            });
            if let Err(wrong) = checked {
                panic!("event {position} of {}, state {state}: {wrong}", history.events.len());
            }
            std::fs::remove_dir_all(&crashed).unwrap();
        }
    }
    assert!(seen.len() > 60, "{} states", seen.len());
}
