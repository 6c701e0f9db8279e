//! Copying against a model: what was live is readable from the new containers, byte for byte, and nothing else is in
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_proto::region::Encoder;
use holdfast_types::ids::{ContainerClass, NamespaceId};
use holdfast_volume::testing::FaultyVolume;
use holdfast_volume::{MemoryVolume, Timer};
use proptest::prelude::*;

use super::*;
use crate::container::RecentDirectories;
use crate::engine::Engine;
use crate::reclaim::live::SlotSet;
use crate::tests::agent::{backup, restore};
use crate::tests::{Bench, lines, namespace, noise};

/// Chunks of one container, by region: their bytes, and whether they are live.
type Sketch = Vec<Vec<(Vec<u8>, bool)>>;
type Model = BTreeMap<Fingerprint, Vec<u8>>;

fn write(engine: &Engine, class: ContainerClass, sketch: &Sketch) -> Victim {
    let core = engine.parts().0;
    let mut output = Rewriter::new(core, namespace(engine), class, Purpose::Data);
    let mut encoder = Encoder::new(1).unwrap();
    let mut live = SlotSet::new(sketch.iter().map(|region| u32::try_from(region.len()).unwrap()).sum());
    let mut number = 0;
    for region in sketch {
        let chunks: Vec<_> =
            region.iter().map(|(bytes, _)| (Fingerprint::of(bytes), bytes.as_slice())).collect();
        output.append(&VerifiedRegion::encode(&chunks, &mut encoder).unwrap()).unwrap();
        for (_, is_live) in region {
            if *is_live {
                live.insert(number);
            }
            number += 1;
        }
    }
    let sealed = output.seal().unwrap().unwrap();
    core.catalog.add_containers(&[record_of(&sealed)]).unwrap();
    Victim { container: core.store.containers.get(sealed.id, class).unwrap(), live }
}

fn live_of(sketches: &[Sketch]) -> Model {
    let chunks = sketches.iter().flatten().flatten();
    chunks.filter(|(_, live)| *live).map(|(bytes, _)| (Fingerprint::of(bytes), bytes.clone())).collect()
}

/// Reads all chunks in these containers, each once.
fn read(engine: &Engine, containers: &[ContainerRecord]) -> Model {
    let core = engine.parts().0;
    let mut found = Model::new();
    for record in containers {
        let open = core.store.containers.get(record.id, record.class).unwrap();
        assert_eq!(open.stored_bytes(), record.stored_bytes);
        assert_eq!(open.directory().chunk_count() as u64, record.chunk_count);
        for (fingerprint, region, slot) in open.directory().iter() {
            let plain = open.read_region(region).unwrap().decode_checked(&open).unwrap();
            let chunk = open.directory().chunk(region, slot).unwrap();
            let bytes = plain.slice(open.chunk_range(region, &chunk, plain.len()).unwrap());
            assert_eq!(found.insert(fingerprint, bytes.to_vec()), None, "{fingerprint} is there twice");
        }
    }
    found
}

fn assert_indexed(engine: &Engine, containers: &[ContainerRecord], model: &Model) {
    let core = engine.parts().0;
    let domain = core.store.domain(namespace(engine));
    for fingerprint in model.keys() {
        let mut recent = RecentDirectories::default();
        let class = containers.first().unwrap().class;
        let found = core.store.find(&domain, class, fingerprint, &mut recent).unwrap().unwrap();
        assert!(
            containers.iter().any(|new| new.id == found.location.container),
            "the newest copy is found first"
        );
    }
}

fn copy(engine: &Engine, victims: &[Victim], options: &RepackOptions) -> Copied {
    copy_forward(engine.parts().0, victims, options, &Control::default())
}

fn engine() -> (Bench, Engine) {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    (bench, engine)
}

