//! The bytes of version 1, to the byte.

use super::*;
use ulid::Ulid;

fn manifest() -> Manifest {
    Manifest {
        sequence: 3,
        repository: RepositoryId(Ulid(0xA1A2_A3A4_A5A6_A7A8_A9AA_ABAC_ADAE_AFB0)),
        secret: [0x5E; 32],
        next_run: 8,
        runs: vec![
            SortedRunRecord { run: 7, entries: 10, bytes: 9000, shards: ShardRange::ALL },
            SortedRunRecord { run: 4, entries: 20, bytes: 9001, shards: ShardRange::new(63, 1).unwrap() },
        ],
        covered: [1, 2, 1 << 39].into_iter().collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn bytes_are_pinned() {
    let bytes = manifest().encode().unwrap();
    assert_eq!(
        hex(&bytes[..128]),
        "4846494d0100400002000000000000000300000000000000a1a2a3a4a5a6a7a8a9aaabacadaeafb05e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e0800000000000000360000000000000000000000000000000000000000000000000000000000000000000000000000009871503425d95227"
    );
    assert_eq!(
        hex(&bytes[128..192]),
        "07000000000000000a00000000000000282300000000000000004000000000000400000000000000140000000000000029230000000000003f00010000000000"
    );
    assert_eq!(
        hex(&bytes[192..]),
        "0200000000000000000000003a30000001000000000001001000000001000200800000003a3000000100000000000000100000000000"
    );
    assert_eq!(Manifest::decode(&bytes), Ok(manifest()));
}

#[test]
fn short_and_long_ones_are_refused() {
    let bytes = manifest().encode().unwrap();
    for len in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(Manifest::decode(&longer).is_err());
}

#[test]
fn runs_that_cannot_be_are_refused() {
    let mut lie = manifest();
    lie.next_run = 7;
    assert!(Manifest::decode(&lie.encode().unwrap()).is_err(), "a run of the future");
    let mut lie = manifest();
    lie.runs[0].shards = ShardRange::new(0, 2).unwrap();
    assert!(Manifest::decode(&lie.encode().unwrap()).is_err(), "neither one shard nor all");
}

#[test]
fn the_secret_is_not_printed() {
    assert!(!format!("{:?}", manifest()).contains("94"), "0x5e is 94");
}
