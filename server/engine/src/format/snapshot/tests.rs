//! The bytes of version 1, to the byte.

use super::*;
use ulid::Ulid;

const HEAD: SnapshotHeader = SnapshotHeader {
    number: 5,
    repository: RepositoryId(Ulid(0xA1A2_A3A4_A5A6_A7A8_A9AA_ABAC_ADAE_AFB0)),
    created_ms: 1_763_700_000_000,
    last_commit: 17,
};
const FOOT: SnapshotFooter = SnapshotFooter { plain_bytes: 4096, stored_bytes: 300, digest: [0x5E; 32] };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn bytes_are_pinned() {
    assert_eq!((HEADER_BYTES, FOOTER_BYTES), (64, 64));
    assert_eq!(
        hex(&HEAD.encode()),
        "4846434e010001000500000000000000a1a2a3a4a5a6a7a8a9aaabacadaeafb00045b6a49a0100001100000000000000000000000000000000000000a0e90794"
    );
    assert_eq!(
        hex(&FOOT.encode()),
        "484643450100000000100000000000002c010000000000005e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e00000000b3cbd67d"
    );
    assert_eq!(SnapshotHeader::decode(&HEAD.encode()), Ok(HEAD));
    assert_eq!(SnapshotFooter::decode(&FOOT.encode()), Ok(FOOT));
}

#[test]
fn no_changed_byte_is_believed() {
    for at in 0..64 {
        let (mut header, mut footer) = (HEAD.encode(), FOOT.encode());
        header[at] ^= 1;
        footer[at] ^= 1;
        assert!(matches!(SnapshotHeader::decode(&header), Err(FormatError::Corrupt { .. })), "byte {at}");
        assert!(matches!(SnapshotFooter::decode(&footer), Err(FormatError::Corrupt { .. })), "byte {at}");
    }
}

#[test]
fn a_newer_version_is_unsupported() {
    let mut header = HEAD.encode();
    header[4] = 9;
    let header = with_crc(header);
    assert!(matches!(SnapshotHeader::decode(&header), Err(FormatError::Unsupported { version: 9, .. })));
}
