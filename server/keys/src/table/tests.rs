use holdfast_types::ids::{NamespaceId, RepositoryId};
use proptest::prelude::*;

use super::*;
use crate::id::Owner;
use crate::layout::DecodeError;
use crate::secret::testing::{Broken, Counting, hex};
use crate::secret::{SecretBytes, SystemRandom};
use crate::slots::{KdfCost, NewSlot, SLOTS_MAX, SlotError, SlotKind};

fn repository() -> RepositoryId {
    RepositoryId::from_bytes([1; 16])
}

fn owner(byte: u8) -> Owner {
    Owner::Namespace(NamespaceId::from_bytes([byte; 16]))
}

fn key_file(byte: u8) -> SlotSecret {
    SlotSecret::key_file(Secret::from_bytes(&[byte; 32]))
}

fn passphrase(text: &str) -> SlotSecret {
    SlotSecret::passphrase(SecretBytes::new(text.as_bytes().to_vec()))
}

/// The lowest cost of Argon2: these tests are not about it.
fn cheap<'a>(secret: &'a SlotSecret, label: &'a str) -> NewSlot<'a> {
    NewSlot { secret, label, cost: KdfCost::new(8, 1, 1).unwrap() }
}

/// Keys with one slot, the key file of 0x88.
fn created() -> OpenKeys {
    OpenKeys::create(repository(), &cheap(&key_file(0x88), "disk"), true, 1000, &SystemRandom).unwrap()
}

/// Reads the table as another process would.
fn reread(keys: &OpenKeys) -> KeyTable {
    KeyTable::decode(&keys.table().encode()).unwrap()
}

fn unlocked(keys: &OpenKeys) -> OpenKeys {
    reread(keys).unlock(&key_file(0x88)).unwrap().0
}

