//! Bits as words that can be read out and typed: 12 bits a word.
//!
//! A word is consonant, vowel, consonant, vowel, consonant. The first four carry the bits, most significant first (4, 2,
//! 4 and 2 bits); the last is a check letter, so that any one wrong letter, and nearly every pair of letters in the
//! wrong order, shows in the word itself. All words differ in their first four letters.

/// Sixteen that are not easily taken for each other; no c, k is there; no q, w, x, y.
const CONSONANTS: [u8; 16] = *b"bdfghjklmnprstvz";
/// Without e, which sounds like i.
const VOWELS: [u8; 4] = *b"aiou";

/// Letters of a word.
pub(super) const WORD_LETTERS: usize = 5;
/// Bits of a word.
pub(super) const WORD_BITS: u32 = 12;

/// The word of the 12 low bits.
pub(super) fn word(bits: u16) -> [u8; WORD_LETTERS] {
    let part = |shift: u32, mask: u16| usize::from(bits >> shift & mask);
    let (first, second, third, fourth) = (part(8, 15), part(6, 3), part(2, 15), part(0, 3));
    [
        letter(&CONSONANTS, first),
        letter(&VOWELS, second),
        letter(&CONSONANTS, third),
        letter(&VOWELS, fourth),
        letter(&CONSONANTS, check(first, second, third, fourth)),
    ]
}

/// The bits of a word, in either case; `None`: no such word.
pub(super) fn bits(word: [u8; WORD_LETTERS]) -> Option<u16> {
    let find =
        |letters: &[u8], letter: u8| letters.iter().position(|&known| known == letter.to_ascii_lowercase());
    let [a, b, c, d, e] = word;
    let (first, second, third, fourth) =
        (find(&CONSONANTS, a)?, find(&VOWELS, b)?, find(&CONSONANTS, c)?, find(&VOWELS, d)?);
    if find(&CONSONANTS, e)? != check(first, second, third, fourth) {
        return None;
    }
    u16::try_from(first << 8 | second << 6 | third << 2 | fourth).ok()
}

/// Odd factors: another letter in one place always makes another sum modulo 16.
const fn check(first: usize, second: usize, third: usize, fourth: usize) -> usize {
    (first + 5 * second + 3 * third + 7 * fourth) % 16
}

fn letter(letters: &[u8], at: usize) -> u8 {
    letters.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<[u8; WORD_LETTERS]> {
        (0..1 << WORD_BITS).map(word).collect()
    }

    #[test]
    fn every_word_is_one_value_and_differs_early() {
        let words = all();
        for (value, word) in words.iter().enumerate() {
            assert_eq!(bits(*word), u16::try_from(value).ok());
            assert_eq!(bits(word.map(|letter| letter.to_ascii_uppercase())), u16::try_from(value).ok());
        }
        let beginnings: std::collections::BTreeSet<_> = words.iter().map(|word| &word[..4]).collect();
        assert_eq!(beginnings.len(), words.len());
    }

    #[test]
    fn any_one_wrong_letter_shows_in_the_word() {
        for word in all() {
            for place in 0..WORD_LETTERS {
                for letter in b'a'..=b'z' {
                    let mut wrong = word;
                    wrong[place] = letter;
                    assert!(letter == word[place] || bits(wrong).is_none(), "{wrong:?} passes for {word:?}");
                }
            }
        }
    }
}
