use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use proptest::prelude::*;

use super::*;
use crate::format::recipe::{ExtentEntry, ExtentNode, PieceRef};

#[derive(Debug, Default, Clone)]
struct Nodes(HashMap<Fingerprint, Bytes>);

impl NodeSink for Nodes {
    type Error = Infallible;
    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, Infallible> {
        let fingerprint = Fingerprint::of(&node);
        self.0.insert(fingerprint, node.into());
        Ok(fingerprint)
    }
}

impl NodeSource for Nodes {
    type Error = String;
    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, String> {
        self.0.get(fingerprint).cloned().ok_or_else(|| format!("{fingerprint} is missing"))
    }
}

fn entry(nodes: &mut Nodes, size: u64, index: u64) -> ExtentEntry {
    let bytes = extent_len(size, index);
    let piece = PieceRef { fingerprint: Fingerprint::of(&index.to_le_bytes()), bytes: bytes.min(1000) };
    let rest = PieceRef { fingerprint: Fingerprint::ZERO, bytes: bytes - piece.bytes };
    let pieces = if rest.bytes == 0 { vec![piece] } else { vec![piece, rest] };
    let node = ExtentNode::new(bytes, pieces).unwrap();
    let fingerprint = nodes.put(node.encode()).unwrap();
    ExtentEntry { node: fingerprint, digest: piece.fingerprint, data_bytes: node.data_bytes() }
}

fn build(size: u64, data: &BTreeMap<u64, ()>, order: impl Iterator<Item = u64>) -> (Nodes, Fingerprint) {
    let mut nodes = Nodes::default();
    let mut builder = TreeBuilder::new(size);
    for index in order {
        let entry =
            if data.contains_key(&index) { entry(&mut nodes, size, index) } else { ExtentEntry::ZERO };
        builder.set(index, entry, &mut nodes).unwrap();
    }
    let root = builder.finish(&mut nodes).unwrap();
    (nodes, root)
}

fn size_of(extents: u64, short: u64) -> u64 {
    (extents * u64::from(EXTENT_BYTES)).saturating_sub(short)
}

#[test]
fn a_lost_upper_page_loses_only_what_it_describes() {
    // Three levels: two upper pages below the root, 1,024 pages each.
    let per_upper = (crate::format::recipe::PAGE_EXTENTS * crate::format::recipe::PAGE_CHILDREN) as u64;
    let size = size_of(per_upper + 10, 0);
    let data = BTreeMap::from([(3, ()), (per_upper + 1, ())]);
    let (nodes, root) = build(size, &data, 0..per_upper + 10);
    let tree = TreeReader::open(nodes.clone(), root, size).unwrap();
    let second = tree.extent(per_upper + 1).unwrap();
    let root_page = crate::format::recipe::UpperPage::decode(&nodes.0[&root]).unwrap();
    let lost = root_page.children[0];
    let mut damaged = nodes.clone();
    damaged.0.remove(&lost);

    assert!(TreeReader::open(damaged.clone(), root, size).is_err());
    let goes_on = |error: &WalkError<String>| Some(error.to_string());
    let tree = TreeReader::open_past(damaged.clone(), root, size, goes_on).unwrap();
    for index in [0, 3, per_upper - 1] {
        let error = tree.extent(index).unwrap_err();
        assert!(error.to_string().contains(&lost.to_string()), "extent {index}: {error}");
    }
    assert_eq!(tree.zero_until(0), 0, "it may hold data");
    assert_eq!(tree.extent(per_upper + 1).unwrap(), second);
    assert_eq!(tree.extent(per_upper).unwrap(), None);
    // Nothing describes the disk without its root.
    damaged.0.remove(&root);
    assert!(TreeReader::open_past(damaged, root, size, goes_on).is_err());
}

#[test]
fn empty_and_all_zero_disks_need_no_node() {
    for extents in [0, 1, 513, 600_000] {
        let (nodes, root) = build(size_of(extents, 0), &BTreeMap::new(), 0..extents);
        assert!(root.is_zero() && nodes.0.is_empty());
        let reader = TreeReader::open(nodes, root, size_of(extents, 0)).unwrap();
        assert_eq!(reader.extent(extents.saturating_sub(1)).unwrap(), None);
    }
}

#[test]
fn a_disk_of_three_levels_is_walked() {
    // 1,024 × 512 extents fill one upper page (2 TiB); a few more make a third level.
    let extents = 1024 * 512 + 700;
    let data: BTreeMap<u64, ()> =
        [0, 511, 512, 1024 * 512 - 1, 1024 * 512, extents - 1].map(|i| (i, ())).into();
    let size = size_of(extents, 5);
    let (nodes, root) = build(size, &data, 0..extents);
    let reader = TreeReader::open(nodes, root, size).unwrap();
    for (&index, ()) in &data {
        let node = reader.extent(index).unwrap().unwrap();
        assert_eq!(node.pieces()[0].fingerprint, Fingerprint::of(&index.to_le_bytes()));
    }
    assert_eq!(reader.extent(77).unwrap(), None);
}

