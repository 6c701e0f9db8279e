use super::*;
use ulid::Ulid;

fn header() -> ParityHeader {
    ParityHeader {
        number: 0x0102,
        repository: RepositoryId(Ulid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        created_ms: 0x0a0b_0c0d,
        members: 2,
        spares: 1,
        shard_bytes: (64 << 10) + 128,
    }
}

fn table() -> ParityTable {
    let member = |number, class| ParityMember {
        id: ContainerId::new(number).unwrap(),
        class,
        stored_bytes: 65_600,
        crc: 0x1122_3344_5566_7788,
    };
    ParityTable {
        members: vec![member(5, ContainerClass::Data), member(9, ContainerClass::Recipe)],
        sums: vec![1, 2, 3, 4, 5, 6],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let bytes = header().encode();
    assert_eq!(
        hex(&bytes[..60]),
        "48465041010002010201000000000000\
         00112233445566778899aabbccddeeff\
         0d0c0b0a000000008000010000000100\
         000000000000000000000000"
    );
    assert_eq!(ParityHeader::decode(&bytes).unwrap(), header());
    let bytes = table().encode();
    assert_eq!(bytes.len(), header().table_bytes());
    assert_eq!(
        hex(&bytes[..bytes.len() - 8]),
        "4846505401000000\
         050000000000000040000100000000008877665544332211\
         090000000000000040000100010000008877665544332211\
         010000000000000002000000000000000300000000000000\
         040000000000000005000000000000000600000000000000"
    );
    assert_eq!(ParityTable::decode(&header(), &bytes).unwrap(), table());
    assert_eq!((header().windows(), header().window(1)), (2, (65_536, 128)));
    assert_eq!(header().parity_offset(1, 0), 64 + 65_536);
    assert_eq!(header().table_offset(), 64 + 65_536 + 128);
}

/// No flipped bit and no cut goes unnoticed, and newer is no damage.
#[test]
fn damage_is_noticed_and_newer_is_unsupported() {
    let bytes = header().encode();
    for bit in 0..bytes.len() * 8 {
        let mut spoilt = bytes;
        spoilt[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(ParityHeader::decode(&spoilt), Err(FormatError::Corrupt { .. })), "bit {bit}");
    }
    let whole = table().encode();
    for bit in 0..whole.len() * 8 {
        let mut spoilt = whole.clone();
        spoilt[bit / 8] ^= 1 << (bit % 8);
        let found = ParityTable::decode(&header(), &spoilt);
        assert!(matches!(found, Err(FormatError::Corrupt { .. })), "bit {bit}");
    }
    for len in 0..whole.len() {
        assert!(ParityTable::decode(&header(), &whole[..len]).is_err());
    }
    let mut newer = bytes;
    newer[4] = 2;
    let newer = with_crc(newer);
    assert!(matches!(ParityHeader::decode(&newer), Err(FormatError::Unsupported { version: 2, .. })));
    for (at, value) in [(6, 33), (6, 0), (7, 5), (7, 0), (40, 1), (43, 255)] {
        let mut wrong = bytes;
        wrong[at] = value;
        assert!(ParityHeader::decode(&with_crc(wrong)).is_err(), "{at}: {value}");
    }
}
