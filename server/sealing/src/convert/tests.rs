mod readers;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use holdfast_keys::slots::{NewSlot, SlotSecret};
use holdfast_keys::{OpenKeys, Owner as KeyOwner, Secret, SystemRandom};
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{CrashPoint, Fault, FaultyVolume, InFlight, OpKind, put};

use super::*;
use crate::{read_table, write_table};

type Faulty = FaultyVolume<MemoryVolume>;

const FOLDERS: [&str; 3] = ["containers", "points", "index"];
const OWNER: Owner = Owner::namespace([7; 16]);
const CONTAINER: &str = "containers/0000000/0000000001.data";

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn folders() -> Vec<BlobName> {
    FOLDERS.map(name).to_vec()
}

fn secret() -> SlotSecret {
    SlotSecret::key_file(Secret::from_bytes(&[1; 32]))
}

/// Pseudorandom bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(len).collect()
}

type Contents = BTreeMap<String, Vec<u8>>;

/// One blob of each kind: several pieces, less than a page, empty.
fn contents() -> Contents {
    let blobs = [
        (CONTAINER, PIECE_BYTES * 2 + 100),
        ("containers/0000000/0000000002.recipe", 40_000),
        ("index/runs/1", 9000),
        ("points/a/b/x.1", 200),
        ("points/a/b/y.1", 0),
    ];
    blobs
        .into_iter()
        .enumerate()
        .map(|(seed, (name, len))| (name.to_owned(), noise(seed as u64, len)))
        .collect()
}

/// A repository on a volume.
struct Scene<V> {
    below: Arc<V>,
    keys: Arc<Keys>,
    volume: SealedVolume,
    conversion: Conversion,
}

impl<V: Volume + 'static> Scene<V> {
    /// Opens it as a start does.
    fn open(below: Arc<V>) -> Self {
        let table = read_table(&*below).unwrap().unwrap();
        let (open, _) = table.unlock(&secret()).unwrap();
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
        let keys = Arc::new(Keys::new(open, Arc::clone(&below) as Arc<dyn Volume>, clock, random));
        let volume = SealedVolume::new(Arc::clone(&below) as Arc<dyn Volume>, Arc::clone(&keys));
        let conversion = Conversion::new(volume.clone(), Arc::clone(&keys), folders());
        Self { below, keys, volume, conversion }
    }

    fn read(&self, text: &str) -> Result<Vec<u8>, VolumeError> {
        let blob = self.volume.open(&name(text))?;
        blob.read_vec(&name(text), 0, usize::try_from(blob.len()).unwrap())
    }

    /// Checks that every blob is there, once, and reads as it was written.
    fn holds(&self, contents: &Contents) {
        let mut listed = Vec::new();
        for folder in folders() {
            let pages = holdfast_volume::list_all(&self.volume, &folder).in_pages_of(NonZeroUsize::MIN);
            for entry in pages {
                let entry = entry.unwrap();
                listed.push((entry.name.to_string(), entry.len));
            }
        }
        listed.sort();
        let wanted: Vec<_> =
            contents.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
        assert_eq!(listed, wanted);
        for (name, bytes) in contents {
            assert!(self.read(name).unwrap() == *bytes, "{name}");
        }
    }

    /// Converts to the end.
    fn convert(&self) {
        while self.conversion.step(&Around::default()).unwrap() != Converting::Done {}
    }

    /// Forms of the blobs on the volume below.
    fn forms(&self) -> Vec<Form> {
        let lists = FOLDERS.map(|folder| holdfast_volume::testing::list(&*self.below, folder));
        lists.into_iter().flatten().map(|entry| Form::parse(&entry.name).1).collect()
    }

    /// Checks the final state of a conversion.
    fn is_converted(&self, contents: &Contents, form: Form) {
        self.holds(contents);
        assert_eq!(self.forms(), vec![form; contents.len()]);
        let table = read_table(&*self.below).unwrap().unwrap();
        assert!(!table.accepts_plain() && self.keys.old().is_empty() && !self.keys.is_to_convert());
        for name in contents.keys() {
            let (_, key) = self.conversion.salt(&self::name(name), form).ok().flatten().unwrap();
            let (owner, is_current) = self.keys.of(key).unwrap();
            assert!(is_current && owner == owner_of(name), "{name}");
        }
    }

    /// Same as `key rotate --data-keys` without a server.
    fn retire_keys(&self) {
        let owners: Vec<KeyOwner> =
            self.keys.with_table(|table| table.data_keys().map(|key| key.owner).collect());
        self.keys
            .change(|keys, now_ms, random| {
                for owner in owners {
                    keys.retire(owner, now_ms, random)?;
                }
                Ok::<_, KeysError>(())
            })
            .unwrap();
    }
}

