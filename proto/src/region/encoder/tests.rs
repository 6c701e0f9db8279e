use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::*;
use crate::region::Decoder;

const PLAIN_MAX: usize = REGION_PLAIN_MAX_BYTES as usize;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of a log\n").into_bytes()).take(len).collect()
}

fn encode(level: i32, plain: &[u8]) -> EncodedRegion {
    let encoded = Encoder::new(level).unwrap().encode(plain).unwrap();
    let back = Decoder::new().unwrap().decode(encoded.codec, &encoded.payload, encoded.plain_bytes).unwrap();
    assert!(back == plain, "level {level}");
    encoded
}

/// 200 kB of noise, and after every 20 bytes of it one of 64 words of `word` bytes.
fn noise_with_words(word: usize) -> Vec<u8> {
    let (words, between, which) = (noise(1, 64 * word), noise(2, 200_000), noise(3, 10_000));
    let pieces = between.chunks(20).zip(which);
    pieces
        .flat_map(|(noise, which)| {
            let at = usize::from(which % 64) * word;
            [noise, &words[at..at + word]].concat()
        })
        .collect()
}

/// The search of level 19 finds words of 3 bytes, the probe does not: so it was the probe that decided.
#[test]
fn noise_is_not_searched_at_high_levels() {
    let (mut encoder, mut frame) = (Encoder::new(19).unwrap(), Vec::new());
    let words = noise_with_words(3);
    assert!(pass(&mut encoder.zstd, &words, &mut frame, WORTHWHILE_DIVISOR).unwrap());
    assert_eq!(encode(19, &words).codec, Codec::Stored);
    assert_eq!(encode(PROBED_FROM_LEVEL, &words).codec, Codec::Stored);
    assert_eq!(encode(19, &noise_with_words(4)).codec, Codec::Zstd);
}

#[test]
fn text_is_compressed_and_noise_is_stored_at_every_level() {
    for level in 1..=19 {
        assert_eq!(encode(level, &noise(3, 50_000)).codec, Codec::Stored, "level {level}");
        let compressed = encode(level, &text(50_000));
        assert_eq!(compressed.codec, Codec::Zstd, "level {level}");
        assert!(compressed.payload.len() < 25_000, "level {level}: {} bytes", compressed.payload.len());
    }
}

/// A region in which anything can be saved is searched, wherever in it that is.
#[test]
fn noise_around_text_does_not_hide_it() {
    let some = text(PLAIN_MAX / 16);
    for (before, after) in [(0, 15), (7, 8), (15, 0)] {
        let [before, after] = [before, after].map(|sixteenths| noise(5, PLAIN_MAX / 16 * sixteenths));
        let mixed = [before.as_slice(), &some, &after].concat();
        for level in [DEFAULT_LEVEL, PROBED_FROM_LEVEL, 19] {
            let encoded = encode(level, &mixed);
            assert_eq!(encoded.codec, Codec::Zstd, "level {level}, {} bytes before", before.len());
            assert!(encoded.payload.len() < mixed.len() - some.len() / 2, "level {level}");
        }
    }
}

#[test]
fn the_memory_of_a_frame_is_used_again_and_length_is_not_bounded() {
    let (mut encoder, mut frame) = (Encoder::new(DEFAULT_LEVEL).unwrap(), Vec::new());
    assert!(encoder.compress(&text(PLAIN_MAX * 2), &mut frame).unwrap());
    let capacity = frame.capacity();
    assert!(!encoder.compress(&noise(4, PLAIN_MAX), &mut frame).unwrap());
    assert_eq!(frame.capacity(), capacity);
    let too_long = encoder.encode(&text(PLAIN_MAX + 1));
    assert!(matches!(too_long, Err(RegionError::PlainTooLong { .. })), "{too_long:?}");
}

/// Noise, text and runs of one byte, one after another.
fn any_plain() -> impl Strategy<Value = Vec<u8>> {
    let part = (0u8..3, any::<u64>(), 1usize..30_000).prop_map(|(kind, seed, len)| match kind {
        0 => noise(seed, len),
        1 => text(len),
        _ => vec![seed.to_le_bytes()[0]; len],
    });
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Decoding returns the plain bytes, and encoding never takes more than they do.
    #[test]
    fn decoding_undoes_encoding(plain in any_plain(), level in prop_oneof![Just(1), Just(DEFAULT_LEVEL), Just(3), Just(13)]) {
        let encoded = Encoder::new(level).unwrap().encode(&plain).unwrap();
        let mut decoder = Decoder::new().unwrap();
        prop_assert!(encoded.payload.len() <= plain.len());
        let back = decoder.decode(encoded.codec, &encoded.payload, encoded.plain_bytes).unwrap();
        prop_assert!(back == plain);
    }
}
