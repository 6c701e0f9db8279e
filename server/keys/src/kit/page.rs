//! The page as text.

use std::fmt::Write as _;

use holdfast_types::clock::utc_text;
use holdfast_types::ids::RepositoryId;

use super::words::WORD_LETTERS;
use crate::id::RepositoryKeyId;
use crate::secret::{Secret, SecretBytes};

pub(super) const BEGIN: &str = "-----BEGIN RECOVERY KEY-----";
pub(super) const END: &str = "-----END RECOVERY KEY-----";
pub(super) const REPOSITORY: &str = "Repository:";

/// Words of a line.
const COLUMNS: usize = 4;

/// What stands on the page besides the secret.
#[derive(Debug, Clone, Copy)]
pub struct KitPage<'a> {
    pub repository: RepositoryId,
    /// The repository key that the kit opened when it was made.
    pub key: RepositoryKeyId,
    pub made_ms: i64,
    /// Where the repository's volumes are, one a line.
    pub volumes: &'a [String],
    /// What to run on a new machine, one a line.
    pub commands: &'a [String],
}

impl KitPage<'_> {
    /// The page. It has the secret: print it, and keep no file of it.
    pub fn text(&self, secret: &Secret) -> SecretBytes {
        let mut page = self.head();
        // The page is grown once, so that no copy of the words stays behind.
        let tail = self.tail();
        let letters = super::write_words(secret);
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

/// Each on one line, whatever is in it: nothing can look like the key's own lines.
fn lines(page: &mut String, title: &str, lines: &[String]) {
    page.push_str(title);
    for line in lines {
        let _ = writeln!(page, "    {}", line.replace(char::is_control, " ").replace("-----", "- - -"));
    }
}