fn owner_of(name: &str) -> Owner {
    if name.starts_with("index") { Owner::REPOSITORY } else { OWNER }
}

struct NoLimit;

impl Room for NoLimit {
    fn wrote(&mut self, _: u64) {}
    fn sealed(self: Box<Self>, _: u64) {}
}

/// Permits everything; `meanwhile` is called for each piece.
#[derive(Default)]
struct Around<'a> {
    charges: Cell<u64>,
    meanwhile: Option<&'a dyn Fn(u64)>,
    spent_after: Option<u64>,
    stop_after: Option<u64>,
    failed: RefCell<Vec<String>>,
    /// Blobs removed here that a bucket still has.
    elsewhere: Cell<u64>,
    /// Names below of removed blobs that a bucket still has.
    still_there: Vec<BlobName>,
}

impl Surroundings for Around<'_> {
    fn owner(&self, name: &BlobName, _: &Arc<dyn Blob>) -> Result<Owner, Cause> {
        Ok(owner_of(name.as_str()))
    }

    fn room(&self, _: u64) -> Result<Box<dyn Room>, Cause> {
        Ok(Box::new(NoLimit))
    }

    fn write_failed(&self, error: &VolumeError) {
        self.failed.borrow_mut().push(error.to_string());
    }

    fn removed_so_far(&self) -> Result<u64, Cause> {
        Ok(7)
    }

    fn lie_elsewhere(&self, mark: u64) -> Result<u64, Cause> {
        assert_eq!(mark, 7);
        Ok(self.elsewhere.get())
    }

    fn lies_elsewhere(&self, below: &BlobName) -> Result<bool, Cause> {
        Ok(self.still_there.contains(below))
    }

    fn charge(&self, _: u64, _: u64) {
        self.charges.set(self.charges.get() + 1);
        if let Some(meanwhile) = self.meanwhile {
            meanwhile(self.charges.get());
        }
    }

    fn is_spent(&self) -> bool {
        self.must_stop() || self.spent_after.is_some_and(|after| self.charges.get() >= after)
    }

    fn must_stop(&self) -> bool {
        self.stop_after.is_some_and(|after| self.charges.get() >= after)
    }
}

/// Plain blobs, and the first table of keys.
fn plain() -> MemoryVolume {
    let below = MemoryVolume::new();
    for (name, bytes) in contents() {
        put(&below, &name, &bytes);
    }
    let secret = secret();
    let slot = NewSlot::new(&secret, "a test");
    let open = OpenKeys::create(RepositoryId::from_bytes([1; 16]), &slot, true, 0, &SystemRandom).unwrap();
    write_table(&below, open.table()).unwrap();
    below
}

/// Blobs that are all sealed with keys that are old now.
fn outdated() -> MemoryVolume {
    let scene = Scene::open(Arc::new(plain()));
    scene.convert();
    scene.retire_keys();
    (*scene.below).clone()
}

#[test]
fn all_that_lies_in_the_open_is_sealed_and_then_nothing_else_is_believed() {
    let scene = Scene::open(Arc::new(plain()));
    let text = contents()[CONTAINER][1000..1032].to_vec();
    let is_found = |scene: &Scene<MemoryVolume>| {
        let lists = FOLDERS.map(|folder| holdfast_volume::testing::list(&*scene.below, folder));
        let names = lists.into_iter().flatten().map(|entry| entry.name);
        let texts: Vec<_> = names.map(|name| scene.below.get(&name).unwrap()).collect();
        texts.iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text))
    };
    assert!(is_found(&scene));
    assert_eq!(inventory(&*scene.below, &folders()).unwrap().plain, 5);
    scene.convert();
    scene.is_converted(&contents(), Form::Sealed);
    assert!(!is_found(&scene));
    let figures = scene.conversion.figures();
    assert_eq!((figures.looked_at, figures.total, figures.converted, figures.done), (5, 5, 5, true));
    let found = inventory(&*scene.below, &folders()).unwrap();
    assert_eq!((found.plain, found.sealed), (0, 5));
    put(&*scene.below, "points/a/b/z.1", b"forged");
    assert!(matches!(scene.read("points/a/b/z.1"), Err(VolumeError::NotFound { .. })));
}

