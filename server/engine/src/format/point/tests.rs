//! The bytes of version 1, to the byte, and bytes that no honest writer wrote.

use super::*;
use ulid::Ulid;

fn point() -> Point {
    let disk = PointDisk {
        name: "sda".into(),
        size_bytes: 4 << 20,
        data_bytes: 300,
        extent_count: 1,
        root: vec![0xEE; 32],
        started_ms: 1000,
        finished_ms: 2000,
        bytes: 300,
        read_bytes: 400,
        unchanged_bytes: 100,
        dup_bytes: 100,
        new_bytes: 100,
        post_lc: 77,
        meta_bytes: 55,
        wire_bytes: 99,
        chunks: 3,
        new_chunks: 2,
        ..PointDisk::default()
    };
    Point {
        repository: RepositoryId(Ulid(0xA1A2_A3A4_A5A6_A7A8_A9AA_ABAC_ADAE_AFB0)),
        backup: BackupId(Ulid(7)),
        revision: 2,
        body: PointBody {
            session: vec![1; 16],
            run: vec![2; 16],
            namespace: vec![3; 16],
            namespace_name: "default".into(),
            namespace_created_ms: 500,
            vm: "web".into(),
            job: "nightly".into(),
            client_host: "hv1".into(),
            who: "agent".into(),
            started_ms: 1000,
            finished_ms: 2000,
            number: 9,
            parent: vec![4; 16],
            next_container: 64,
            chunker: Some(PointChunker {
                algorithm: "fastcdc-2020".into(),
                min_bytes: 8192,
                avg_bytes: 16384,
                max_bytes: 65536,
                extent_bytes: 4 << 20,
                region_bytes: 256 << 10,
            }),
            disks: vec![disk],
            owner: "ops".into(),
            vm_owner: "dba".into(),
            missing_disks: vec!["sdb".into()],
            locked_until_ms: None,
            hold: None,
            lock_time_ms: None,
            namespace_key: Vec::new(),
            accepted_change: false,
        },
    }
}

/// Fields of locks and holds follow those of a point that has neither.
#[test]
fn bytes_of_locks_and_holds_are_pinned() {
    let free = point().encode().unwrap();
    let mut locked = point();
    locked.body.locked_until_ms = Some(3000);
    locked.body.hold = Some(PointHold { reason: "case".into(), who: "root".into(), since_ms: 2500 });
    locked.body.lock_time_ms = Some(2400);
    let bytes = locked.encode().unwrap();
    assert_eq!(hex(&bytes[HEADER_BYTES..free.len()]), hex(&free[HEADER_BYTES..]));
    assert_eq!(hex(&bytes[free.len()..]), "a801b817b2010f0a04636173651204726f6f7418c413b801e012");
    assert_eq!(Point::decode(&bytes), Ok(locked));
}

/// A version that does not know of it must not take plain data into the namespace.
#[test]
fn a_point_of_an_end_to_end_namespace_is_of_version_2() {
    let plain = point().encode().unwrap();
    let mut sealed = point();
    sealed.body.namespace_key = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let bytes = sealed.encode().unwrap();
    assert_eq!((plain[4], bytes[4]), (1, 2));
    assert_eq!(hex(&bytes[plain.len()..]), "c201080102030405060708");
    assert_eq!(Point::decode(&bytes), Ok(sealed));
    let mut mixed = bytes;
    mixed[4] = 1;
    let crc = crc32c(&mixed[..HEADER_BYTES - 4]);
    mixed[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert!(
        matches!(Point::decode(&mixed), Err(FormatError::Corrupt { .. })),
        "the key is left out of the version"
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A point of this body with the right lengths and checksums.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = point().encode().unwrap()[..HEADER_BYTES].to_vec();
    bytes[8..12].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes[12..16].copy_from_slice(&crc32c(body).to_le_bytes());
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn bytes_are_pinned() {
    let bytes = point().encode().unwrap();
    assert_eq!(
        hex(&bytes[..HEADER_BYTES]),
        "484650540100000001010000c9aa4d0aa1a2a3a4a5a6a7a8a9aaabacadaeafb000000000000000000000000000000007020000000000000000000000359a7e41"
    );
    assert_eq!(
        hex(&bytes[HEADER_BYTES..]),
        "1210010101010101010101010101010101011a10020202020202020202020202020202022210030303030303030303030303030303032a0764656661756c7430f4033a0377656242076e696768746c794a0368763152056167656e7458e80760d00f680972100404040404040404040404040404040478408201220a0c666173746364632d3230323010804018808001208080042880808002308080108a014f0a03736461108080800218ac0220012a20eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee30e80738d00f40ac02489003506458646064684d703778638001038801029201036f70739a0103646261a20103736462"
    );
    assert_eq!(Point::decode(&bytes), Ok(point()));
}

#[test]
fn no_changed_byte_is_believed() {
    let bytes = point().encode().unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(matches!(Point::decode(&changed), Err(FormatError::Corrupt { .. })), "byte {at}");
        assert!(Point::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(Point::decode(&longer).is_err());
}

#[test]
fn a_newer_version_is_unsupported() {
    let mut bytes = point().encode().unwrap();
    bytes[4] = 3;
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(Point::decode(&bytes), Err(FormatError::Unsupported { version: 3, .. })));
}

#[test]
fn unknown_fields_are_passed_over() {
    let mut body = point().body.encode_to_vec();
    // Field 1000, 3 bytes.
    body.extend([0xc2, 0x3e, 3, 1, 2, 3]);
    assert_eq!(Point::decode(&framed(&body)), Ok(point()));
}

#[test]
fn more_disks_than_a_backup_can_have_are_refused_before_they_are_decoded() {
    // Field 17 of length 0, as often as it fits.
    let empty = [0x8a, 0x01, 0x00];
    let most = Point::decode(&framed(&empty.repeat(DISKS_PER_BACKUP_MAX))).unwrap();
    assert_eq!(most.body.disks.len(), DISKS_PER_BACKUP_MAX);
    for count in [DISKS_PER_BACKUP_MAX + 1, 300_000] {
        let refused = Point::decode(&framed(&empty.repeat(count)));
        let Err(FormatError::Corrupt { defect: Defect::OverLimit { field, found, .. }, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((field, found), ("number of disks", count as u64));
    }
}

#[test]
fn lengths_beyond_the_bytes_are_refused() {
    // Strings, bytes and messages that say they are longer than what is there, and broken varints.
    for body in [
        &[0x2a, 0xff, 0xff, 0xff, 0xff, 0x0f][..],
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x8a, 0x01, 0x05, 0x0a, 0x7f],
        &[0xff; 11],
        &[0x2a, 0x02, 0xc3, 0x28],
        &[0x0b, 0x0b, 0x0b],
    ] {
        assert!(matches!(Point::decode(&framed(body)), Err(FormatError::Corrupt { .. })), "{body:?}");
    }
    assert!(Point::decode(&vec![0; usize::try_from(POINT_MAX_BYTES).unwrap() + 1]).is_err());
}

#[test]
fn how_the_agent_ran_has_these_fields() {
    let disk = PointDisk {
        first_full: true,
        level: 3,
        agent: "1.2".into(),
        reading_ms: 5,
        compressing_ms: 6,
        waiting_ms: 7,
        ..PointDisk::default()
    };
    let golden = b"\x90\x01\x01\x98\x01\x03\xa2\x01\x031.2\xa8\x01\x05\xb0\x01\x06\xb8\x01\x07";
    assert_eq!(disk.encode_to_vec(), golden);
}
