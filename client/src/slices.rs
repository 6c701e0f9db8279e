//! Parts of buffers that must exist.
//!
//! The offsets were computed or checked before. If one were wrong nevertheless, going on with fewer bytes
//! would hash, send or write *nothing* without a word: a defect must end the work instead.

use holdfast_proto::chunker::Piece;

/// `len` bytes of `buffer` from `start` on.
///
/// # Panics
/// When the buffer does not have them.
#[track_caller]
pub(crate) fn part(buffer: &[u8], start: usize, len: usize) -> &[u8] {
    let Some(part) = start.checked_add(len).and_then(|end| buffer.get(start..end)) else {
        unreachable!("bytes {start} + {len} of a buffer of {}", buffer.len());
    };
    part
}

/// As `part`, to be written to.
///
/// # Panics
/// When the buffer does not have them.
#[track_caller]
pub(crate) fn part_mut(buffer: &mut [u8], start: usize, len: usize) -> &mut [u8] {
    let buffer_len = buffer.len();
    let Some(part) = start.checked_add(len).and_then(|end| buffer.get_mut(start..end)) else {
        unreachable!("bytes {start} + {len} of a buffer of {buffer_len}");
    };
    part
}

/// The bytes of one piece of an extent.
///
/// # Panics
/// When the extent does not have them.
#[track_caller]
pub(crate) fn piece_bytes<'a>(extent: &'a [u8], piece: &Piece) -> &'a [u8] {
    part(extent, piece.offset as usize, piece.len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact() {
        let mut buffer = [1, 2, 3];
        assert_eq!(part(&buffer, 1, 2), [2, 3]);
        assert_eq!(part(&buffer, 3, 0), [0u8; 0]);
        part_mut(&mut buffer, 0, 1).fill(9);
        assert_eq!(piece_bytes(&buffer, &Piece { offset: 0, len: 2, zero: false }), [9, 2]);
    }

    #[test]
    #[should_panic(expected = "bytes 1 + 3 of a buffer of 3")]
    fn a_part_past_the_end_is_a_defect() {
        let _ = part(&[1, 2, 3], 1, 3);
    }

    #[test]
    #[should_panic(expected = "bytes 18446744073709551615 + 1 of")]
    fn a_length_that_overflows_is_a_defect() {
        let _ = part_mut(&mut [1, 2, 3], usize::MAX, 1);
    }
}