#[test]
fn all_that_old_keys_sealed_is_sealed_anew_and_they_go() {
    let scene = Scene::open(Arc::new(outdated()));
    scene.holds(&contents());
    let old = scene.keys.old();
    assert_eq!(old.len(), 2);
    scene.convert();
    scene.is_converted(&contents(), Form::Resealed);
    // And back to the first form the next time.
    scene.retire_keys();
    let scene = Scene::open(Arc::clone(&scene.below));
    scene.convert();
    scene.is_converted(&contents(), Form::Sealed);
}

/// (K2) After a power failure at any point nothing is lost, and a later conversion finishes.
#[test]
fn a_crash_at_any_step_loses_nothing() {
    for (start, form) in [(plain(), Form::Sealed), (outdated(), Form::Resealed)] {
        let counted = Scene::open(Arc::new(Faulty::new(start.snapshot())));
        counted.convert();
        let steps = counted.below.mutations();
        assert!(steps > 20, "{steps}");
        for after_mutations in 0..steps {
            for in_flight in [InFlight::Lost, InFlight::Done] {
                let faulty = Arc::new(Faulty::new(start.snapshot()));
                faulty.crash_at(CrashPoint { after_mutations, in_flight });
                let scene = Scene::open(Arc::clone(&faulty));
                scene.conversion.step(&Around::default()).unwrap_err();
                assert!(faulty.has_crashed());
                let scene = Scene::open(faulty.survivor());
                scene.holds(&contents());
                scene.convert();
                scene.is_converted(&contents(), form);
            }
        }
    }
}

/// (K3) Finishes only after other places have removed their copies of old forms, and then without another pass.
#[test]
fn what_lies_elsewhere_in_its_old_form_is_waited_for() {
    for (start, old_keys) in [(plain(), 0), (outdated(), 2)] {
        let scene = Scene::open(Arc::new(start));
        let around = Around { elsewhere: Cell::new(3), ..Around::default() };
        let accepted = scene.keys.accepts_plain();
        for left in [3, 2, 1] {
            around.elsewhere.set(left);
            assert_eq!(scene.conversion.step(&around).unwrap(), Converting::Elsewhere(left));
            let figures = scene.conversion.figures();
            assert_eq!((figures.elsewhere, figures.done, figures.left), (left, false, 0));
            assert_eq!((scene.keys.accepts_plain(), scene.keys.old().len()), (accepted, old_keys));
        }
        let charges = around.charges.get();
        around.elsewhere.set(0);
        assert_eq!(scene.conversion.step(&around).unwrap(), Converting::Done);
        assert_eq!(around.charges.get(), charges);
        assert!(!scene.keys.is_to_convert() && scene.conversion.figures().elsewhere == 0);
        scene.holds(&contents());
    }
}

/// (K2) The bucket has a form under the old data key, and is to remove it once it has the next one. After a restart
/// and another change of keys that name must not be reused for a form that the bucket lacks.
#[test]
fn a_name_is_not_used_again_before_the_bucket_has_removed_it() {
    let scene = Scene::open(Arc::new(outdated()));
    let removed = Form::Sealed.of(&name(CONTAINER)).unwrap();
    let around = Around { elsewhere: Cell::new(1), still_there: vec![removed.clone()], ..Around::default() };
    assert_eq!(scene.conversion.step(&around).unwrap(), Converting::Elsewhere(1));
    let scene = Scene::open(Arc::clone(&scene.below));
    scene.retire_keys();
    assert_eq!(scene.conversion.step(&around).unwrap(), Converting::Left(1));
    assert!(scene.conversion.figures().why.unwrap().contains("in the bucket"));
    assert!(scene.below.get(&removed).is_none() && scene.keys.old().len() > 2);
    scene.holds(&contents());
    scene.convert();
    scene.is_converted(&contents(), Form::Sealed);
}

/// Number of charges during a conversion from `start`.
fn charges(start: &MemoryVolume) -> u64 {
    let around = Around::default();
    let scene = Scene::open(Arc::new(start.snapshot()));
    while scene.conversion.step(&around).unwrap() != Converting::Done {}
    around.charges.get()
}

