use holdfast_types::ids::RepositoryId;
use proptest::prelude::*;

use super::*;
use crate::data_key::DataKey;
use crate::secret::testing::{Broken, Counting, hex};
use crate::secret::{RandomError, SystemRandom};

const NAME: &str = "containers/0000000/0000000007.data";

fn repository() -> RepositoryId {
    RepositoryId::from_bytes([1; 16])
}

fn key() -> DataKey {
    DataKey::new(Secret::from_bytes(&[0x55; 32]))
}

fn sealer() -> BlobSealer {
    key().blob_sealer(repository(), NAME, &Counting::from(0)).unwrap()
}

/// One page, sealed with the salt 0, 1, 2, ….
fn sealed(page: u64, is_last: bool, plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    sealer().seal_page(page, is_last, &mut bytes).unwrap();
    bytes
}

/// Computed by another implementation (HKDF, HMAC and AES-GCM of Python's `cryptography`) from the same inputs.
#[test]
fn golden_pages() {
    assert_eq!(key().id().to_string(), "1e9009b5379a65f6ebd2fb12cf2f1ff5");
    assert_eq!(hex(sealer().salt()), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    assert_eq!(
        hex(&sealed(5, false, b"sixteen bytes ok")),
        "1d483f84a4ba02bdd18c4286097cc1c534a2e879bcabe9c1330f99744066a0c5"
    );
    assert_eq!(hex(&sealed(0x0102_0304_0506_0708, true, b"")), "808339fbb04ef437cccbe58979047994");
}

#[test]
fn every_changed_bit_of_a_page_is_found() {
    let good = sealed(5, true, b"something");
    let (opener, mut room) = (sealer(), [0; 9]);
    let damaged = DamagedPage { page: 5 };
    for place in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            assert_eq!(opener.key().open_page_to(5, true, &bad, &mut room), Err(damaged));
            assert_eq!(opener.key().open_page(5, true, &mut bad), Err(damaged));
        }
    }
    for len in 0..good.len() {
        assert_eq!(opener.key().open_page(5, true, &mut good[..len].to_vec()), Err(damaged));
        assert_eq!(opener.key().open_page_to(5, true, &good[..len], &mut room), Err(damaged));
    }
    assert_eq!(opener.key().open_page_to(5, true, &good, &mut [0; 8]), Err(damaged));
    opener.key().open_page_to(5, true, &good, &mut room).unwrap();
    assert_eq!(room, *b"something");
}

#[test]
fn a_page_opens_only_in_its_place() {
    let good = sealed(5, false, b"something");
    for (page, is_last) in [(4, false), (6, false), (5, true), (5 | 1 << 32, false)] {
        let opened = sealer().key().open_page(page, is_last, &mut good.clone()).map(|_| ());
        assert_eq!(opened, Err(DamagedPage { page }));
    }
    sealer().key().open_page(5, false, &mut good.clone()).unwrap();
}

#[test]
fn a_blob_does_not_pass_for_another() {
    let good = sealed(5, false, b"something");
    let salt = *sealer().salt();
    let opens = |key: &DataKey, salt: &[u8; SALT_BYTES], repository: RepositoryId, name: &str| {
        let key = key.blob_key(salt, repository, name).unwrap();
        key.open_page(5, false, &mut good.clone()).is_ok()
    };
    assert!(opens(&key(), &salt, repository(), NAME));
    assert!(!opens(&DataKey::new(Secret::from_bytes(&[0x56; 32])), &salt, repository(), NAME));
    assert!(!opens(&key(), &salt, RepositoryId::from_bytes([2; 16]), NAME));
    for name in ["containers/0000000/0000000007.recipe", "containers/0000000/0000000008.data", "", "points/a"]
    {
        assert!(!opens(&key(), &salt, repository(), name), "{name}");
    }
    for place in 0..SALT_BYTES {
        let mut other = salt;
        other[place] ^= 1;
        assert!(!opens(&key(), &other, repository(), NAME), "salt's byte {place}");
    }
}

#[test]
fn numbers_of_pages_only_go_up_and_end_with_the_last() {
    let mut sealer = sealer();
    sealer.seal_page(3, false, &mut b"first".to_vec()).unwrap();
    for page in [0, 2, 3] {
        let mut bytes = b"second".to_vec();
        assert_eq!(sealer.seal_page(page, false, &mut bytes), Err(SealError::Order { page, last: 3 }));
        assert_eq!(bytes, b"second");
    }
    sealer.seal_page(4, true, &mut Vec::new()).unwrap();
    assert_eq!(sealer.seal_page(5, true, &mut Vec::new()), Err(SealError::Ended { page: 5 }));
}

/// A container's number reused after a crash, or a blob written again, never gets the same key.
#[test]
fn the_same_blob_written_twice_has_another_key() {
    let write = || {
        let mut sealer = key().blob_sealer(repository(), NAME, &SystemRandom).unwrap();
        let mut bytes = vec![0; 32];
        sealer.seal_page(0, true, &mut bytes).unwrap();
        (*sealer.salt(), bytes)
    };
    let (first, second) = (write(), write());
    assert_ne!(first.0, second.0);
    assert_ne!(first.1, second.1);
    let error = key().blob_sealer(repository(), NAME, &Broken).unwrap_err();
    assert_eq!(error, SealError::Random(RandomError));
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?} {:?} {:?}", key(), sealer(), sealer().key());
    assert!(!shown.contains("85, 85") && !shown.contains("5555"), "{shown}");
}

proptest! {
    #[test]
    fn what_was_sealed_is_opened(
        pages in prop::collection::btree_map(any::<u64>(), prop::collection::vec(any::<u8>(), 0..200), 1..8),
        name in ".{0,60}",
    ) {
        let mut sealer = key().blob_sealer(repository(), &name, &SystemRandom).unwrap();
        let last = pages.last_key_value().map(|(page, _)| *page);
        let mut stored = Vec::new();
        for (&page, plain) in &pages {
            let mut bytes = plain.clone();
            sealer.seal_page(page, Some(page) == last, &mut bytes).unwrap();
            prop_assert_eq!(bytes.len(), plain.len() + TAG_BYTES);
            stored.push(bytes);
        }
        let opener = key().blob_key(sealer.salt(), repository(), &name).unwrap();
        for ((&page, plain), mut bytes) in pages.iter().zip(stored) {
            let mut room = vec![0; plain.len()];
            opener.open_page_to(page, Some(page) == last, &bytes, &mut room).unwrap();
            prop_assert_eq!(&room, plain);
            prop_assert_eq!(opener.open_page(page, Some(page) == last, &mut bytes).unwrap(), plain);
        }
    }
}
