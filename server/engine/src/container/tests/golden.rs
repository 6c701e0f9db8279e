//! The bytes of one small container, written down once. When this fails, the format changed: existing
//! repositories would not open. Raise the version instead.

use super::*;
use crate::container::ContainerName;

/// One line a field, as in the byte maps of the format document.
const GOLDEN: &str = "
4846434e # header: magic HFCN
0100 # version 1
02 # class recipe
00 # flags
a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 # repository
b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2 # namespace
9a78563412000000 # container 0x123456789a
7b68e5cf8b010000 # created_ms
00000000 # reserved
c427f4d7 # CRC-32C
48465247 # region header: magic HFRG
0000 # codec, reserved
0200 # 2 chunks
0b000000 # plain bytes
0b000000 # payload bytes
40ae0b02 # CRC-32C of the payload
21d17022 # CRC-32C
68656c6c6f776f726c6421 # payload
48465247 # region header: magic HFRG
0100 # codec, reserved
0200 # 2 chunks
c8000000 # plain bytes
0a000000 # payload bytes
83f68822 # CRC-32C of the payload
b57d109c # CRC-32C
28b52ffd20c843060061 # payload
48464452 # directory: magic HFDR
0100 # version 1
0200 # 2 regions
04000000 # 4 chunks
00000000 # reserved
9a78563412000000 # container
400000000b0000000b00000040ae0b0202000000 # region 0: offset, payload, plain, CRC-32C, chunks, codec, reserved
630000000a000000c800000083f6882202000100 # region 1: offset, payload, plain, CRC-32C, chunks, codec, reserved
0400050095003100 # chunk lengths less one
ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f # BLAKE3 of hello
dc56981d20540d816f931110ffa281667e632c9f2400d4ebf2e582338bd49e20 # of world!
26a2c1ea3e92a0fe4fdc6c0254062776019723f0a586b58f8d500c4efbe66867 # of 150 times a
fa67810803e839cf9bb2477ce4f7af6e30904d77f4982f3813677360bb382dfd # of 50 times a
030adcda40234ef0 # CRC-64/NVME
85000000 # footer: directory offset
d0000000 # directory bytes
9a78563412000000 # container
75010000 # container bytes
0100 # version 1
0000 # reserved
48464654 # magic HFFT
3044e374 # CRC-32C
";

/// 200 times `a`: a frame of one run-length block, with its content size.
const FRAME: [u8; 10] = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 0xC8, 0x43, 0x06, 0x00, 0x61];

fn golden() -> Vec<u8> {
    let digits: Vec<u8> = GOLDEN
        .lines()
        .flat_map(|line| line.split('#').next().unwrap().chars())
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn a_container_is_written_to_the_byte() {
    let volume = MemoryVolume::new();
    let class = ContainerClass::Recipe;
    let mut writer =
        ContainerWriter::create(&volume, REPOSITORY, NAMESPACE, id(0x12_3456_789A), class, CREATED_MS)
            .unwrap();
    writer.append(&region(&[b"hello", b"world!"])).unwrap();
    let frame = UnverifiedRegion {
        codec: Codec::Zstd,
        plain_bytes: 200,
        fingerprints: vec![Fingerprint::of(&[b'a'; 150]), Fingerprint::of(&[b'a'; 50])],
        lengths: vec![150, 50],
        payload: FRAME.to_vec().into(),
    };
    writer.append(&frame.verify(&mut Decoder::new().unwrap()).unwrap().0).unwrap();
    writer.seal().unwrap();
    let name = ContainerName { id: id(0x12_3456_789A), class };
    assert_eq!(name.blob().as_str(), "containers/1234567/123456789a.recipe");
    let written = volume.get(&name.blob()).unwrap();
    let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(written, golden(), "{hex}");
}

#[test]
fn a_container_of_version_1_opens() {
    let volume = MemoryVolume::new();
    let class = ContainerClass::Recipe;
    volume.replace(&ContainerName { id: id(0x12_3456_789A), class }.blob(), golden());
    let container = OpenContainer::open(&volume, REPOSITORY, id(0x12_3456_789A), class).unwrap();
    assert_eq!((container.namespace(), container.created_ms()), (NAMESPACE, CREATED_MS));
    assert_holds(
        &container,
        &[vec![b"hello".to_vec(), b"world!".to_vec()], vec![vec![b'a'; 150], vec![b'a'; 50]]],
    );
}