/// Does something once, at each moment of a conversion, and checks the result.
fn at_each_moment(meanwhile: &dyn Fn(&Scene<MemoryVolume>), then: &Contents) {
    for (start, form) in [(plain(), Form::Sealed), (outdated(), Form::Resealed)] {
        for moment in 1..=charges(&start) {
            let scene = Scene::open(Arc::new(start.snapshot()));
            let at = |charge: u64| {
                if charge == moment {
                    meanwhile(&scene);
                }
            };
            let around = Around { meanwhile: Some(&at), ..Around::default() };
            while scene.conversion.step(&around).unwrap() != Converting::Done {}
            scene.holds(then);
            let forms = scene.forms();
            assert!(forms.iter().filter(|found| **found == form).count() >= then.len() - 1, "{forms:?}");
            assert!(!forms.contains(&Form::Plain) && forms.len() == then.len(), "{forms:?}");
        }
    }
}

/// (K2) A blob removed while it is sealed anew does not come back.
#[test]
fn what_is_removed_meanwhile_stays_away() {
    let without = contents().into_iter().filter(|(name, _)| name != CONTAINER).collect();
    at_each_moment(&|scene| scene.volume.remove(&name(CONTAINER)).unwrap(), &without);
}

/// (K2) A name reused meanwhile belongs to the new blob.
#[test]
fn what_is_written_again_meanwhile_stays() {
    let mut with = contents();
    with.insert(CONTAINER.to_owned(), b"another".to_vec());
    let replace = |scene: &Scene<MemoryVolume>| {
        scene.volume.remove(&name(CONTAINER)).unwrap();
        let mut blob = scene.volume.create_for(&name(CONTAINER), OWNER).unwrap();
        blob.append(b"another").unwrap();
        blob.seal().unwrap();
    };
    at_each_moment(&replace, &with);
}

#[test]
fn readers_and_listings_see_everything_at_each_moment() {
    let look = |scene: &Scene<MemoryVolume>| {
        scene.holds(&contents());
        // A name counts as taken in any form.
        for name in contents().keys() {
            let taken = scene.volume.create_for(&self::name(name), OWNER);
            assert!(matches!(taken, Err(VolumeError::Exists { .. })), "{name}");
        }
    };
    at_each_moment(&look, &contents());
}

/// (K3) Keys may change at any moment, also while a blob is being written that no pass sees yet: it stays readable,
/// and its key is dropped, too, once it was sealed anew.
#[test]
fn keys_change_while_blobs_are_written() {
    const NEW: &str = "points/a/b/z.1";
    let mut with = contents();
    with.insert(NEW.to_owned(), b"begun before the keys were changed".to_vec());
    for start in [plain(), outdated()] {
        for moment in 1..=charges(&start) {
            let scene = Scene::open(Arc::new(start.snapshot()));
            let begun: RefCell<Option<Box<dyn holdfast_volume::BlobWriter>>> = RefCell::default();
            let at = |charge: u64| {
                if charge == moment {
                    let mut blob = scene.volume.create_for(&name(NEW), OWNER).unwrap();
                    blob.append(&with[NEW]).unwrap();
                    *begun.borrow_mut() = Some(blob);
                    scene.retire_keys();
                }
            };
            let around = Around { meanwhile: Some(&at), ..Around::default() };
            let waits = |_: &usize| scene.conversion.step(&around).unwrap() == Converting::Waits;
            assert!((0..100).find(waits).is_some(), "it waits for what is being written");
            scene.holds(&contents());
            assert!(!scene.conversion.figures().done);
            assert_eq!(scene.keys.old().len(), 1, "all others are gone");
            assert_eq!(scene.conversion.step(&Around::default()).unwrap(), Converting::Waits);
            begun.into_inner().unwrap().seal().unwrap();
            scene.holds(&with);
            scene.convert();
            scene.holds(&with);
            assert!(scene.keys.old().is_empty() && scene.conversion.figures().done);
            Scene::open(Arc::clone(&scene.below)).holds(&with);
        }
    }
}

/// Stops and short steps at any moment cost nothing but time.
#[test]
fn steps_and_stops_at_each_moment_go_on() {
    for (start, form) in [(plain(), Form::Sealed), (outdated(), Form::Resealed)] {
        for moment in 1..=charges(&start) {
            let scene = Scene::open(Arc::new(start.snapshot()));
            let around = Around { stop_after: Some(moment), ..Around::default() };
            scene.conversion.step(&around).unwrap();
            scene.holds(&contents());
            let mut steps = 0;
            let short = || Around { spent_after: Some(1), ..Around::default() };
            while scene.conversion.step(&short()).unwrap() != Converting::Done {
                steps += 1;
                assert!(steps < 100);
            }
            scene.is_converted(&contents(), form);
        }
    }
}