/// Fills in a valid checksum, as an attacker would.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 8);
    let crc = crate::layout::crc64(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Computed by another implementation (Python's `cryptography`) from the same inputs.
#[test]
fn golden_table() {
    let random = Counting::from(0);
    let first = key_file(0x88);
    let mut keys = OpenKeys::create(repository(), &cheap(&first, "disk"), false, 1000, &random).unwrap();
    keys.add_data_key(owner(2), 2000, &random).unwrap();
    assert_eq!(hex(&keys.table().encode()), GOLDEN);
    let read = reread(&keys);
    assert_eq!(read, *keys.table());
    assert_eq!((read.sequence(), read.changed_ms(), read.accepts_plain()), (2, 2000, false));
}

const GOLDEN: &str = "48464b540100010001000000020000000200000000000000d00700000000000001010101010101010101010101010101ca864cbe595540876648a9a52f1282200100000001040000e803000000000000000000000000000000000000000000006469736b000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3ff00ce53c15eb067ba3dc4a5af3f9229ca212af364fa1c6f5431156137f53fe9e020c8a90385eadcf7acd144afc87f1a11c9d3b6dbca85674d09f819cb61998a2020202020202020202020202020202020100000001000000d007000000000000606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f6a8c3e2fd91fbedd30f0b5ce4d5e752ca1180dd25bef4a44bf4df6b981e08c151ac5de1ae1016c834d59800742eac2cb85e1ff4e51efd2b6b3e41416d7f4fd8a6f88b3eff350b25fff39d2435cc94509bd4ecf3c1c863738";

#[test]
fn a_table_gives_its_keys_to_anyone_who_has_a_secret() {
    let mut keys = created();
    let first = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let second = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let own = keys.add_data_key(Owner::Repository, 0, &SystemRandom).unwrap();
    let slot = keys.add_slot(&cheap(&passphrase("correct horse"), "people"), 0, &SystemRandom).unwrap();
    let (opened, with) = reread(&keys).unlock(&passphrase("correct horse")).unwrap();
    assert_eq!(with, slot);
    for id in [first, second, own] {
        assert_eq!(opened.data_key(id).unwrap().secret(), keys.data_key(id).unwrap().secret());
    }
    assert_eq!(opened.current_for(owner(2)).unwrap().id(), second);
    assert_eq!(opened.current_for(Owner::Repository).unwrap().id(), own);
    assert!(opened.current_for(owner(3)).is_none());
    let numbers: Vec<_> = opened.table().data_keys().map(|info| (info.number.0, info.state)).collect();
    let (current, old) = (DataKeyState::Current, DataKeyState::Old);
    assert_eq!(numbers, [(1, old), (2, current), (1, current)]);
}

#[test]
fn a_wrong_secret_is_told_from_damage_and_names_the_key() {
    let keys = created();
    let key = keys.table().key();
    let error = reread(&keys).unlock(&key_file(0x89)).unwrap_err();
    assert_eq!(error, UnlockError::WrongSecret { key, kind: SlotKind::KeyFile, tried: 1 });
    assert!(error.to_string().contains(&key.to_string()));
    let error = reread(&keys).unlock(&passphrase("correct horse")).unwrap_err();
    assert_eq!(error, UnlockError::NoSlot { key, kind: SlotKind::Passphrase });
    // The same bits as a secret of another kind: a kit is not a key file.
    let kit = SlotSecret::recovery_kit(Secret::from_bytes(&[0x88; 32]));
    assert!(matches!(reread(&keys).unlock(&kit), Err(UnlockError::NoSlot { .. })));
    let wanted = crate::id::DataKeyId([7; 16]);
    assert_eq!(keys.data_key(wanted).unwrap_err(), UnknownKey { wanted, have: key });
}

#[test]
fn passphrases_and_commands_open_their_own_slots_only() {
    let mut keys = created();
    let command = SlotSecret::command(SecretBytes::new(b"from the vault".to_vec()));
    keys.add_slot(&cheap(&passphrase("correct horse"), "anna"), 0, &SystemRandom).unwrap();
    let second = keys.add_slot(&cheap(&passphrase("battery staple"), "ben"), 0, &SystemRandom).unwrap();
    let third = keys.add_slot(&cheap(&command, "vault"), 0, &SystemRandom).unwrap();
    assert_eq!(reread(&keys).unlock(&passphrase("battery staple")).unwrap().1, second);
    assert_eq!(reread(&keys).unlock(&command).unwrap().1, third);
    let error = reread(&keys).unlock(&passphrase("battery stapla")).unwrap_err();
    assert!(matches!(error, UnlockError::WrongSecret { tried: 2, .. }));
    let error = reread(&keys).unlock(&passphrase("from the vault")).unwrap_err();
    assert!(matches!(error, UnlockError::WrongSecret { tried: 2, .. }));
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let mut keys = created();
    keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let good = keys.table().encode();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x01;
        assert!(matches!(KeyTable::decode(&bad), Err(DecodeError::Damaged { .. })), "byte {place}");
        assert!(
            matches!(KeyTable::decode(&good[..place]), Err(DecodeError::Damaged { .. })),
            "cut at {place}"
        );
    }
    assert!(KeyTable::decode(&vec![0; KEY_TABLE_MAX_BYTES + 1]).is_err());
}

/// An attacker who can write to the volume can fix the checksum, but not the authentication code.
#[test]
fn whatever_is_changed_on_purpose_is_noticed() {
    let mut keys = created();
    keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let good = keys.table().encode();
    let mut unsupported = 0;
    for place in 0..good.len() - 8 {
        let mut bad = good.clone();
        bad[place] ^= 0x01;
        match KeyTable::decode(&with_checksum(bad)) {
            Ok(table) => assert!(table.unlock(&key_file(0x88)).is_err(), "byte {place}"),
            Err(DecodeError::Unsupported { .. }) => unsupported += 1,
            Err(DecodeError::Damaged { .. }) => {}
        }
    }
    assert_eq!(unsupported, 2, "the version has two bytes");
}

#[test]
fn a_dropped_or_swapped_key_is_noticed() {
    let mut keys = created();
    let first = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    keys.add_data_key(owner(3), 0, &SystemRandom).unwrap();
    keys.add_slot(&cheap(&key_file(0x77), "spare"), 0, &SystemRandom).unwrap();
    let is_forged = |change: &dyn Fn(&mut KeyTable)| {
        let mut table = reread(&keys);
        change(&mut table);
        let table = KeyTable::decode(&table.encode()).unwrap();
        matches!(table.unlock(&key_file(0x88)), Err(UnlockError::Forged { .. }))
    };
    assert!(!is_forged(&|_| {}));
    assert!(is_forged(&|table| table.entries.truncate(1)));
    assert!(is_forged(&|table| table.entries.swap(0, 1)));
    assert!(is_forged(&|table| drop(table.slots.pop())));
    assert!(is_forged(&|table| table.sequence += 1));
    assert!(is_forged(&|table| table.accepts_plain = false));
    // A key of an earlier table, dropped since, cannot be put back into a later one.
    let mut later = unlocked(&keys);
    later.drop_owner(owner(2), 0).unwrap();
    let mut table = reread(&later);
    table.entries.insert(0, keys.table().entries[0].clone());
    assert_eq!(table.entries[0].info.id, first);
    assert!(matches!(table.unlock(&key_file(0x88)), Err(UnlockError::Forged { .. })));
}

#[test]
fn keys_and_slots_of_another_repository_open_nothing() {
    let mut keys = created();
    keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let mut other = reread(&keys);
    other.repository = RepositoryId::from_bytes([9; 16]);
    assert!(matches!(other.unlock(&key_file(0x88)), Err(UnlockError::WrongSecret { .. })));
    let mine = created();
    let mut mixed = reread(&mine);
    mixed.slots = keys.table().slots.clone();
    assert!(matches!(mixed.unlock(&key_file(0x88)), Err(UnlockError::WrongSecret { .. })));
}

#[test]
fn newer_is_unsupported_and_costs_are_bounded() {
    let mut keys = created();
    keys.add_slot(&cheap(&passphrase("correct horse"), "people"), 0, &SystemRandom).unwrap();
    let good = keys.table().encode();
    let mut newer = good.clone();
    newer[4] = 2;
    let error = KeyTable::decode(&with_checksum(newer)).unwrap_err();
    assert!(matches!(error, DecodeError::Unsupported { version: 2, supported: 1, .. }));
    // The second slot's cost: a start must not be made to spend more than this build writes.
    let mut greedy = good;
    greedy[64 + 176 + 16..][..4].copy_from_slice(&((64_u32 << 10) + 1).to_le_bytes());
    let error = KeyTable::decode(&with_checksum(greedy)).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { .. }), "{error}");
}

