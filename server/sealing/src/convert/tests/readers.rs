//! Readers that hold blobs open, or open them, while their forms change.

use std::sync::Weak;

use super::*;

/// A volume that keeps track of open blobs.
#[derive(Debug)]
struct Tracking(MemoryVolume, Mutex<Vec<(BlobName, Weak<Tracked>)>>);

#[derive(Debug)]
struct Tracked(Arc<dyn Blob>);

impl Tracking {
    /// Names of removed blobs that are still open: their space is not freed.
    fn held(&self) -> Vec<String> {
        let is_held =
            |(name, blob): &&(BlobName, Weak<Tracked>)| blob.strong_count() > 0 && self.0.get(name).is_none();
        self.1.lock().iter().filter(is_held).map(|(name, _)| name.to_string()).collect()
    }
}

impl Blob for Tracked {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.0.read_at(offset, buffer)
    }
}

impl Volume for Tracking {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let blob = Arc::new(Tracked(self.0.open(name)?));
        self.1.lock().push((name.clone(), Arc::downgrade(&blob)));
        Ok(blob)
    }

    fn handles_outlive_removal(&self) -> bool {
        true
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space to 0);
}

/// (K2) Readers with a blob open move to its new form, so that the space of the old one is freed; and may read on when
/// the blob is removed.
#[test]
fn readers_do_not_hold_what_was_removed() {
    for start in [plain(), outdated()] {
        let scene = Scene::open(Arc::new(Tracking(start.snapshot(), Mutex::default())));
        let open: Vec<_> = contents()
            .into_iter()
            .map(|(text, bytes)| (name(&text), bytes, scene.volume.open(&name(&text)).unwrap()))
            .collect();
        let reads = || {
            for (name, bytes, blob) in &open {
                assert!(blob.read_vec(name, 0, bytes.len()).unwrap() == *bytes, "{name}");
            }
        };
        let none_is_held = |_| assert_eq!(scene.below.held(), [""; 0]);
        let around = Around { meanwhile: Some(&none_is_held), ..Around::default() };
        while scene.conversion.step(&around).unwrap() != Converting::Done {}
        assert_eq!(scene.below.held(), [""; 0]);
        reads();
        // Once more, including blobs that were opened before the first conversion.
        scene.retire_keys();
        again(&scene).convert();
        assert_eq!(scene.below.held(), [""; 0]);
        reads();
        for (name, ..) in &open {
            scene.volume.remove(name).unwrap();
        }
        reads();
        drop(open);
        assert_eq!(scene.below.held(), [""; 0]);
    }
}

/// Starts another conversion.
fn again(scene: &Scene<Tracking>) -> Scene<Tracking> {
    let conversion = Conversion::new(scene.volume.clone(), Arc::clone(&scene.keys), folders());
    let (below, keys, volume) = (Arc::clone(&scene.below), Arc::clone(&scene.keys), scene.volume.clone());
    Scene { below, keys, volume, conversion }
}

/// A form opened while it is being removed is not held open either.
#[test]
fn what_is_opened_meanwhile_is_not_held() {
    let scene = Scene::open(Arc::new(Tracking(plain().snapshot(), Mutex::default())));
    let open = RefCell::new(Vec::new());
    let opens = |_| {
        open.borrow_mut().push(scene.volume.open(&name(CONTAINER)).unwrap());
        assert_eq!(scene.below.held(), [""; 0]);
    };
    let around = Around { meanwhile: Some(&opens), ..Around::default() };
    while scene.conversion.step(&around).unwrap() != Converting::Done {}
    assert!(open.borrow().len() > 3);
    assert_eq!(scene.below.held(), [""; 0]);
    for blob in &*open.borrow() {
        assert!(
            blob.read_vec(&name(CONTAINER), 0, contents()[CONTAINER].len()).unwrap() == contents()[CONTAINER]
        );
    }
}

