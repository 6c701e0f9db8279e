use holdfast_proto::Fingerprint;
use holdfast_proto::limits::REGION_STORED_MAX_BYTES;
use proptest::prelude::*;

use super::*;
use crate::format::crc64;

fn id(number: u64) -> ContainerId {
    ContainerId::new(number).unwrap()
}

fn contents() -> Contents {
    let record = |offset, stored_bytes, plain_bytes, chunk_count, codec| RegionRecord {
        offset,
        stored_bytes,
        plain_bytes,
        payload_crc: 0xCAFE_F00D,
        chunk_count,
        codec,
    };
    Contents {
        regions: vec![record(64, 100, 70_000, 2, Codec::Zstd), record(188, 5, 5, 1, Codec::Stored)],
        ends: vec![65_536, 70_000, 5],
        fingerprints: vec![Fingerprint::of(b"a"), Fingerprint::of(b"b"), Fingerprint::of(b"c")],
    }
}

const DIRECTORY_OFFSET: u32 = 188 + 24 + 5;

fn encoded() -> Vec<u8> {
    encode_directory(id(7), &contents()).unwrap()
}

/// Changes a byte and makes the checksum right again: what only a defect or an attacker writes.
fn forged(change: impl Fn(&mut [u8])) -> Result<Contents, FormatError> {
    let mut bytes = encoded();
    let body = bytes.len() - 8;
    change(&mut bytes[..body]);
    let crc = crc64(&bytes[..body]);
    bytes[body..].copy_from_slice(&crc.to_le_bytes());
    decode_directory(&bytes, id(7), DIRECTORY_OFFSET)
}

#[test]
fn directories_round_trip() {
    assert_eq!(encoded().len(), directory_bytes(2, 3));
    assert_eq!(decode_directory(&encoded(), id(7), DIRECTORY_OFFSET), Ok(contents()));
    assert_eq!(forged(|_| {}), Ok(contents()));
}

#[test]
fn a_directory_must_be_consistent() {
    assert!(decode_directory(&encoded(), id(8), DIRECTORY_OFFSET).is_err(), "another container's");
    assert!(decode_directory(&encoded(), id(7), DIRECTORY_OFFSET + 1).is_err(), "a gap before it");
    let forgeries: [(&str, usize, u8); 12] = [
        ("sealed, with plain regions", 4, 2),
        ("fewer regions", 6, 1),
        ("4,352 regions", 7, 17),
        ("more chunks", 8, 4),
        ("very many chunks", 11, 0xFF),
        ("reserved", 12, 1),
        ("region offset", 24, 65),
        ("stored bytes", 24 + 4, 99),
        ("stored bytes over the limit", 24 + 7, 1),
        ("chunks per region", 24 + 16, 1),
        ("codec", 24 + 18, 2),
        ("chunk length", 64, 0),
    ];
    for (what, offset, value) in forgeries {
        let error = forged(|bytes| bytes[offset] = value).unwrap_err();
        assert!(matches!(error, FormatError::Corrupt { structure: DIRECTORY_NAME, .. }), "{what}: {error}");
    }
    let error = forged(|bytes| bytes[4] = 9).unwrap_err();
    assert_eq!(error, FormatError::Unsupported { structure: DIRECTORY_NAME, version: 9, supported: 2 });
}

const DIRECTORY_NAME: &str = "directory";

#[test]
fn impossible_contents_are_not_written() {
    let mut backwards = contents();
    backwards.ends[1] = 1;
    assert!(encode_directory(id(7), &backwards).is_err());
    let mut missing = contents();
    missing.ends.pop();
    assert!(encode_directory(id(7), &missing).is_err());
    let many = Contents { regions: vec![contents().regions[0]; REGIONS_MAX + 1], ..contents() };
    assert!(encode_directory(id(7), &many).is_err());
}

#[test]
fn a_footer_must_fit_its_file() {
    let footer =
        Footer { directory_offset: 64, directory_bytes: 32, id: id(7), total_bytes: 128, sealed: false };
    assert_eq!(Footer::decode(&footer.encode(), 128), Ok(footer));
    assert!(Footer::decode(&footer.encode(), 129).is_err());
    for wrong in [
        Footer { directory_offset: 65, ..footer },
        Footer { directory_bytes: u32::MAX, directory_offset: u32::MAX, ..footer },
        Footer { total_bytes: CONTAINER_MAX_BYTES + 1, ..footer },
    ] {
        assert!(Footer::decode(&wrong.encode(), wrong.total_bytes.into()).is_err(), "{wrong:?}");
    }
}

#[test]
fn region_headers_keep_to_the_limits() {
    let sound = contents().regions[0];
    assert_eq!(RegionRecord::decode_header(64, &sound.encode_header()), Ok(sound));
    for wrong in [
        RegionRecord { stored_bytes: REGION_STORED_MAX_BYTES + 1, codec: Codec::Sealed, ..sound },
        RegionRecord { stored_bytes: REGION_PLAIN_MAX_BYTES + 1, ..sound },
        RegionRecord { plain_bytes: REGION_PLAIN_MAX_BYTES + 1, ..sound },
        RegionRecord { chunk_count: 0, ..sound },
        RegionRecord { chunk_count: 4097, ..sound },
        RegionRecord { plain_bytes: 1, ..sound },
    ] {
        assert!(RegionRecord::decode_header(64, &wrong.encode_header()).is_err(), "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode_directory(&bytes, id(7), 64);
        if let Some(array) = bytes.first_chunk() {
            prop_assert!(Header::decode(array).is_err());
        }
        if let Some(array) = bytes.first_chunk() {
            prop_assert!(RegionRecord::decode_header(64, array).is_err());
        }
        if let Some(array) = bytes.first_chunk() {
            prop_assert!(Footer::decode(array, 400).is_err());
        }
    }

    /// Arbitrary bodies under a valid checksum reach the checks behind it.
    #[test]
    fn arbitrary_directories_with_right_checksums_never_panic(
        regions in 0u16..5, chunks in 0u32..6, body in proptest::collection::vec(any::<u8>(), 0..400)
    ) {
        let mut bytes = encoded();
        bytes.truncate(24);
        bytes[6..8].copy_from_slice(&regions.to_le_bytes());
        bytes[8..12].copy_from_slice(&chunks.to_le_bytes());
        bytes.extend_from_slice(&body);
        let wanted = directory_bytes(regions.into(), chunks as usize) - 8;
        bytes.resize(wanted, 0);
        bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
        if let Ok(contents) = decode_directory(&bytes, id(7), 64) {
            prop_assert_eq!(contents.ends.len(), contents.fingerprints.len());
        }
    }
}