#[test]
fn the_last_slot_is_never_removed() {
    let mut keys = created();
    let first = keys.table().slots().next().unwrap().id;
    assert_eq!(keys.remove_slot(first, 0), Err(SlotError::Last(first)));
    let second = keys.add_slot(&cheap(&key_file(0x77), "spare"), 0, &SystemRandom).unwrap();
    keys.remove_slot(first, 0).unwrap();
    assert_eq!(keys.remove_slot(first, 0), Err(SlotError::Missing(first)));
    assert_eq!(keys.remove_slot(second, 0), Err(SlotError::Last(second)));
    assert!(reread(&keys).unlock(&key_file(0x88)).is_err());
    reread(&keys).unlock(&key_file(0x77)).unwrap();
    let third = keys.add_slot(&cheap(&key_file(0x66), "third"), 0, &SystemRandom).unwrap();
    assert!(third > second, "numbers are not used again");
}

#[test]
fn slots_that_cannot_be_kept_are_refused_and_change_nothing() {
    let mut keys = created();
    let before = keys.table().clone();
    let mut refused = |secret: &SlotSecret, label: &str| {
        keys.add_slot(&cheap(secret, label), 0, &SystemRandom).unwrap_err()
    };
    assert_eq!(refused(&passphrase("too short"), "x"), SlotError::ShortPassphrase { found: 9 });
    assert_eq!(refused(&passphrase(""), "x"), SlotError::Empty { kind: SlotKind::Passphrase });
    assert_eq!(refused(&key_file(1), &"x".repeat(65)), SlotError::Label);
    assert_eq!(refused(&key_file(1), "two\nlines"), SlotError::Label);
    assert!(matches!(keys.add_slot(&cheap(&key_file(1), "x"), 0, &Broken), Err(SlotError::Random(_))));
    assert_eq!(*keys.table(), before);
    for _ in 1..SLOTS_MAX {
        keys.add_slot(&cheap(&key_file(1), &"é".repeat(32)), 0, &SystemRandom).unwrap();
    }
    assert_eq!(keys.add_slot(&cheap(&key_file(1), "x"), 0, &SystemRandom), Err(SlotError::Full));
    assert_eq!(reread(&keys), *keys.table());
    assert!(keys.table().encode().len() <= KEY_TABLE_MAX_BYTES);
}

/// Nothing in the new table leads from the old repository key or an old slot to the new key.
#[test]
fn after_a_rotation_only_the_secrets_that_were_kept_open() {
    let mut keys = created();
    let data_key = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let kit = SlotSecret::recovery_kit(Secret::from_bytes(&[0x33; 32]));
    keys.add_slot(&cheap(&kit, "safe"), 0, &SystemRandom).unwrap();
    keys.add_slot(&cheap(&passphrase("correct horse"), "people"), 0, &SystemRandom).unwrap();
    let old = keys.clone();
    let fresh = key_file(0x99);
    let gone = keys.rotate_repository_key(&[cheap(&fresh, "disk")], 5, &SystemRandom).unwrap();
    let labels: Vec<_> = gone.iter().map(|slot| slot.label.as_str()).collect();
    assert_eq!(labels, ["safe", "people"], "the key file's slot was replaced");
    assert_ne!(keys.table().key(), old.table().key());
    for secret in [key_file(0x88), passphrase("correct horse")] {
        assert!(reread(&keys).unlock(&secret).is_err());
    }
    assert!(reread(&keys).unlock(&kit).is_err());
    let (opened, _) = reread(&keys).unlock(&fresh).unwrap();
    assert_eq!(opened.data_key(data_key).unwrap().secret(), old.data_key(data_key).unwrap().secret());
    // The old repository key opens neither the new table nor a key in it.
    assert!(OpenKeys::new(reread(&keys), old.key().clone()).is_err());
    assert!(keys.table().entries[0].open(old.key()).unwrap().is_none());
    // An old table still opens with an old secret: both must be destroyed.
    reread(&old).unlock(&kit).unwrap();
    assert_eq!(keys.rotate_repository_key(&[], 5, &SystemRandom), Err(SlotError::NoSecret));
}

