use super::*;

fn made(keys: u64, entries_max: u64) -> (FilterSet, Vec<u32>) {
    let mut builder = FilterBuilder::new(entries_max);
    for n in 0..keys {
        builder.push(n << 20);
        builder.push(n << 20);
    }
    builder.finish()
}

#[test]
fn every_key_passes_and_few_others_do() {
    for keys in [1, 2, 3, 10, 1000, 50_000] {
        let (set, counts) = made(keys, keys);
        assert_eq!(counts.iter().map(|&n| u64::from(n)).sum::<u64>(), keys);
        assert!((0..keys).all(|n| set.contains(n << 20)));
        let passed = (0..20_000u64).filter(|n| set.contains(n << 20 | 1)).count();
        assert!(passed < 250, "{keys} keys: {passed} of 20,000 others pass");
    }
}

#[test]
fn large_runs_get_several_filters_of_bounded_size() {
    let keys = 3 * FILTER_KEYS as u64 / 2;
    let (set, counts) = made(keys, keys);
    assert_eq!(counts.len(), 2);
    assert!((0..keys).all(|n| set.contains(n << 20)));
    let per_key = set.ram_bytes() as f64 / keys as f64;
    assert!(per_key < 1.2, "{per_key} bytes a key");
}

#[test]
fn sections_round_trip_and_lies_are_refused() {
    let (set, counts) = made(1000, 1000);
    let section = set.encode(&counts);
    let again = FilterSet::decode(&section, 1).unwrap();
    assert!((0..1000).all(|n| again.contains(n << 20)));
    assert_eq!(again.encode(&counts), section);
    for count in [0, 2, u32::MAX] {
        assert!(FilterSet::decode(&section, count).is_err(), "{count} filters");
    }
    assert!(FilterSet::decode(&section[..section.len() - 1], 1).is_err());
    // Segment lengths and table length, each off by a little or a lot.
    for (offset, value) in
        [(16, 0u32), (16, 3), (16, 1 << 30), (20, 0), (20, 7), (20, u32::MAX), (24, 0), (24, u32::MAX)]
    {
        let mut lie = section.clone();
        lie[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        assert!(FilterSet::decode(&lie, 1).is_err(), "{value} at {offset}");
    }
}
