//! The recovery kit: one page to print, with a secret as words and all that is needed to use it.
//!
//! The secret is random and opens a slot of its own; it is nowhere but on the page. Words are read in either case, with
//! or without their numbers, whatever stands between them. A wrong letter is found in its word, which is named by its
//! number; any other mistake by the checksum over all.

mod page;
mod words;

use holdfast_types::ids::RepositoryId;
use zeroize::Zeroizing;

use crate::layout::crc32c;
use crate::secret::{KEY_BYTES, Secret};

pub use page::KitPage;
use page::{BEGIN, END, REPOSITORY};
use words::{WORD_BITS, WORD_LETTERS};

/// Words of a kit: 256 bits and a checksum of 32, 12 bits each.
pub const WORDS: usize = 24;
/// What is read as a kit at most.
pub const PAGE_MAX_BYTES: usize = 64 << 10;

const CHECKSUM_BYTES: usize = 4;
const CODE_BYTES: usize = KEY_BYTES + CHECKSUM_BYTES;
const _: () = assert!(CODE_BYTES * 8 == WORDS * WORD_BITS as usize);

/// What a page, or words that were typed, say.
#[derive(Debug, PartialEq, Eq)]
pub struct Kit {
    pub secret: Secret,
    /// `None`: only words were given.
    pub repository: Option<RepositoryId>,
}

/// Why a text is no recovery kit. Words are named by their number, never quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KitError {
    #[error("a recovery kit has at most {PAGE_MAX_BYTES} bytes")]
    TooLong,
    #[error("a recovery kit has {WORDS} words; here are {found}")]
    Count { found: usize },
    #[error("word {number} of the recovery kit is misspelt")]
    Word { number: usize },
    #[error(
        "the words of the recovery kit do not fit together: one is another word, or two are in the wrong order"
    )]
    Checksum,
    #[error("the repository's id on the recovery kit is misspelt")]
    Repository,
}

impl Kit {
    /// From a whole page, or from its words alone.
    ///
    /// # Errors
    /// [`KitError`].
    pub fn parse(text: &str) -> Result<Self, KitError> {
        if text.len() > PAGE_MAX_BYTES {
            return Err(KitError::TooLong);
        }
        let Some((head, rest)) = text.split_once(BEGIN) else {
            return Ok(Self { secret: read_words(text)?, repository: None });
        };
        let words = rest.split_once(END).map_or(rest, |(words, _)| words);
        Ok(Self { secret: read_words(words)?, repository: repository(head)? })
    }
}

/// What the page says above the words.
fn repository(head: &str) -> Result<Option<RepositoryId>, KitError> {
    let Some(id) = head.lines().find_map(|line| line.trim().strip_prefix(REPOSITORY)) else {
        return Ok(None);
    };
    id.trim().parse().map(Some).map_err(|_| KitError::Repository)
}

/// The words of a secret, for a page.
pub(crate) fn write_words(secret: &Secret) -> Zeroizing<Vec<u8>> {
    let mut letters = Zeroizing::new(Vec::with_capacity(WORDS * WORD_LETTERS));
    let mut code = Zeroizing::new([0; CODE_BYTES]);
    let checksum = crc32c(secret.expose()).to_be_bytes();
    code.iter_mut().zip(secret.expose().iter().chain(&checksum)).for_each(|(to, from)| *to = *from);
    // Three bytes are two words.
    for [a, b, c] in code.as_chunks::<3>().0 {
        let (a, b, c) = (u16::from(*a), u16::from(*b), u16::from(*c));
        letters.extend_from_slice(&words::word(a << 4 | b >> 4));
        letters.extend_from_slice(&words::word((b & 15) << 8 | c));
    }
    letters
}

fn read_words(text: &str) -> Result<Secret, KitError> {
    // Room for all at once: letters are not left behind in memory when it grows.
    let mut letters = Zeroizing::new(Vec::with_capacity(text.len()));
    letters.extend(text.bytes().filter(u8::is_ascii_alphabetic));
    let (found, rest) = letters.as_chunks::<WORD_LETTERS>();
    if let Some(number) = wrong_length(text) {
        // Only when words stand apart: who types without blanks, or with others, is understood, too.
        if letters.len() != WORDS * WORD_LETTERS {
            return Err(KitError::Word { number });
        }
    }
    if found.len() != WORDS || !rest.is_empty() {
        return Err(KitError::Count { found: found.len() });
    }
    let mut values = Zeroizing::new([0; WORDS]);
    for ((number, word), value) in (1..).zip(found).zip(values.iter_mut()) {
        *value = words::bits(*word).ok_or(KitError::Word { number })?;
    }
    decode(&values)
}

/// The number of the first word that has too many letters or too few; `None`: there is none, or the text has another
/// number of words altogether.
fn wrong_length(text: &str) -> Option<usize> {
    let words = || text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    if words().count() != WORDS {
        return None;
    }
    words().position(|word| word.len() != WORD_LETTERS).map(|place| place + 1)
}

fn decode(values: &[u16; WORDS]) -> Result<Secret, KitError> {
    let mut code = Zeroizing::new([0; CODE_BYTES]);
    for (bytes, [first, second]) in code.as_chunks_mut::<3>().0.iter_mut().zip(values.as_chunks::<2>().0) {
        let both = u32::from(*first) << WORD_BITS | u32::from(*second);
        let [_, a, b, c] = both.to_be_bytes();
        *bytes = [a, b, c];
    }
    let (bits, checksum) = code.split_first_chunk().ok_or(KitError::Checksum)?;
    if checksum != crc32c(bits).to_be_bytes() {
        return Err(KitError::Checksum);
    }
    Ok(Secret::from_bytes(bits))
}

#[cfg(test)]
mod tests;
