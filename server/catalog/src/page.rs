//! Reading long lists in pages. A page token is the key of the last item given, so that a page costs the
//! same wherever it lies and nothing is skipped or repeated when rows are added meanwhile. It is opaque to
//! clients and carries a check over itself and the filter: one used with another filter is refused, not
//! misread.

use std::fmt::{Debug, Write};

use super::CatalogError;

/// Weight of the items of one page at most. A page also ends here, so that long error texts or backups of hundreds of
/// disks cost a server no more memory than it has for a page.
pub(super) const PAGE_WEIGHT_MAX_BYTES: usize = 1 << 20;

/// Longest page token: twice a name of 200 bytes and its framing.
const TOKEN_MAX_BYTES: usize = 1024;

const CHECK_BYTES: usize = 8;

/// Size and start of the page to return.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageRequest<'a> {
    /// Items at most; 0 leaves it to the catalog. More than the list allows is lowered to that.
    pub size: u32,
    /// [`Page::next`] of the page before; empty for the first.
    pub token: &'a str,
}

impl PageRequest<'_> {
    /// The first page, of a size the catalog chooses.
    pub const FIRST: Self = Self { size: 0, token: "" };

    pub(super) const fn size_within(self, default: u32, max: u32) -> u32 {
        match self.size {
            0 => default,
            size if size > max => max,
            size => size,
        }
    }
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Token of the next page; `None`: there is no more.
    pub next: Option<String>,
}

/// List that a token belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    Backups,
    Details,
    Vms,
    Audit,
    Tasks,
}

/// The token that continues `list` under `filter` after `key`.
pub(super) fn encode(list: List, filter: &dyn Debug, key: &[u8]) -> String {
    let mut text = String::with_capacity(2 * (CHECK_BYTES + key.len()));
    for byte in check(list, filter, key).iter().chain(key) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key a token carries; `None` for the empty token, which is the beginning.
pub(super) fn decode(list: List, filter: &dyn Debug, token: &str) -> Result<Option<Vec<u8>>, CatalogError> {
    if token.is_empty() {
        return Ok(None);
    }
    let refused = || CatalogError::invalid("the page token is not of this list; begin again without one");
    let bytes = from_hex(token).ok_or_else(refused)?;
    let (found, key) = bytes.split_first_chunk::<CHECK_BYTES>().ok_or_else(refused)?;
    if *found != check(list, filter, key) {
        return Err(refused());
    }
    Ok(Some(key.to_vec()))
}

/// Not a secret and not against forgery (a forged key only moves the window of one's own list): against
/// mistakes.
fn check(list: List, filter: &dyn Debug, key: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key("holdfast 2025 catalog page token v1");
    hasher.update(format!("{list:?} {filter:?}\0").as_bytes()).update(key);
    let mut check = [0; CHECK_BYTES];
    hasher.finalize_xof().fill(&mut check);
    check
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || text.len() > TOKEN_MAX_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_fit_their_list_only() {
        let longest = [7; holdfast_proto::limits::NAME_MAX_BYTES + 16];
        let token = encode(List::Vms, &"a", &longest);
        assert_eq!(decode(List::Vms, &"a", &token).unwrap().unwrap(), longest);
        assert_eq!(decode(List::Vms, &"a", "").unwrap(), None);
        assert!(decode(List::Vms, &"b", &token).is_err());
        assert!(decode(List::Audit, &"a", &token).is_err());
        for bad in [&token[2..], &token[..token.len() - 2], "0", "zz", "äö", &"00".repeat(600)] {
            assert!(matches!(decode(List::Vms, &"a", bad), Err(CatalogError::Invalid { .. })), "{bad}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let size = |size| PageRequest { size, token: "" }.size_within(100, 1000);
        assert_eq!([size(0), size(1), size(1000), size(u32::MAX)], [100, 1, 1000, 1000]);
    }
}
