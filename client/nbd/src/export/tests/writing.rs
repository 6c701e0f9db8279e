//! Writing: what the server then has, and what counts as written.

use proptest::prelude::*;

use super::{chunk, export, read};
use crate::error::NbdError;
use crate::testing::{Lie, Model, disk};
use crate::wire::{READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_WRITE_ZEROES};

/// A simple reply to the first request.
fn simple(error: u32) -> Vec<u8> {
    [&0x6744_6698u32.to_be_bytes()[..], &error.to_be_bytes(), &1u64.to_be_bytes()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_written_is_there_and_nothing_else_changes(
        block in prop::sample::select(vec![1u32, 512, 4096]), map: u64, seed: u64, structured: bool,
        flags in prop::sample::select(vec![0, SEND_WRITE_ZEROES, SEND_FLUSH | SEND_WRITE_ZEROES, SEND_FUA]),
        writes in prop::collection::vec((0usize..40_000, 1usize..9000, any::<bool>()), 1..6),
    ) {
        let mut expected = disk(40_960, map);
        let model = Model { min_block: block, flags, structured, seed, ..Model::of(expected.clone()) };
        // Each connection of a model has a disk of its own.
        let export = export(&model, 1);
        for (offset, len, zero) in writes {
            let end = (offset + len).min(expected.len());
            let bytes = if zero { vec![0; end - offset] } else { vec![0xC5; end - offset] };
            if zero {
                export.zero_at(offset as u64, (end - offset) as u64).unwrap();
            } else {
                export.write_at(offset as u64, &bytes).unwrap();
            }
            expected[offset..end].copy_from_slice(&bytes);
        }
        export.flush().unwrap();
        prop_assert!(read(&export, 0, expected.len()).unwrap() == expected);
    }

    #[test]
    fn a_lie_in_the_reply_to_a_write_that_failed_makes_no_success_of_it(structured: bool, at in 0usize..60, bit in 0u32..8) {
        let lie = Some(Lie { at, xor: 1 << bit, after_negotiation: true });
        let export = export(&Model { structured, lie, fails: true, ..Model::of(disk(4096, 1)) }, 1);
        prop_assert!(export.write_at(0, &[1; 512]).is_err());
    }
}

#[test]
fn nothing_is_written_past_the_end() {
    let export = export(&Model { min_block: 512, ..Model::of(disk(4096, 1)) }, 1);
    for (offset, len) in [(4096, 1), (4095, 2), (0, 4097), (u64::MAX - 5, 100), (u64::MAX, 1)] {
        let bytes = vec![1; usize::try_from(len).unwrap()];
        assert!(matches!(export.write_at(offset, &bytes), Err(NbdError::PastEnd(4096))), "{offset} + {len}");
        assert!(matches!(export.zero_at(offset, len), Err(NbdError::PastEnd(4096))), "{offset} + {len}");
    }
    assert_eq!(read(&export, 0, 4096).unwrap(), disk(4096, 1));
}

#[test]
fn an_error_of_the_server_is_no_write_and_leaves_the_connection() {
    let flags = SEND_FLUSH | SEND_WRITE_ZEROES;
    for structured in [true, false] {
        let export = export(&Model { fails: true, structured, flags, ..Model::of(disk(4096, 1)) }, 1);
        for _ in 0..2 {
            let outcomes = [export.write_at(0, &[1; 512]), export.zero_at(0, 512), export.flush()];
            assert!(
                outcomes.iter().all(|outcome| matches!(outcome, Err(NbdError::Answered(_)))),
                "{outcomes:?}"
            );
        }
    }
    let read_only = export(&Model { flags: READ_ONLY, ..Model::of(disk(4096, 1)) }, 1);
    assert!(read_only.is_read_only());
}

#[test]
fn replies_that_do_not_fit_a_write_are_violations() {
    let scripts = [
        ("chunk of kind 1", chunk(1, 1, &[&[0; 12]])),
        ("an end that is none", chunk(0, 0, &[])),
        ("an end that is none", chunk(1, 0, &[b"x"])),
        ("an error of 6 bytes", chunk(1, 1 << 15, &[&[0; 6]])),
        ("request 2", [&simple(0)[..8], &2u64.to_be_bytes()].concat()),
        ("begins with", vec![7; 16]),
    ];
    for (what, script) in scripts {
        let error = export(&Model { script: Some(script), ..Model::of(disk(4096, 0)) }, 1);
        let error = error.write_at(0, &[1; 512]).unwrap_err();
        assert!(matches!(&error, NbdError::Violation(said) if said.contains(what)), "{what}: {error}");
    }
    // An error counts, also before an end that tells none.
    let bad = [chunk(0, 1 << 15 | 1, &[&[0, 0, 0, 28, 0, 0]]), chunk(1, 0, &[])].concat();
    for script in [bad, simple(28)] {
        let full = export(&Model { script: Some(script), ..Model::of(disk(4096, 0)) }, 1);
        let error = full.write_at(0, &[1; 512]).unwrap_err().to_string();
        assert!(error.contains("no space left (error 28)"), "{error}");
    }
    // A chunk where simple replies were agreed on.
    let model = Model { structured: false, script: Some(chunk(1, 0, &[])), ..Model::of(disk(4096, 0)) };
    assert!(matches!(export(&model, 1).write_at(0, &[1; 512]), Err(NbdError::Violation(_))));
}
