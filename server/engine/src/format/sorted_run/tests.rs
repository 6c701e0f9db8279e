//! The bytes of version 1, to the byte.

use super::*;
use ulid::Ulid;

fn header() -> SortedRunHeader {
    SortedRunHeader {
        run: 0x0102_0304_0506_0708,
        repository: RepositoryId(Ulid(0xA1A2_A3A4_A5A6_A7A8_A9AA_ABAC_ADAE_AFB0)),
        shards: ShardRange::new(5, 1).unwrap(),
    }
}

fn footer() -> SortedRunFooter {
    SortedRunFooter {
        run: 9,
        entries: 205,
        pages: 2,
        filters: 1,
        filter_bytes: 100,
        filter_crc: 0x1111_1111,
        fence_crc: 0x2222_2222,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn header_bytes_are_pinned() {
    let page = header().encode();
    assert_eq!(
        hex(&page[..40]),
        "484649520100050001000000000000000807060504030201a1a2a3a4a5a6a7a8a9aaabacadaeafb0"
    );
    assert!(page[40..4092].iter().all(|&b| b == 0));
    assert_eq!(hex(&page[4092..]), "8453d76b");
    assert_eq!(SortedRunHeader::decode(&page), Ok(header()));
}

#[test]
fn page_bytes_are_pinned() {
    let entries = [
        Entry { key: [1; 12], location: 0x1122_3344_5566_7788.into() },
        Entry { key: [2; 12], location: 1.into() },
    ];
    let page = encode_page(0xAAAA_AAAA_0000_0007, 3, &entries);
    assert_eq!(
        hex(&page[..40]),
        "01010101010101010101010188776655443322110202020202020202020202020100000000000000"
    );
    assert!(page[40..4080].iter().all(|&b| b == 0));
    assert_eq!(hex(&page[4080..]), "020000000300000007000000f36708fd");
    assert_eq!(decode_page(&page, 7, 3).unwrap(), entries);
    assert!(decode_page(&page, 7, 4).is_err(), "another page");
    assert!(decode_page(&page, 8, 3).is_err(), "another run");
}

#[test]
fn footer_bytes_are_pinned() {
    let bytes = footer().encode();
    assert_eq!(
        hex(&bytes),
        "484649450100000001000000020000000900000000000000cd00000000000000640000000000000011111111222222220000000000000000000000002633bb6d"
    );
    let len = 4096 * 3 + 100 + 16 + 64;
    assert_eq!(SortedRunFooter::decode(&bytes, len), Ok(footer()));
    assert!(SortedRunFooter::decode(&bytes, len + 1).is_err());
}

#[test]
fn filter_record_is_32_bytes() {
    let record = FilterRecord {
        first: 1.into(),
        seed: 2.into(),
        segment_length: 3.into(),
        segment_count_length: 4.into(),
        table_bytes: 5.into(),
        keys: 6.into(),
    };
    let wanted = "0100000000000000".to_owned()
        + "0200000000000000"
        + "03000000"
        + "04000000"
        + "05000000"
        + "06000000";
    assert_eq!(hex(record.as_bytes()), wanted);
}

#[test]
fn counts_that_contradict_each_other_are_refused() {
    let len = 4096 * 3 + 100 + 16 + 64;
    let lies = [
        SortedRunFooter { entries: 204, ..footer() },
        SortedRunFooter { entries: 409, ..footer() },
        SortedRunFooter { pages: 0, entries: 0, ..footer() },
        SortedRunFooter { filters: 4, ..footer() },
        SortedRunFooter { filters: u32::MAX, ..footer() },
        SortedRunFooter { filter_bytes: u64::MAX, ..footer() },
        SortedRunFooter { pages: u32::MAX, entries: u64::from(u32::MAX) * 204, ..footer() },
    ];
    for lie in lies {
        assert!(SortedRunFooter::decode(&lie.encode(), len).is_err(), "{lie:?}");
    }
}

#[test]
fn shards_split_all_prefixes() {
    let mut next = 0u64;
    for shard in 0..SHARDS {
        let (first, last) = ShardRange::new(shard, 1).unwrap().prefixes();
        assert_eq!(first, next);
        next = last.wrapping_add(1);
    }
    assert_eq!(next, 0);
    assert_eq!(ShardRange::ALL.prefixes(), (0, u64::MAX));
    assert_eq!(ShardRange::new(0, 0).or(ShardRange::new(64, 1)).or(ShardRange::new(63, 2)), None);
}