/// (K3) While a blob cannot be read, plain blobs and old keys are still accepted.
#[test]
fn what_cannot_be_read_is_left_and_nothing_is_given_up() {
    let scene = Scene::open(Arc::new(outdated()));
    let below = Form::Sealed.of(&name(CONTAINER)).unwrap();
    let sound = scene.below.get(&below).unwrap();
    let mut rotten = sound.to_vec();
    rotten[50_000] ^= 1;
    scene.below.replace(&below, rotten);
    let old = scene.keys.old();
    for _ in 0..2 {
        assert_eq!(scene.conversion.step(&Around::default()).unwrap(), Converting::Left(1));
        let figures = scene.conversion.figures();
        assert!(figures.left == 1 && figures.why.unwrap().contains(CONTAINER) && !figures.done);
        assert_eq!(scene.keys.old(), old);
    }
    scene.below.replace(&below, sound);
    scene.convert();
    scene.is_converted(&contents(), Form::Resealed);

    let faulty = Arc::new(Faulty::new(plain()));
    let scene = Scene::open(Arc::clone(&faulty));
    // The first read is that of the table of keys.
    faulty.fail_next(OpKind::Read, 2, Fault::Io);
    assert_eq!(scene.conversion.step(&Around::default()).unwrap(), Converting::Left(1));
    assert!(read_table(&*faulty).unwrap().unwrap().accepts_plain());
    scene.holds(&contents());
    scene.convert();
    scene.is_converted(&contents(), Form::Sealed);
}

/// (K2) An undetected bad read does not replace a good form.
#[test]
fn what_reads_differently_is_not_replaced() {
    let faulty = Arc::new(Faulty::new(plain()));
    let scene = Scene::open(Arc::clone(&faulty));
    // The first read is that of the table of keys.
    faulty.fail_next(OpKind::Read, 2, Fault::Torn);
    let error = scene.conversion.step(&Around::default()).unwrap_err();
    assert!(matches!(error, ConvertError::Different { .. }), "{error}");
    scene.holds(&contents());
    assert!(scene.forms().iter().all(|form| *form == Form::Plain));
    scene.convert();
    scene.is_converted(&contents(), Form::Sealed);
}

/// Failed writes are reported, and retried by a later step.
#[test]
fn writes_that_fail_are_told() {
    for kind in [OpKind::Create, OpKind::Append, OpKind::Seal, OpKind::Remove] {
        let faulty = Arc::new(Faulty::new(outdated()));
        let scene = Scene::open(Arc::clone(&faulty));
        // The first writes are those of the table of keys.
        faulty.fail_next(kind, 3, Fault::Full);
        let around = Around::default();
        scene.conversion.step(&around).unwrap_err();
        assert_eq!(around.failed.borrow().len(), 1, "{kind:?}");
        scene.convert();
        scene.is_converted(&contents(), Form::Resealed);
    }
}

/// Speed of a conversion: `HOLDFAST_BENCH_DIR=FOLDER cargo test --release -p holdfast-sealing --lib -- --ignored
/// --nocapture speed_of_a_conversion`, on a real disk with 4 GiB free.
#[test]
#[ignore = "takes its time; its figures are for machines that do nothing else"]
fn speed_of_a_conversion() {
    const CONTAINERS: usize = 64;
    const CONTAINER_BYTES: usize = 32 << 20;
    let parent = std::env::var_os("HOLDFAST_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(parent).unwrap();
    let below = Arc::new(holdfast_volume::LocalVolume::open(folder.path()).unwrap());
    let bytes = noise(1, CONTAINER_BYTES);
    for number in 0..CONTAINERS {
        put(&*below, &format!("containers/0000000/{number:010}.data"), &bytes);
    }
    let (secret, id) = (secret(), RepositoryId::from_bytes([1; 16]));
    let slot = NewSlot::new(&secret, "a test");
    write_table(&*below, OpenKeys::create(id, &slot, true, 0, &SystemRandom).unwrap().table()).unwrap();
    let measure = |what: &str| {
        let scene = Scene::open(Arc::clone(&below));
        if what != "in the open" {
            scene.retire_keys();
        }
        let began = std::time::Instant::now();
        scene.convert();
        let mb = (CONTAINERS * CONTAINER_BYTES) as f64 / 1e6;
        println!("sealed anew what was {what}: {:.0} MB/s", mb / began.elapsed().as_secs_f64());
    };
    measure("in the open");
    measure("sealed with old data keys");
}