/// Written bytes are counted before the reservation is released.
#[test]
fn what_is_written_is_counted_before_the_room_goes_back() {
    #[derive(Default)]
    struct Counts<'a>(Around<'a>, Arc<Mutex<Vec<(u64, u64)>>>);
    struct Counted(Arc<Mutex<Vec<(u64, u64)>>>, u64);

    impl Room for Counted {
        fn wrote(&mut self, bytes: u64) {
            self.1 = bytes;
        }

        fn sealed(self: Box<Self>, bytes: u64) {
            self.0.lock().push((self.1, bytes));
        }
    }

    impl Surroundings for Counts<'_> {
        fn owner(&self, name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Owner, Cause> {
            self.0.owner(name, blob)
        }

        fn room(&self, _: u64) -> Result<Box<dyn Room>, Cause> {
            Ok(Box::new(Counted(Arc::clone(&self.1), 0)))
        }

        fn write_failed(&self, error: &VolumeError) {
            self.0.write_failed(error);
        }

        fn removed_so_far(&self) -> Result<u64, Cause> {
            self.0.removed_so_far()
        }

        fn lie_elsewhere(&self, mark: u64) -> Result<u64, Cause> {
            self.0.lie_elsewhere(mark)
        }

        fn lies_elsewhere(&self, below: &BlobName) -> Result<bool, Cause> {
            self.0.lies_elsewhere(below)
        }

        fn charge(&self, _: u64, _: u64) {}

        fn is_spent(&self) -> bool {
            false
        }

        fn must_stop(&self) -> bool {
            false
        }
    }

    let scene = Scene::open(Arc::new(plain().snapshot()));
    let around = Counts::default();
    while scene.conversion.step(&around).unwrap() != Converting::Done {}
    let mut wanted: Vec<_> =
        contents().values().map(|bytes| (bytes.len() as u64, bytes.len() as u64)).collect();
    let mut counted = around.1.lock().clone();
    wanted.sort_unstable();
    counted.sort_unstable();
    assert_eq!(counted, wanted);
}

/// A volume whose handles end when their blob is removed, as on S3.
#[derive(Debug)]
struct Brief(MemoryVolume);

#[derive(Debug)]
struct BriefBlob(MemoryVolume, BlobName, u64);

impl Blob for BriefBlob {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.2
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.0.open(&self.1)?.read_at(offset, buffer)
    }
}

impl Volume for Brief {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let len = self.0.open(name)?.len();
        Ok(Arc::new(BriefBlob(self.0.clone(), name.clone(), len)))
    }

    fn handles_outlive_removal(&self) -> bool {
        false
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space to 0);
}

#[test]
fn handles_go_on_where_a_volume_ends_them() {
    for start in [plain(), outdated()] {
        let scene = Scene::open(Arc::new(Brief(start.snapshot())));
        let blob = scene.volume.open(&name(CONTAINER)).unwrap();
        scene.convert();
        let read = blob.read_vec(&name(CONTAINER), 5, 60_000).unwrap();
        assert!(read == contents()[CONTAINER][5..60_005]);
        scene.volume.remove(&name(CONTAINER)).unwrap();
        let gone = blob.read_vec(&name(CONTAINER), 5, 100).unwrap_err();
        assert!(matches!(gone, VolumeError::NotFound { .. }), "{gone}");
    }
}

/// Removes the plain form, after its sealed form was made, right before a reader looks for it.
#[derive(Debug)]
struct Racing(MemoryVolume, Moves, BlobName);

/// A step of the conversion between the two lookups of a reader.
type Moves = Mutex<Option<(Arc<crate::volume::Moves>, BlobName, Vec<u8>)>>;

impl Volume for Racing {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if *name == self.2
            && let Some((moves, sealed, bytes)) = self.1.lock().take()
        {
            self.0.replace(&sealed, bytes);
            moves.moved();
            self.0.remove(&self.2).unwrap();
        }
        self.0.open(name)
    }

    fn handles_outlive_removal(&self) -> bool {
        true
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space to 0);
}

/// (K2) A blob becomes sealed after a reader looked for its sealed form, and before it looks for the plain one.
#[test]
fn a_blob_that_moves_while_it_is_looked_for_is_found() {
    let start = plain();
    let scene = Scene::open(Arc::new(Racing(start.clone(), Mutex::default(), name(CONTAINER))));
    let sealed = Form::Sealed.of(&name(CONTAINER)).unwrap();
    let mut writer = scene.volume.writer(&name(CONTAINER), Form::Sealed, OWNER).unwrap();
    writer.append(&contents()[CONTAINER]).unwrap();
    writer.seal().unwrap();
    let bytes = start.get(&sealed).unwrap().to_vec();
    start.remove(&sealed).unwrap();
    *scene.below.1.lock() = Some((Arc::clone(&scene.volume.moves), sealed, bytes));
    assert!(scene.read(CONTAINER).unwrap() == contents()[CONTAINER]);
    assert!(scene.below.1.lock().is_none(), "it moved");
}