#[test]
fn a_rotation_that_fails_changes_nothing() {
    let mut keys = created();
    keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    let before = keys.table().clone();
    let bad = passphrase("short");
    let kept = key_file(0x88);
    let error = keys.rotate_repository_key(&[cheap(&kept, "disk"), cheap(&bad, "x")], 5, &SystemRandom);
    assert_eq!(error.unwrap_err(), SlotError::ShortPassphrase { found: 5 });
    assert!(keys.rotate_repository_key(&[cheap(&kept, "disk")], 5, &Broken).is_err());
    assert_eq!(*keys.table(), before);
    assert_eq!(*unlocked(&keys).table(), before);
}

#[test]
fn data_keys_are_retired_and_dropped() {
    let mut keys = created();
    let first = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    assert_eq!(keys.drop_data_key(first, 0), Err(KeyError::Current(first)));
    assert!(keys.retire(owner(2), 0, &SystemRandom).unwrap());
    assert!(!keys.retire(owner(2), 0, &SystemRandom).unwrap());
    assert!(unlocked(&keys).current_for(owner(2)).is_none());
    unlocked(&keys).data_key(first).unwrap();
    let second = keys.add_data_key(owner(2), 0, &SystemRandom).unwrap();
    keys.drop_data_key(first, 0).unwrap();
    assert_eq!(keys.drop_data_key(first, 0), Err(KeyError::Missing(first)));
    assert!(unlocked(&keys).data_key(first).is_err());
    assert_eq!(unlocked(&keys).current_for(owner(2)).unwrap().id(), second);
    let other = keys.add_data_key(owner(3), 0, &SystemRandom).unwrap();
    assert_eq!(keys.drop_owner(owner(2), 0).unwrap(), [second]);
    assert_eq!(keys.drop_owner(owner(2), 0).unwrap(), []);
    assert!(unlocked(&keys).data_key(second).is_err());
    unlocked(&keys).data_key(other).unwrap();
}

#[test]
fn plain_blobs_are_refused_for_good() {
    let mut keys = created();
    assert!(unlocked(&keys).table().accepts_plain());
    let before = keys.table().sequence();
    assert!(keys.refuse_plain(0).unwrap());
    assert!(!keys.refuse_plain(0).unwrap());
    assert_eq!(keys.table().sequence(), before + 1);
    keys.rotate_repository_key(&[cheap(&key_file(0x88), "disk")], 5, &SystemRandom).unwrap();
    assert!(!unlocked(&keys).table().accepts_plain());
}

#[test]
fn nothing_secret_is_shown() {
    let keys = created();
    let secret = key_file(0x88);
    let shown = format!("{keys:?} {secret:?} {:?}", cheap(&secret, "disk"));
    assert!(!shown.contains("136, 136"), "{shown}");
    let bits = format!("{:?}", keys.key().secret().expose());
    assert!(!shown.contains(bits.trim_matches(['[', ']'])), "{shown}");
}

proptest! {
    /// After any changes of keys, a table that is read again has the same ones.
    #[test]
    fn tables_come_back(steps in prop::collection::vec((0_u8..5, 1_u8..4), 0..20)) {
        let mut keys = created();
        for (step, byte) in steps {
            match step {
                0 => drop(keys.add_data_key(owner(byte), 1, &SystemRandom).unwrap()),
                1 => drop(keys.retire(owner(byte), 2, &SystemRandom).unwrap()),
                2 => drop(keys.drop_owner(owner(byte), 3).unwrap()),
                3 => drop(keys.add_slot(&cheap(&key_file(byte), "more"), 4, &SystemRandom)),
                _ => drop(keys.rotate_repository_key(&[cheap(&key_file(0x88), "disk")], 5, &SystemRandom).unwrap()),
            }
        }
        let read = unlocked(&keys);
        prop_assert_eq!(read.table(), keys.table());
        let ids = |keys: &OpenKeys| keys.table().data_keys().map(|info| info.id).collect::<Vec<_>>();
        for id in ids(&keys) {
            prop_assert_eq!(read.data_key(id).unwrap().secret(), keys.data_key(id).unwrap().secret());
        }
        for byte in 1..4 {
            let current = |keys: &OpenKeys| keys.current_for(owner(byte)).map(|key| key.id());
            prop_assert_eq!(current(&read), current(&keys));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = KeyTable::decode(&bytes);
        if bytes.len() > 72 {
            let mut framed = [b"HFKT\x01\0\x01\0", &bytes[..]].concat();
            framed = with_checksum(framed);
            let _ = KeyTable::decode(&framed);
        }
    }
}
