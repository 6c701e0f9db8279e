//! The recovery kit: one page to print, with a secret as words and everything needed to use it.
//!
//! The secret is random and opens a slot of its own; it is nowhere but on the page. Words are read in either case,
//! with or without their numbers, with any separators. A wrong letter is detected in its word, which is named by its
//! number; any other mistake by the checksum over all.
//!
//! A word encodes 12 bits and is easy to read out and type: consonant, vowel, consonant, vowel, consonant. The first
//! four encode the bits, most significant first (4, 2, 4 and 2 bits); the last is a check letter, so that any one wrong
//! letter, and nearly every pair of swapped letters, is detected in the word itself. All words differ in their first
//! four letters.

use std::fmt::Write as _;

use holdfast_types::clock::utc_text;
use holdfast_types::ids::RepositoryId;
use zeroize::Zeroizing;

use crate::id::RepositoryKeyId;
use crate::layout::crc32c;
use crate::secret::{KEY_BYTES, Secret, SecretBytes};

/// Words of a kit: 256 bits and a checksum of 32, 12 bits each.
pub const WORDS: usize = 24;
/// Most bytes read as a kit.
pub const PAGE_MAX_BYTES: usize = 64 << 10;

const CHECKSUM_BYTES: usize = 4;
const CODE_BYTES: usize = KEY_BYTES + CHECKSUM_BYTES;
const _: () = assert!(CODE_BYTES * 8 == WORDS * WORD_BITS as usize);

/// Contents of a page, or of words that were typed.
#[derive(Debug, PartialEq, Eq)]
pub struct Kit {
    pub secret: Secret,
    /// `None` if only words were given.
    pub repository: Option<RepositoryId>,
}

/// Why a text is not a recovery kit. Words are named by their number, never quoted.
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
    /// Parses a whole page, or its words alone.
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

/// Reads the repository from the page above the words.
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
        letters.extend_from_slice(&word(a << 4 | b >> 4));
        letters.extend_from_slice(&word((b & 15) << 8 | c));
    }
    letters
}

fn read_words(text: &str) -> Result<Secret, KitError> {
    // Allocated at once: growing it would leave letters behind in memory.
    let mut letters = Zeroizing::new(Vec::with_capacity(text.len()));
    letters.extend(text.bytes().filter(u8::is_ascii_alphabetic));
    let (found, rest) = letters.as_chunks::<WORD_LETTERS>();
    if let Some(number) = wrong_length(text) {
        // Checked only if the letters do not add up: input without separators, or with other ones, is accepted, too.
        if letters.len() != WORDS * WORD_LETTERS {
            return Err(KitError::Word { number });
        }
    }
    if found.len() != WORDS || !rest.is_empty() {
        return Err(KitError::Count { found: found.len() });
    }
    let mut values = Zeroizing::new([0; WORDS]);
    for ((number, word), value) in (1..).zip(found).zip(values.iter_mut()) {
        *value = bits(*word).ok_or(KitError::Word { number })?;
    }
    decode(&values)
}

/// Number of the first word with too many or too few letters; `None`: there is none, or the text has a wrong number of
/// words altogether.
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

const BEGIN: &str = "-----BEGIN RECOVERY KEY-----";
const END: &str = "-----END RECOVERY KEY-----";
const REPOSITORY: &str = "Repository:";

/// Words of a line.
const COLUMNS: usize = 4;

/// Contents of the page besides the secret.
#[derive(Debug, Clone, Copy)]
pub struct KitPage<'a> {
    pub repository: RepositoryId,
    /// The repository key that the kit opened when it was made.
    pub key: RepositoryKeyId,
    pub made_ms: i64,
    /// Where the repository's volumes are, one a line.
    pub volumes: &'a [String],
    /// Commands to run on a new machine, one a line.
    pub commands: &'a [String],
}

impl KitPage<'_> {
    /// The text of the page. It contains the secret: print it, and keep no file of it.
    pub fn text(&self, secret: &Secret) -> SecretBytes {
        let mut page = self.head();
        // The page is grown once, so that no copy of the words stays behind.
        let tail = self.tail();
        let letters = write_words(secret);
        page.reserve(2 * BEGIN.len() + 4 * letters.len() + tail.len());
        page.push_str(BEGIN);
        page.push('\n');
        for (number, word) in (0..).zip(letters.as_chunks::<WORD_LETTERS>().0) {
            let _ = write!(page, "{:4} ", number + 1);
            page.extend(word.iter().copied().map(char::from));
            page.push_str(if (number + 1) % COLUMNS == 0 { "\n" } else { "   " });
        }
        page.push_str(END);
        page.push('\n');
        page.push_str(&tail);
        SecretBytes::new(page.into_bytes())
    }

    fn head(&self) -> String {
        let mut page = String::from(
            "HOLDFAST RECOVERY KIT\n\n\
             The key below opens the encrypted backups of one repository. Print this page and keep it\n\
             apart from the server and its backups; keep no file of it. Without this page, the key file\n\
             and every other source of the key, no one can read the backups. Anyone who has this page\n\
             and a copy of the repository can read them all.\n\n",
        );
        let _ = write!(
            page,
            "{REPOSITORY:16}{}\n{:16}{}\n{:16}{}\n",
            self.repository,
            "Repository key:",
            self.key,
            "Made:",
            utc_text(self.made_ms)
        );
        lines(&mut page, "\nWhere the volumes are:\n", self.volumes);
        page.push('\n');
        page
    }

    fn tail(&self) -> String {
        let mut page = String::new();
        lines(&mut page, "\nTo recover, on a new machine:\n", self.commands);
        page.push_str(
            "\nThe words may be typed in either case, with or without their numbers. After the repository key\n\
             was rotated this page opens only older copies of the repository: burn it, and export a new one.\n",
        );
        page
    }
}

/// Writes each item on one line, whatever it contains: nothing can look like the key's own lines.
fn lines(page: &mut String, title: &str, lines: &[String]) {
    page.push_str(title);
    for line in lines {
        let _ = writeln!(page, "    {}", line.replace(char::is_control, " ").replace("-----", "- - -"));
    }
}

/// Sixteen consonants that are hard to confuse: k but not c; no q, w, x, y.
const CONSONANTS: [u8; 16] = *b"bdfghjklmnprstvz";
/// Without e, which sounds like i.
const VOWELS: [u8; 4] = *b"aiou";

/// Letters of a word.
const WORD_LETTERS: usize = 5;
/// Bits of a word.
const WORD_BITS: u32 = 12;

/// The word for the 12 low bits.
fn word(bits: u16) -> [u8; WORD_LETTERS] {
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

/// The bits of a word, in either case; `None`: it is invalid.
fn bits(word: [u8; WORD_LETTERS]) -> Option<u16> {
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

/// Check letter. Odd factors: changing any one letter always changes the sum modulo 16.
const fn check(first: usize, second: usize, third: usize, fourth: usize) -> usize {
    (first + 5 * second + 3 * third + 7 * fourth) % 16
}

fn letter(letters: &[u8], at: usize) -> u8 {
    letters.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
