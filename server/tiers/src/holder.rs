//! The server that writes to a bucket, and its encoding in the lease.

use std::fmt;

use holdfast_types::clock::utc_text;

/// The first line of a lease.
const MAGIC: &str = "holdfast-lease 1";

/// Longest name, in characters.
const NAME_MAX: usize = 200;

/// Makes a name safe to print: any writer to the bucket can choose it.
pub(crate) fn plain(name: &str) -> String {
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    name.chars().take(NAME_MAX).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

/// The server that holds the lease of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// Display name.
    pub name: String,
    /// Id of its data folder.
    pub server: String,
    /// Incremented each time the lease changes hands or a server starts; everything written carries it.
    pub number: u64,
    pub since_ms: i64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => f.write_str(&self.name),
            number => write!(f, "{} (since {}, writer {number})", self.name, utc_text(self.since_ms)),
        }
    }
}

impl Holder {
    /// Encodes the lease. `once` makes each text unique.
    pub(crate) fn text(&self, once: &str) -> String {
        let Self { name, server, number, since_ms } = self;
        format!("{MAGIC}\nnumber {number}\nserver {server}\nsince {since_ms}\nonce {once}\nname {name}\n")
    }

    /// Decodes a lease; missing fields stay empty.
    pub(crate) fn parse(text: &str) -> Self {
        let mut holder = Self { name: "of an unknown name".to_owned(), ..Self::default() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("number", rest)) => holder.number = rest.parse().unwrap_or_default(),
                Some(("server", rest)) => rest.clone_into(&mut holder.server),
                Some(("since", rest)) => holder.since_ms = rest.parse().unwrap_or_default(),
                Some(("name", rest)) => holder.name = plain(rest),
                _ => {}
            }
        }
        holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden text, as stored in buckets.
    #[test]
    fn a_lease_says_who() {
        let holder =
            Holder { name: "a b:/c".to_owned(), server: "5f".to_owned(), number: 7, since_ms: 1_000_000 };
        let text = holder.text("once");
        assert_eq!(text, "holdfast-lease 1\nnumber 7\nserver 5f\nsince 1000000\nonce once\nname a b:/c\n");
        assert_eq!(Holder::parse(&text), holder);
        let hostile = format!("{MAGIC}\nname a\u{1b}[2J\u{202e}b{}\n", "é".repeat(9000));
        assert_eq!(Holder::parse(&hostile).name, format!("a?[2J?b{}", "é".repeat(193)));
        let unknown = Holder { name: "of an unknown name".to_owned(), ..Holder::default() };
        assert_eq!(Holder::parse("garbage"), unknown);
    }
}