/// Sizes of chunks with whether they are live, by container and region. Every chunk has bytes of its own.
fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let chunk =
        (prop_oneof![1..3000usize, 8000..65_537usize], prop_oneof![3 => Just(true), 1 => Just(false)]);
    let region = (prop::collection::vec(chunk, 1..9), prop_oneof![Just(true), Just(false)]);
    prop::collection::vec(prop::collection::vec(region, 1..6), 1..5).prop_map(|containers| {
        let mut seed = 0;
        let mut chunk = |len: usize, live| {
            seed += 1;
            let text = seed % 2 == 0;
            let bytes = if text {
                format!("chunk {seed} ").into_bytes().into_iter().cycle().take(len).collect()
            } else {
                noise(seed, len)
            };
            (bytes, live)
        };
        let mut region = |(chunks, whole): (Vec<(usize, bool)>, bool)| {
            let mut plain = 0;
            let fits = |(len, _): &(usize, bool)| {
                plain += len;
                plain <= REGION_PLAIN_MAX_BYTES as usize
            };
            chunks.into_iter().take_while(fits).map(|(len, live)| chunk(len, live || whole)).collect()
        };
        containers.into_iter().map(|regions| regions.into_iter().map(&mut region).collect()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_was_live_is_in_the_new_containers_and_nothing_else(
        sketches in sketches(), recipes in any::<bool>(), level in prop::option::of(3..6i32), threads in 0..3usize,
        shuffle in any::<Option<u64>>(),
    ) {
        let (_bench, engine) = engine();
        let class = if recipes { ContainerClass::Recipe } else { ContainerClass::Data };
        let victims: Vec<_> = sketches.iter().map(|sketch| write(&engine, class, sketch)).collect();
        let order = shuffle.map(|seed| shuffled(&victims, seed));
        let copied = copy(&engine, &victims, &RepackOptions { level, threads, order, run: None });
        prop_assert!(copied.ended.is_none() && copied.damaged.is_empty());
        let model = live_of(&sketches);
        prop_assert_eq!(&read(&engine, &copied.containers), &model);
        prop_assert_eq!(copied.complete.len(), victims.len());
        prop_assert!(copied.containers.len() <= 1, "all of it fits into one");
        if !model.is_empty() {
            assert_indexed(&engine, &copied.containers, &model);
        }
    }
}

/// Reads some of the live chunks, in an order that only depends on the seed.
fn shuffled(victims: &[Victim], seed: u64) -> ReadOrder {
    let mut all: Vec<_> = (0..victims.len())
        .flat_map(|victim| victims[victim].live.iter().map(move |number| (victim, number)))
        .collect();
    all.sort_by_key(|(victim, number)| noise(seed ^ ((*victim as u64) << 32) ^ u64::from(*number), 8));
    all.truncate(all.len() * 2 / 3);
    let mut order = ReadOrder::new(victims);
    for (victim, number) in all {
        order.reads(victim, number);
    }
    order
}

fn region(seed: u64, chunks: &[(usize, bool)]) -> Vec<(Vec<u8>, bool)> {
    (0..).zip(chunks).map(|(number, (len, live))| (noise(seed * 1000 + number, *len), *live)).collect()
}

#[test]
fn regions_that_are_live_go_over_as_they_are_and_small_ones_are_joined() {
    let (_bench, engine) = engine();
    let text = b"all work and no play ".repeat(10_000);
    let sketch = vec![
        vec![(text[..60_000].to_vec(), true), (text[60_000..120_000].to_vec(), true)],
        region(1, &[(60_000, true), (60_000, false)]),
        region(2, &[(60_000, true), (60_000, true)]),
        region(3, &[(100, true)]),
    ];
    let victim = write(&engine, ContainerClass::Data, &sketch);
    let copied = copy(&engine, std::slice::from_ref(&victim), &RepackOptions::default());
    assert_eq!((copied.verbatim_regions, copied.encoded_regions), (2, 1));
    let new = engine.parts().0.store.containers.get(copied.containers[0].id, ContainerClass::Data).unwrap();
    for (old, now) in [(0, 0), (2, 1)] {
        let (old, now) = (victim.container.read_region(old).unwrap(), new.read_region(now).unwrap());
        assert_eq!((old.codec, old.payload), (now.codec, now.payload), "the same bytes");
    }
    assert_eq!(new.directory().region(2).unwrap().chunk_count, 2, "what is left of two regions is one");
}

#[test]
fn compressing_anew_makes_nothing_larger() {
    let (_bench, engine) = engine();
    let words = lines(7, 5000);
    let sketch = vec![
        vec![(words[..65_000].to_vec(), true), (words[65_000..130_000].to_vec(), true)],
        region(1, &[(65_000, true), (65_000, true)]),
    ];
    let victim = write(&engine, ContainerClass::Data, &sketch);
    let options = RepackOptions { level: Some(12), threads: 2, ..RepackOptions::default() };
    let copied = copy(&engine, std::slice::from_ref(&victim), &options);
    let (before, after) = (victim.container.stored_bytes(), copied.containers[0].stored_bytes);
    assert!(after < before, "{after} bytes of {before}");
    assert_eq!(read(&engine, &copied.containers), live_of(&[sketch]));
    let again = engine.parts().0.store.containers.get(copied.containers[0].id, ContainerClass::Data).unwrap();
    let live = SlotSet::full(4);
    let options = RepackOptions { level: Some(1), ..RepackOptions::default() };
    let copied = copy(&engine, &[Victim { container: again, live }], &options);
    assert_eq!(copied.containers[0].stored_bytes, after, "a lower level changes nothing");
}

/// A damaged region costs its container the right to go, and no other container anything.
#[test]
fn a_container_with_a_damaged_region_stays_and_the_damage_is_noted() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let sketches: Vec<Sketch> = (0..3)
        .map(|n| (0..3).map(|r| region(n * 3 + r, &[(50_000, true), (50_000, r != 2)])).collect())
        .collect();
    let victims: Vec<_> =
        sketches.iter().map(|sketch| write(&engine, ContainerClass::Data, sketch)).collect();
    let spoilt = &victims[1].container;
    let mut bytes = volume.get(spoilt.name()).unwrap().to_vec();
    // In the second region, and in the third, of which only a part is live.
    for at in [150_000, 250_000] {
        bytes[at] ^= 1;
    }
    volume.replace(spoilt.name(), bytes);
    // Opened anew, as its bytes are others now.
    engine.parts().0.store.containers.remove(spoilt.id());
    let container = engine.parts().0.store.containers.get(spoilt.id(), ContainerClass::Data).unwrap();
    let victims =
        [victims[0].clone(), Victim { container, live: victims[1].live.clone() }, victims[2].clone()];
    let copied = copy(&engine, &victims, &RepackOptions::default());
    assert!(copied.ended.is_none(), "{:?}", copied.ended);
    assert_eq!(copied.complete, [victims[0].container.id(), victims[2].container.id()]);
    let id = victims[1].container.id();
    assert_eq!(copied.damaged, [(id, 1), (id, 2)]);
    let noted: Vec<_> =
        engine.parts().0.store.known_damage(id).into_iter().map(|(region, _)| region).collect();
    assert_eq!(noted, [Some(1), Some(2)]);
    let mut model = live_of(&sketches);
    for (bytes, _) in sketches[1][1..].iter().flatten() {
        model.remove(&Fingerprint::of(bytes));
    }
    assert_eq!(read(&engine, &copied.containers), model);
}

/// Victims that were copied before the disk was full are deleted, which makes room for the next.
#[test]
fn a_full_disk_ends_it_and_what_was_copied_counts() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let sketches: Vec<Sketch> =
        (0..4).map(|n| (0..8).map(|r| region(n * 8 + r, &[(65_000, true); 4])).collect()).collect();
    let victims: Vec<_> =
        sketches.iter().map(|sketch| write(&engine, ContainerClass::Data, sketch)).collect();
    let core = engine.parts().0;
    let used: u64 = victims.iter().map(|victim| victim.container.stored_bytes()).sum();
    volume.limit_capacity(used + used / 2 + (600 << 10));
    let copied = copy(&engine, &victims, &RepackOptions::default());
    assert!(matches!(copied.ended, Some(EngineError::Full(_))), "{:?}", copied.ended);
    assert!((1..4).contains(&copied.complete.len()), "{:?}", copied.complete);
    let model = live_of(&sketches);
    let found = read(&engine, &copied.containers);
    assert!(found.iter().all(|(fingerprint, bytes)| model.get(fingerprint) == Some(bytes)));
    for (victim, sketch) in victims.iter().zip(&sketches) {
        if copied.complete.contains(&victim.container.id()) {
            let live = live_of(std::slice::from_ref(sketch));
            assert!(live.keys().all(|fingerprint| found.contains_key(fingerprint)));
        }
    }
    assert_eq!(
        core.ledger.room().unwrap().unwrap().promised_bytes,
        0,
        "nothing is kept for what was not written"
    );
    assert!(core.check_writable().is_ok(), "a full disk stops nothing else");
    // Without what is complete there is room for the rest.
    volume.limit_capacity(used * 3);
    let rest: Vec<_> =
        victims.into_iter().filter(|victim| !copied.complete.contains(&victim.container.id())).collect();
    let again = copy(&engine, &rest, &RepackOptions::default());
    assert_eq!((again.ended.is_none(), again.complete.len()), (true, rest.len()));
}

