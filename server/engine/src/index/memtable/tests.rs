use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn entry(prefix: u64, suffix: u32, location: u64) -> Entry {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&prefix.to_be_bytes());
    key[8..].copy_from_slice(&suffix.to_be_bytes());
    Entry { key, location: location.into() }
}

fn all(table: &Memtable) -> Vec<Entry> {
    let mut entries = Vec::new();
    table
        .for_each(|entry| {
            entries.push(*entry);
            Ok(())
        })
        .unwrap();
    entries
}

#[test]
fn it_fills_to_seven_eighths_of_its_bytes() {
    let bytes = 4 << 20;
    let table = Memtable::new(1, bytes).unwrap();
    let mut inserted = 0;
    let mut state = 1u64;
    loop {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        if table.insert(&entry(state, 0, inserted)).is_err() {
            break;
        }
        inserted += 1;
    }
    assert_eq!(table.len(), inserted);
    assert!(table.ram_bytes() <= bytes as u64);
    assert!(inserted * 20 > bytes as u64 * 8 / 10, "only {inserted} entries fit {bytes} bytes");
}

proptest! {
    #[test]
    fn keeps_a_sorted_set(items in proptest::collection::vec((0..40u64, 0..3u32, 0..5u64, any::<bool>()), 0..300)) {
        let table = Memtable::new(1, 1 << 20).unwrap();
        let mut model = BTreeSet::new();
        for (prefix, suffix, location, spread) in items {
            let prefix = if spread { prefix.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { u64::MAX - prefix };
            let entry = entry(prefix, suffix, location);
            if table.insert(&entry).is_err() {
                continue;
            }
            model.insert(entry.order());
        }
        let listed: Vec<_> = all(&table).iter().map(Entry::order).collect();
        prop_assert_eq!(table.len(), model.len() as u64);
        prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
        for (prefix, suffix, _) in listed {
            let key = IndexKey(entry(prefix, suffix, 0).key);
            let mut found = Vec::new();
            table.locations(&key, &mut found);
            let wanted = model.iter().filter(|e| (e.0, e.1) == (prefix, suffix)).map(|e| !e.2);
            prop_assert_eq!(found, wanted.collect::<Vec<_>>());
        }
    }
}