#[test]
fn what_is_wrong_is_named() {
    let mut nodes = Nodes::default();
    let mut builder = TreeBuilder::new(size_of(10, 0));
    for index in [0, 1, 5] {
        builder.set(index, ExtentEntry::ZERO, &mut nodes).unwrap();
    }
    assert!(matches!(
        builder.set(10, ExtentEntry::ZERO, &mut nodes),
        Err(BuildError::PastEnd { index: 10, .. })
    ));
    assert!(matches!(builder.set(5, ExtentEntry::ZERO, &mut nodes), Err(BuildError::Twice { index: 5 })));
    assert_eq!(builder.accepted_ranges(), [(0, 2), (5, 1)]);
    assert!(matches!(builder.finish(&mut nodes), Err(BuildError::Incomplete { missing: 7, first: 2 })));
}

#[test]
fn a_tree_of_another_size_is_refused() {
    let data: BTreeMap<u64, ()> = (0..600).map(|i| (i, ())).collect();
    let (nodes, root) = build(size_of(600, 0), &data, 0..600);
    assert!(TreeReader::open(nodes.clone(), root, size_of(1200, 0)).is_err(), "too few children");
    let reader = TreeReader::open(nodes, root, size_of(600, 9)).unwrap();
    assert!(reader.extent(599).is_err(), "the last extent is longer than the disk");
}

proptest! {
    #[test]
    fn order_of_arrival_does_not_matter(extents in 1u64..1500, picks in proptest::collection::vec(0u64..1500, 0..40),
                                        seed: u64) {
        let data: BTreeMap<u64, ()> = picks.into_iter().filter(|i| *i < extents).map(|i| (i, ())).collect();
        let mut order: Vec<u64> = (0..extents).collect();
        order.sort_by_key(|i| Fingerprint::of(&(i ^ seed).to_le_bytes()));
        let (_, straight) = build(size_of(extents, 3), &data, 0..extents);
        let (nodes, mixed) = build(size_of(extents, 3), &data, order.into_iter());
        prop_assert_eq!(straight, mixed);
        let reader = TreeReader::open(nodes, mixed, size_of(extents, 3)).unwrap();
        for index in 0..extents {
            prop_assert_eq!(reader.extent(index).unwrap().is_some(), data.contains_key(&index));
        }
    }
}

#[test]
fn ranges_cost_the_same_however_long_they_are() {
    // The largest disk there may be: 2²⁸ extents, 2¹⁹ pages.
    let size = holdfast_proto::limits::DISK_MAX_BYTES;
    let extents = holdfast_proto::limits::extent_count(size);
    let mut nodes = Nodes::default();
    let mut builder = TreeBuilder::new(size);
    let data = [5, 512 * 1024 * 100 + 3, extents - 1];
    let mut from = 0;
    for index in data {
        builder.set_zero(from..index, &mut nodes).unwrap();
        let entry = entry(&mut nodes, size, index);
        builder.set(index, entry, &mut nodes).unwrap();
        from = index + 1;
    }
    assert_eq!(builder.accepted_ranges(), [(0, extents)]);
    let root = builder.finish(&mut nodes).unwrap();
    // A page and the upper pages above it for each, and one root.
    assert_eq!(nodes.0.len(), data.len() * 3 + 1);
    let reader = TreeReader::open(nodes, root, size).unwrap();
    assert!(data.iter().all(|&index| reader.extent(index).unwrap().is_some()));
    assert_eq!(reader.extent(extents / 2).unwrap(), None);
}

#[test]
fn one_extent_a_page_costs_no_page_each() {
    let size = holdfast_proto::limits::DISK_MAX_BYTES;
    let mut nodes = Nodes::default();
    let mut builder = TreeBuilder::new(size);
    let mut refused = None;
    for page in 0..1 << 19 {
        if let Err(error) = builder.set_zero(page * 512..page * 512 + 1, &mut nodes) {
            refused = Some((page, error));
            break;
        }
    }
    assert!(matches!(refused, Some((65_536, BuildError::Scattered))), "{refused:?}");
}

proptest! {
    #[test]
    fn behaves_like_a_set(steps in proptest::collection::vec((0u64..200, 0u64..20), 0..60)) {
        let mut intervals = Intervals::default();
        let mut model = BTreeSet::new();
        for (start, len) in steps {
            let range = start..start + len;
            let shared = range.clone().find(|number| model.contains(number));
            prop_assert_eq!(intervals.overlap(&range).is_some(), shared.is_some());
            prop_assert_eq!(intervals.covers(&range), range.clone().all(|number| model.contains(&number)));
            if shared.is_none() {
                intervals.insert(range.clone());
                model.extend(range);
            }
            prop_assert_eq!(intervals.count(), model.len() as u64);
            let listed: Vec<u64> = intervals.iter().flatten().collect();
            prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
            prop_assert!(intervals.contains(start) == model.contains(&start));
            // Adjacent ranges are one.
            let ranges: Vec<_> = intervals.iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
