//! Reading part of a disk whose segments are known: holes are filled with zeros, not read.

use super::{Content, Segment, Source, SourceError};

/// Fills `buffer` from `offset` on, by `segments`, which are in order and cover all of it. Returns how many
/// bytes were read from the source.
///
/// # Errors
/// Those of [`Source::read_at`].
///
/// # Panics
/// When the segments leave a part of `buffer` out: it would keep bytes of another disk.
pub fn read(
    source: &dyn Source,
    segments: &[Segment],
    offset: u64,
    buffer: &mut [u8],
) -> Result<u64, SourceError> {
    let end = offset + buffer.len() as u64;
    let (mut rest, mut position, mut read_bytes) = (buffer, offset, 0);
    for segment in segments {
        let stop = segment.end.min(end);
        if stop <= position {
            continue;
        }
        assert!(segment.start <= position, "no segment covers {position}..{} of a disk", segment.start);
        let len = usize::try_from(stop - position).unwrap_or_else(|_| unreachable!("longer than the buffer"));
        let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
        if segment.content == Content::Hole {
            part.fill(0);
        } else {
            source.read_at(position, part)?;
            read_bytes += stop - position;
        }
        (rest, position) = (after, stop);
    }
    assert!(position == end, "segments end at {position}, before {end}");
    Ok(read_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::{MemorySource, image};

    #[test]
    fn any_part_reads_as_the_disk_and_holes_are_not_read() {
        let bytes = image::sparse(1 << 20, &[0, 300_000, 700_000]);
        let disk = MemorySource::sparse(bytes.clone());
        let segments = disk.segments(0..1 << 20).unwrap();
        for (start, end) in [(0, 1 << 20), (4095, 4097), (299_000, 300_001), (1000, 1000), (500_000, 600_000)]
        {
            let mut buffer = vec![0xEE; end - start];
            let read_bytes = read(&disk, &segments, start as u64, &mut buffer).unwrap();
            assert!(buffer == bytes[start..end], "{start}..{end}");
            assert!(read_bytes <= 3 * 4096, "{read_bytes} bytes read of {start}..{end}");
        }
        let read_bytes = read(&disk, &segments, 500_000, &mut [0; 100_000]).unwrap();
        assert_eq!(read_bytes, 0, "a hole");
    }

    #[test]
    #[should_panic(expected = "no segment covers 10..20")]
    fn a_gap_between_segments_is_not_skipped() {
        let disk = MemorySource::new(vec![1; 100]);
        let segment = |start, end| Segment { start, end, content: Content::Data };
        drop(read(&disk, &[segment(0, 10), segment(20, 100)], 0, &mut [0; 100]));
    }

    #[test]
    #[should_panic(expected = "segments end at 50, before 100")]
    fn segments_that_end_early_do_not_leave_old_bytes() {
        let disk = MemorySource::new(vec![1; 100]);
        drop(read(&disk, &[Segment { start: 0, end: 50, content: Content::Data }], 0, &mut [0; 100]));
    }
}
