use super::*;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn of(byte: u8) -> Fingerprint {
    Fingerprint::from_bytes([byte; 32])
}

#[test]
fn extent_node_bytes_are_golden() {
    let pieces = vec![
        PieceRef { fingerprint: of(0xAA), bytes: 0x1_0000 },
        PieceRef { fingerprint: Fingerprint::ZERO, bytes: 0x20_0000 },
        PieceRef { fingerprint: of(0xBB), bytes: 5 },
    ];
    let node = ExtentNode::new(0x21_0005, pieces).unwrap();
    let expected = format!(
        "01010000{}{}{}{}{}{}{}",
        "03000000",
        "05002100",
        "000001",
        "0000a0",
        "050000",
        "aa".repeat(32),
        "bb".repeat(32)
    );
    assert_eq!(hex(&node.encode()), expected);
    assert_eq!(ExtentNode::decode(&node.encode()), Ok(node.clone()));
    assert_eq!(node.data_bytes(), 0x1_0005);
}

#[test]
fn page_bytes_are_golden() {
    let entry = ExtentEntry { node: of(1), digest: of(2), data_bytes: 4096 };
    let page = Page { entries: vec![ExtentEntry::ZERO, entry] };
    let expected = format!(
        "02010000{}{}{}{}{}{}",
        "02000000",
        "00000000",
        "00".repeat(68),
        "01".repeat(32),
        "02".repeat(32),
        "00100000"
    );
    assert_eq!(hex(&page.encode()), expected);
    assert_eq!(Page::decode(&page.encode()), Ok(page));
    let upper = UpperPage { level: 2, children: vec![of(3), Fingerprint::ZERO] };
    let expected = format!("03010200{}{}{}{}", "02000000", "00000000", "03".repeat(32), "00".repeat(32));
    assert_eq!(hex(&upper.encode()), expected);
    assert_eq!(UpperPage::decode(&upper.encode()), Ok(upper));
}

#[test]
fn newer_is_unsupported_not_corrupt() {
    let mut bytes = Page { entries: vec![ExtentEntry::ZERO] }.encode();
    bytes[1] = RECIPE_VERSION + 1;
    assert_eq!(Page::decode(&bytes), Err(NodeError::Unsupported { found: RECIPE_VERSION + 1 }));
}

#[test]
fn impossible_extents_are_refused() {
    let piece = |bytes| PieceRef { fingerprint: of(9), bytes };
    assert!(matches!(ExtentNode::new(10, vec![piece(9)]), Err(NodeError::PieceSum { sum: 9, .. })));
    assert!(matches!(ExtentNode::new(0, vec![piece(0)]), Err(NodeError::PieceLength { .. })));
    assert!(matches!(ExtentNode::new(65_537, vec![piece(65_537)]), Err(NodeError::PieceLength { .. })));
    let many = vec![piece(1); EXTENT_PIECES_MAX + 1];
    assert!(matches!(ExtentNode::new(1025, many), Err(NodeError::Count { .. })));
}

#[test]
fn biggest_nodes_fit_one_chunk() {
    let limit = holdfast_proto::limits::CHUNK_MAX_BYTES as usize;
    let pieces = vec![PieceRef { fingerprint: of(1), bytes: 4096 }; EXTENT_PIECES_MAX];
    assert!(ExtentNode::new(EXTENT_BYTES, pieces).unwrap().encode().len() <= limit);
    assert!(Page { entries: vec![ExtentEntry::ZERO; PAGE_EXTENTS] }.encode().len() <= limit);
    assert!(UpperPage { level: 2, children: vec![of(1); PAGE_CHILDREN] }.encode().len() <= limit);
}

proptest! {
    #[test]
    fn any_bytes_decode_or_err(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 1u8..4) {
        if let [k, v, ..] = bytes.as_mut_slice() { *k = kind; *v = 1; }
        let _ = ExtentNode::decode(&bytes);
        let _ = Page::decode(&bytes);
        let _ = UpperPage::decode(&bytes);
    }

    #[test]
    fn truncation_and_extra_bytes_are_noticed(cut in 1usize..80, extra in 1usize..5) {
        let bytes = Page { entries: vec![ExtentEntry { node: of(1), digest: of(2), data_bytes: 3 }; 2] }.encode();
        let shorter = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(Page::decode(shorter).is_err());
        let mut longer = bytes;
        longer.extend(vec![0; extra]);
        prop_assert!(Page::decode(&longer).is_err());
    }
}