/// Says that time passes, and stops the work after so many looks at it.
#[derive(Debug, Default)]
struct StopAt {
    looks: AtomicU64,
    at: u64,
    control: std::sync::OnceLock<std::sync::Weak<Control>>,
}

impl Timer for StopAt {
    fn now(&self) -> Duration {
        if self.looks.fetch_add(1, Ordering::Relaxed) == self.at
            && let Some(control) = self.control.get().and_then(std::sync::Weak::upgrade)
        {
            control.stop();
        }
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

/// Stopped between any two regions, and gone on with afterwards as a new round would.
#[test]
fn stopped_anywhere_it_goes_on_with_what_is_left() {
    for at in 0..30 {
        let (_bench, engine) = engine();
        let sketches: Vec<Sketch> = (0..3)
            .map(|n| (0..5).map(|r| region(n * 5 + r, &[(40_000, true), (30_000, r % 2 == 0)])).collect())
            .collect();
        let victims: Vec<_> =
            sketches.iter().map(|sketch| write(&engine, ContainerClass::Data, sketch)).collect();
        let timer = Arc::new(StopAt { at, ..StopAt::default() });
        let control = Arc::new(Control::new(Arc::<StopAt>::clone(&timer)));
        timer.control.set(Arc::downgrade(&control)).unwrap();
        let copied = copy_forward(engine.parts().0, &victims, &RepackOptions::default(), &control);
        assert!(matches!(copied.ended, None | Some(EngineError::Stopped)), "{:?}", copied.ended);
        let mut found = read(&engine, &copied.containers);
        let rest: Vec<_> = victims
            .iter()
            .filter(|victim| !copied.complete.contains(&victim.container.id()))
            .map(|victim| {
                let mut live = SlotSet::new(victim.live.chunks());
                for (number, (fingerprint, _, _)) in (0..).zip(victim.container.directory().iter()) {
                    if victim.live.contains(number) && !found.contains_key(&fingerprint) {
                        live.insert(number);
                    }
                }
                Victim { container: Arc::clone(&victim.container), live }
            })
            .collect();
        let again = copy(&engine, &rest, &RepackOptions::default());
        assert_eq!(again.complete.len(), rest.len());
        found.extend(read(&engine, &again.containers));
        assert_eq!(found, live_of(&sketches), "stopped at {at}");
    }
}

#[test]
fn a_wholly_dead_container_is_complete_without_being_read() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let victim = write(&engine, ContainerClass::Recipe, &vec![region(1, &[(500, false); 3])]);
    let before = volume.count(holdfast_volume::testing::OpKind::Read);
    let copied = copy(&engine, std::slice::from_ref(&victim), &RepackOptions::default());
    assert_eq!(copied.complete, [victim.container.id()]);
    assert!(copied.containers.is_empty());
    assert_eq!(volume.count(holdfast_volume::testing::OpKind::Read), before);
}

/// (A6) Chunks of two namespaces are never brought together.
#[test]
#[should_panic(expected = "victims of one namespace")]
fn victims_of_two_namespaces_are_refused() {
    let (_bench, engine) = engine();
    let core = engine.parts().0;
    let one = write(&engine, ContainerClass::Data, &vec![region(1, &[(500, true)])]);
    let other = NamespaceId::from_bytes([9; 16]);
    let mut output = Rewriter::new(core, other, ContainerClass::Data, Purpose::Data);
    let bytes = noise(5, 100);
    let chunks = [(Fingerprint::of(&bytes), bytes.as_slice())];
    output.append(&VerifiedRegion::encode(&chunks, &mut Encoder::new(1).unwrap()).unwrap()).unwrap();
    let id = output.seal().unwrap().unwrap().id;
    let container = core.store.containers.get(id, ContainerClass::Data).unwrap();
    copy(&engine, &[one, Victim { container, live: SlotSet::full(1) }], &RepackOptions::default());
}

#[test]
fn what_gains_is_replaced_once_and_what_does_not_is_remembered() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let (text, incompressible) = (lines(7, 100_000), noise(9, 3 << 20));
    let id = backup(&engine, "web", &[("root", &text)]).unwrap().backup_id;
    backup(&engine, "db", &[("root", &incompressible)]).unwrap();
    let core = engine.parts().0;
    let options = Squeeze { level: 12, made_before_ms: i64::MAX, threads: 1 };
    let control = Control::default();
    let replace = |_: &[Victim], copied: &Copied| -> Result<Vec<ContainerId>, EngineError> {
        core.catalog.add_containers(&copied.containers)?;
        core.catalog.condemn_containers(&copied.complete)?;
        Ok(copied.complete.clone())
    };
    let young = Squeeze { made_before_ms: 0, ..options };
    assert_eq!(squeeze(core, &young, &control, replace).unwrap(), Squeezed::default());
    let done = squeeze(core, &options, &control, replace).unwrap();
    assert_eq!((done.containers, done.kept), (1, 1), "{done:?}");
    assert!(done.bytes_after * 100 < done.bytes_before * 98, "{done:?}");
    assert_eq!(squeeze(core, &options, &control, replace).unwrap(), Squeezed::default(), "once");
    let lower = Squeeze { level: 9, ..options };
    assert_eq!(squeeze(core, &lower, &control, replace).unwrap(), Squeezed::default());
    assert_eq!(restore(&engine, &id, "root").unwrap(), text);
    let data = core.catalog.containers(None, 100).unwrap();
    assert!(data.iter().any(|row| row.class == ContainerClass::Recipe), "recipes stay as they are");
}
