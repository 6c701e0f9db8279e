//! Every bound both sides rely on, with its arithmetic (A10). A peer that exceeds one is refused, never served
//! partly.

/// Unit of change detection and of recipes. 4 MiB keeps a 16 GiB disk's digests at 128 KiB.
pub const EXTENT_BYTES: u32 = 4 << 20;

/// FastCDC bounds. Halving them saves 2 % of the stored bytes for twice the metadata.
pub const CHUNK_MIN_BYTES: u32 = 8 << 10;
pub const CHUNK_AVG_BYTES: u32 = 16 << 10;
pub const CHUNK_MAX_BYTES: u32 = 64 << 10;

/// Pieces (chunks and zero runs) one extent can have at most. Cutting yields at most
/// `EXTENT_BYTES / CHUNK_MIN_BYTES` + 1 = 513 when data is contiguous; runs of zeros end chunks early and
/// add two pieces each, and are at least [`ZERO_RUN_MIN_BYTES`] long, so 3 × 128 more.
pub const EXTENT_PIECES_MAX: usize = 1024;

/// Zeros shorter than this stay inside the chunk around them.
pub const ZERO_RUN_MIN_BYTES: u32 = 32 << 10;

/// Zero runs begin and end on this grid: the block size of nearly every file system.
pub const ZERO_RUN_ALIGN_BYTES: u32 = 4 << 10;

/// Plain bytes of one region at most.
pub const REGION_PLAIN_MAX_BYTES: u32 = 256 << 10;

/// Bytes that encryption by an agent adds to a region: salt, hash of the table of chunks, codec, tag and commitment.
pub const SEALED_OVERHEAD_BYTES: u32 = 32 + 32 + 1 + 16 + 32;

/// Stored bytes of one region at most: incompressible regions are stored as they are, and may be sealed.
pub const REGION_STORED_MAX_BYTES: u32 = REGION_PLAIN_MAX_BYTES + SEALED_OVERHEAD_BYTES;

/// Chunks of one region at most. 256 KiB of recipe nodes of at least 64 bytes each.
pub const REGION_CHUNKS_MAX: usize = 4096;

/// Stored bytes of one container, header and directory included, at most.
pub const CONTAINER_MAX_BYTES: u32 = 32 << 20;

/// Fingerprints in one query at most (32 KiB on the wire).
pub const QUERY_FINGERPRINTS_MAX: usize = 1024;

/// Chunks that one answer asks to be sent again at most (32 KiB on the wire, and the numbers of their extents).
pub const AGAIN_CHUNKS_MAX: usize = 1024;

/// Extents described by one message at most (each at most 513 × 36 B, so under 600 KiB).
pub const EXTENTS_PER_MESSAGE_MAX: usize = 32;

/// Extent ranges in one message at most.
pub const RANGES_PER_MESSAGE_MAX: usize = 4096;

/// Bytes of a disk that count as one sent byte where it counts whether an agent gets on: one that reads an unchanged disk
/// tells of 64 MiB by a few bytes.
pub const READ_FOR_SENT: u64 = 64;

/// Least progress of a stream while others wait for its slot, in sent bytes a minute; one that makes less gives way.
pub const MOVES_BYTES: u64 = 1 << 20;

/// Extents that ranges of one message cover once it is sent: 16, 64 MiB. So an agent that reads fast enough to keep its slot
/// tells of it in time.
pub const RANGE_EXTENTS: u64 = MOVES_BYTES * READ_FOR_SENT / EXTENT_BYTES as u64;

/// A gRPC message at most. The largest legitimate one is an `Extents` message.
pub const MESSAGE_MAX_BYTES: usize = 8 << 20;

/// A message of a lane at most: a region of [`REGION_STORED_MAX_BYTES`] with [`REGION_CHUNKS_MAX`] chunks of 36 bytes is
/// 401 KiB. Longer descriptions of extents go over the stream itself.
pub const LANE_MESSAGE_MAX_BYTES: usize = 448 << 10;

/// Lanes of one stream at most: their queues of one message each are together 7 MiB.
pub const LANES_MAX: u32 = 16;

/// Digests in one `DigestBlock` (256 KiB).
pub const DIGESTS_PER_BLOCK: usize = 8192;

/// Extents laid out in one restore window: 64 MiB, which is also what writing to a pipe must buffer.
pub const WINDOW_EXTENTS: usize = 16;

/// Disks of one VM at most.
pub const DISKS_PER_BACKUP_MAX: usize = 256;

/// A virtual disk at most: 1 PiB (2²⁸ extents).
pub const DISK_MAX_BYTES: u64 = 1 << 50;

/// Names of namespaces, VMs, jobs and disks, in bytes of UTF-8 at most.
pub const NAME_MAX_BYTES: usize = 200;

/// Longest reason an agent may give for an abort, in bytes.
pub const REASON_MAX_BYTES: usize = 2000;

/// Restore points that one request deletes, locks, holds or releases at most: 1,000 ULIDs are 28 KiB on the wire.
pub const SELECTION_MAX: usize = 1000;

/// VMs that one request to forget names at most: 256 of the longest names are 51 KiB on the wire.
pub const FORGET_VMS_MAX: usize = 256;

/// Longest text of a verification, in bytes.
pub const VERIFICATION_DETAIL_MAX_BYTES: usize = 2000;

