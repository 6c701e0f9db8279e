//! What readers hold open while blobs get other forms.

use std::sync::Weak;

use super::*;

/// Knows what is open.
#[derive(Debug)]
struct Tracking(MemoryVolume, Mutex<Vec<(BlobName, Weak<Tracked>)>>);

#[derive(Debug)]
struct Tracked(Arc<dyn Blob>);

impl Tracking {
    /// What is open that was removed: its room is not free.
    fn held(&self) -> Vec<String> {
        let is_held =
            |(name, blob): &&(BlobName, Weak<Tracked>)| blob.strong_count() > 0 && self.0.get(name).is_none();
        self.1.lock().iter().filter(is_held).map(|(name, _)| name.to_string()).collect()
    }
}

impl Blob for Tracked {
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

/// (K2) Whoever has a blob open goes on in its new form, so that the room of the old one is free; and may go on when the blob
/// is removed.
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
        // Again, and those that are open since the time before the first.
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

/// With another pass.
fn again(scene: &Scene<Tracking>) -> Scene<Tracking> {
    let conversion = Conversion::new(scene.volume.clone(), Arc::clone(&scene.keys), folders());
    let (below, keys, volume) = (Arc::clone(&scene.below), Arc::clone(&scene.keys), scene.volume.clone());
    Scene { below, keys, volume, conversion }
}

/// What is opened while its form is removed is not held either.
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

/// What is promised is taken note of as it is written.
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