/// Extents with a false digest that one report of a verification may name: with the longest names 112 KB in JSON.
pub const FALSE_DIGESTS_MAX: usize = 256;

/// Chunks that are not what their fingerprints say, in a namespace that is end-to-end encrypted, that one report of a
/// verification may name: with the longest names 80 KB in JSON.
pub const FALSE_CHUNKS_MAX: usize = 128;

/// Regions of such a namespace that agents reported and that were not sent again yet, at most: 4 GiB.
pub const REPORTED_REGIONS_MAX: usize = 1 << 14;

/// Regions of such a namespace that a restore of a few extents may pass over, because they did not open: 70 KB of a request.
pub const PASSED_OVER_MAX: usize = 2048;

/// Bytes of what should have been an identifier that an error message repeats.
pub const ID_SHOWN_BYTES: usize = 40;

/// Bytes one `ReadRange` call may ask for.
pub const READ_RANGE_MAX_BYTES: u64 = 256 << 20;

/// Number of extents of a disk of `size_bytes`.
pub const fn extent_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(EXTENT_BYTES as u64)
}

/// Length in bytes of extent `index` of a disk of `size_bytes`; 0 past the end.
pub const fn extent_len(size_bytes: u64, index: u64) -> u32 {
    let start = index.saturating_mul(EXTENT_BYTES as u64);
    let left = size_bytes.saturating_sub(start);
    if left >= EXTENT_BYTES as u64 {
        EXTENT_BYTES
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "left < EXTENT_BYTES, a u32")]
        let short = left as u32;
        short
    }
}

/// Returns true if a character could make a text look like another one on a terminal or in a report: control
/// characters, line and paragraph separators, and all that reorder a line of text (Unicode's `Bidi_Control`).
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` from a peer as it can be shown anywhere: [deceptive](is_deceptive) characters are escaped as Rust writes
/// them (`\n`, `\u{202e}`), and what does not fit into `max_bytes` is cut off.
pub fn plain_text(text: &str, max_bytes: usize) -> String {
    // No character takes fewer bytes afterwards: what lies behind these cannot fit.
    let mut plain = String::with_capacity(text.len().min(max_bytes));
    for c in text.chars() {
        let before = plain.len();
        if is_deceptive(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
        if plain.len() > max_bytes {
            plain.truncate(before);
            break;
        }
    }
    plain
}

/// Checks that `name` may name a namespace, VM, job, disk or token: 1 to [`NAME_MAX_BYTES`] bytes, no
/// [deceptive](is_deceptive) characters (they would break reports, or make one name look like another), no
/// leading or trailing white space; and not `.` or `..`, which no address can hold.
///
/// # Errors
/// Says what is wrong with the name, in words fit for an administrator.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("the {what} name is empty"));
    }
    if name.len() > NAME_MAX_BYTES {
        return Err(format!("the {what} name is {} bytes long; the limit is {NAME_MAX_BYTES}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the {what} name {name:?} contains a control character"));
    }
    if name.chars().any(is_deceptive) {
        return Err(format!(
            "the {what} name {name:?} contains a character that changes the direction of text"
        ));
    }
    if name == "." || name == ".." {
        return Err(format!("the {what} name {name:?} means another place in addresses and paths"));
    }
    if name.trim() != name {
        return Err(format!("the {what} name {name:?} begins or ends with white space"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_cover_a_disk_exactly() {
        for size in [0u64, 1, 4095, 4 << 20, (4 << 20) + 1, 10 << 20, DISK_MAX_BYTES] {
            let count = extent_count(size);
            let last = if count == 0 { 0 } else { u64::from(extent_len(size, count - 1)) };
            assert_eq!(count.saturating_sub(1) * u64::from(EXTENT_BYTES) + last, size, "size {size}");
            assert_eq!(extent_len(size, count), 0);
        }
    }

    #[test]
    fn names_that_break_reports_are_refused() {
        assert!(check_name("VM", "web-01 (Berlin)").is_ok());
        for bad in ["", ".", "..", " web", "web\t", "a\nb", &"x".repeat(NAME_MAX_BYTES + 1)] {
            assert!(check_name("VM", bad).is_err(), "{bad:?}");
        }
        assert!(check_name("VM", "שרת־1 خادم").is_ok(), "right-to-left letters as such are fine");
    }

    #[test]
    fn names_that_look_like_others_are_refused() {
        for c in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202e}', '\u{2066}',
            '\u{2069}',
        ] {
            let refused = check_name("VM", &format!("web{c}10")).unwrap_err();
            assert!(!refused.contains(c) && refused.contains("u{"), "shows it escaped: {refused}");
        }
    }

    #[test]
    fn texts_of_peers_are_escaped_and_cut() {
        assert_eq!(plain_text("no room: größer", 100), "no room: größer");
        assert_eq!(plain_text("a\n\u{1b}[2J\u{202e}b", 100), "a\\n\\u{1b}[2J\\u{202e}b");
        assert_eq!(plain_text("aaéé", 5), "aaé");
        assert_eq!(plain_text("aa\u{202e}", 9), "aa", "an escape is shown whole or not at all");
        assert_eq!(plain_text(&"x".repeat(9 << 20), 40).len(), 40);
    }
}
