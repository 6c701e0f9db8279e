mod writing;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::testing::{Lie, Model, PATIENCE, disk, plain};

/// An export of a model, read over `count` connections.
fn export(model: &Model, count: usize) -> Export {
    let connect = || {
        let mut connection = model.connect(&plain(), PATIENCE).unwrap();
        // A length that is a lie is waited for. Giving up early costs these tests nothing but what they show.
        if model.lie.is_some() {
            connection.give(Duration::from_millis(200));
        }
        connection
    };
    let connections: Vec<Connection> = (0..count).map(|_| connect()).collect();
    Export::over(*connections[0].agreed(), connections)
}

fn read(export: &Export, offset: usize, len: usize) -> Result<Vec<u8>, NbdError> {
    let mut buffer = vec![0xEE; len];
    export.read_at(offset as u64, &mut buffer).map(|()| buffer)
}

/// Zeros up to the end.
fn whole(len: usize) -> Vec<Extent> {
    vec![Extent { len: len as u64, zero: true }]
}

/// The extents must cover the range and promise zeros only where there are some.
fn assert_true_of(extents: &[Extent], disk: &[u8], range: Range<usize>) {
    let mut at = range.start;
    for Extent { len, zero } in extents {
        let end = at + usize::try_from(*len).unwrap();
        assert!(*len > 0 && end <= disk.len(), "{extents:?}");
        assert!(!zero || disk[at..end].iter().all(|byte| *byte == 0), "data at {at}..{end}: {extents:?}");
        at = end;
    }
    assert!(at >= range.end, "{extents:?} end at {at}, before {range:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_a_server_has_is_read_whatever_the_order_of_its_chunks(
        blocks in 1usize..60, block in prop::sample::select(vec![1u32, 512, 4096]), map: u64, seed: u64,
        structured: bool, allocation: bool, knows_go: bool, from in 0usize..30_000, len in 1usize..300_000,
    ) {
        let bytes = disk(blocks * 4096, map);
        let min_block = if knows_go { block } else { 1 };
        let model = Model { min_block, structured, allocation, knows_go, seed, ..Model::of(bytes.clone()) };
        let export = export(&model, 1);
        prop_assert_eq!(export.size_bytes(), bytes.len() as u64);
        let from = from % bytes.len();
        let end = (from + len).min(bytes.len());
        prop_assert!(read(&export, from, end - from).unwrap() == bytes[from..end]);
        let extents = export.extents(from as u64..end as u64).unwrap();
        assert_true_of(&extents, &bytes, from..end);
        prop_assert!(extents.windows(2).all(|pair| pair[0].zero != pair[1].zero), "{:?}", extents);
        let has_zeros = structured && allocation && bytes.iter().all(|byte| *byte == 0);
        prop_assert!(!has_zeros || extents == whole(bytes.len() - from));
        // In step still.
        prop_assert!(read(&export, 0, bytes.len()).unwrap() == bytes);
    }

    #[test]
    fn a_lie_in_a_reply_is_an_error_and_never_other_bytes(
        map: u64, seed: u64, structured: bool, at in 0usize..400, bit in 0u32..8, status: bool,
    ) {
        let lie = Some(Lie { at, xor: 1 << bit, after_negotiation: true });
        let bytes = disk(20_000, map);
        let model = Model { structured, seed, lie, ..Model::of(bytes.clone()) };
        let export = export(&model, 1);
        if status && structured {
            // The server may say what it likes of zeros; what it says must be of the right bytes.
            if let Ok(extents) = export.extents(1000..9000) {
                let total: u64 = extents.iter().map(|extent| extent.len).sum();
                prop_assert!((8000..=19_000).contains(&total), "{:?}", extents);
            }
        } else if let Ok(read) = read(&export, 1000, 8000) {
            prop_assert!(read == bytes[1000..9000], "a lie at byte {} was believed", at);
        }
    }

    #[test]
    fn a_lie_while_negotiating_does_no_harm(at in 0usize..250, bit in 0u32..8) {
        let lie = Some(Lie { at, xor: 1 << bit, after_negotiation: false });
        let model = Model { lie, ..Model::of(disk(5000, 1)) };
        // A length that is too large makes the client wait for bytes that do not come.
        if let Ok(mut connection) = model.connect(&plain(), Duration::from_millis(100)) {
            connection.give(Duration::from_millis(100));
            let export = Export::over(*connection.agreed(), vec![connection]);
            drop(read(&export, 0, 100));
        }
    }

    #[test]
    fn any_bytes_in_place_of_a_server_are_an_error(bytes: Vec<u8>, greets: bool) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let greeting = [&b"NBDMAGICIHAVEOPT\0\x03"[..], &0x0003_e889_0455_65a9u64.to_be_bytes(), &8u32.to_be_bytes()].concat();
        if greets {
            theirs.write_all(&greeting).unwrap();
        }
        theirs.write_all(&bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        prop_assert!(Connection::over(ours.into(), &plain(), PATIENCE).is_err());
    }
}

#[test]
fn nothing_is_read_past_the_end() {
    let model = Model { min_block: 512, ..Model::of(disk(4096, 1)) };
    let export = export(&model, 1);
    let beyond = model.connect(&plain(), PATIENCE).unwrap().read(3584, &mut [0; 1024]);
    assert!(matches!(beyond, Err(NbdError::PastEnd(4096))));
    for (offset, len) in [(4096, 1), (4095, 2), (0, 4097), (usize::MAX - 5, 100)] {
        assert!(matches!(read(&export, offset, len), Err(NbdError::PastEnd(4096))), "{offset} + {len}");
    }
    for range in [0..4097, 4096..4096, 9000..9001] {
        assert!(matches!(export.extents(range), Err(NbdError::PastEnd(4096))));
    }
    assert_eq!(read(&export, 4095, 1).unwrap(), disk(4096, 1)[4095..]);
}

#[test]
fn an_error_of_the_server_is_told_in_its_words_and_leaves_the_connection() {
    for structured in [true, false] {
        let export = export(&Model { fails: true, structured, ..Model::of(disk(4096, 1)) }, 1);
        for _ in 0..2 {
            let error = read(&export, 0, 4096).unwrap_err().to_string();
            assert!(error.contains("input/output error"), "{error}");
            assert!(!structured || error.contains("bad  [1mmedium"), "nothing for a terminal: {error}");
        }
        assert!(!structured || matches!(export.extents(0..4096), Err(NbdError::Answered(_))));
    }
}

#[test]
fn threads_share_connections_and_the_last_one_lost_is_an_error() {
    let bytes = disk(300_000, 0xF0F0_1234);
    let export = export(&Model::of(bytes.clone()), 3);
    std::thread::scope(|scope| {
        for first in 0..8 {
            let (export, bytes) = (&export, &bytes);
            scope.spawn(move || {
                for at in (first * 1000..bytes.len() - 9000).step_by(8000) {
                    assert!(read(export, at, 9000).unwrap() == bytes[at..at + 9000]);
                }
            });
        }
    });
    let lie = Some(Lie { at: 0, xor: 1, after_negotiation: true });
    let broken = super::tests::export(&Model { lie, ..Model::of(bytes) }, 2);
    for _ in 0..2 {
        assert!(matches!(read(&broken, 0, 10), Err(NbdError::Violation(_))));
    }
    assert!(matches!(read(&broken, 0, 10), Err(NbdError::Lost)));
}

#[test]
fn a_server_that_stops_answering_is_given_up() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let begun = Instant::now();
    let waits = Connection::over(ours.into(), &plain(), Duration::from_millis(50));
    assert!(matches!(waits, Err(NbdError::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    drop(theirs);
    // A byte now and then does not help: the deadline is for all of it.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        for byte in b"NBDMAGICIHAVEOPT" {
            if theirs.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    let waits = Connection::over(ours.into(), &plain(), Duration::from_millis(100));
    assert!(matches!(waits, Err(NbdError::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut));
}

#[test]
fn no_memory_is_taken_for_what_a_server_announces() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let head = [0x0003_e889_0455_65a9u64.to_be_bytes(), (8u64 << 32 | 1).to_be_bytes()].concat();
    theirs.write_all(&[b"NBDMAGICIHAVEOPT\0\x03", &*head, &u32::MAX.to_be_bytes()].concat()).unwrap();
    let announced = Connection::over(ours.into(), &plain(), PATIENCE);
    assert!(matches!(announced, Err(NbdError::Violation(what)) if what.contains("4294967295 bytes")));
}

/// A chunk of the reply to the first request.
fn chunk(flags: u16, kind: u16, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = u32::try_from(body.len()).unwrap();
    let head = [&[0x66, 0x8e, 0x33, 0xef], &flags.to_be_bytes()[..], &kind.to_be_bytes()].concat();
    [head, 1u64.to_be_bytes().to_vec(), len.to_be_bytes().to_vec(), body].concat()
}

#[test]
fn replies_that_do_not_fit_the_request_are_violations() {
    let (at, id) = (|at: u64| at.to_be_bytes(), 0x00C0_FFEEu32.to_be_bytes());
    let data = |flags, from| chunk(flags, 1, &[&at(from), &[0xAA; 50]]);
    let status = |flags, id: [u8; 4], extents: &[u32]| chunk(flags, 5, &[&id, &extents_of(extents)]);
    let hole = |flags, from, len: u32| chunk(flags, 2, &[&at(from), &len.to_be_bytes()]);
    // 100 bytes from 100 on are asked for.
    let reads = [
        ("told twice", [data(0, 100), data(0, 100), data(1, 150)].concat()),
        ("told twice", [data(0, 100), hole(1, 149, 51)].concat()),
        ("leaves out", [data(0, 100), data(1, 150)].concat().split_off(20 + 58)),
        ("leaves out", chunk(1, 0, &[])),
        ("beyond the request", data(1, 99)),
        ("beyond the request", data(1, 151)),
        ("beyond the request", hole(1, 100, 101)),
        ("beyond the request", hole(1, 100, 0)),
        ("beyond the request", hole(1, u64::MAX, 2)),
        ("wrong length", chunk(1, 1, &[&at(100)])),
        ("wrong length", chunk(1, 2, &[&at(100), &[0; 5]])),
        ("an end that is none", chunk(0, 0, &[])),
        ("an end that is none", chunk(1, 0, &[b"x"])),
        ("kind 5", status(1, id, &[100])),
        ("an error of 5 bytes", chunk(1, 1 << 15, &[&[0; 5]])),
        ("an error of 7 bytes", chunk(1, 1 << 15, &[&[0, 0, 0, 5, 0, 9, 0]])),
        ("an error of 6 bytes", chunk(1, 1 << 15, &[&[0; 6]])),
        ("an error of 9000 bytes", chunk(1, 1 << 15, &[&[1; 9000]])),
        ("simple reply", [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &1u64.to_be_bytes()].concat()),
        ("request 2", [&chunk(1, 0, &[])[..8], &2u64.to_be_bytes(), &[0; 4]].concat()),
    ];
    let statuses = [
        ("no bytes", status(1, id, &[50, 0, 50])),
        ("another context", status(1, [1, 2, 3, 4], &[100])),
        ("two statuses", [status(0, id, &[100]), status(1, id, &[100])].concat()),
        ("without a status", chunk(1, 0, &[])),
        ("a status of 4 bytes", status(1, id, &[])),
        ("a status of 13 bytes", chunk(1, 5, &[&id, &[0; 9]])),
        ("a status of 8388620 bytes", chunk(1, 5, &[&id, &extents_of(&vec![1; (1 << 20) + 1])])),
        ("a status of 101 bytes for a question about 100", status(1, id, &[100, 1])),
        ("without any extent", [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &1u64.to_be_bytes()].concat()),
        ("kind 1", data(1, 100)),
    ];
    let model = Model::of(disk(4096, 0));
    let error = |script: &Vec<u8>, read_it: bool| {
        let export = export(&Model { script: Some(script.clone()), ..model.clone() }, 1);
        let outcome =
            if read_it { read(&export, 100, 100).map(drop) } else { export.extents(100..200).map(drop) };
        outcome.unwrap_err()
    };
    for (script, what, read_it) in (reads.iter().map(|(what, script)| (script, what, true)))
        .chain(statuses.iter().map(|(what, script)| (script, what, false)))
    {
        let error = error(script, read_it);
        assert!(matches!(&error, NbdError::Violation(said) if said.contains(what)), "{what}: {error}");
    }
}

/// Descriptors of zeros and data by turns.
fn extents_of(lengths: &[u32]) -> Vec<u8> {
    let extent = |(number, len): (usize, &u32)| {
        [len.to_be_bytes(), [0, 0, 0, u8::from(number % 2 == 0) << 1]].concat()
    };
    lengths.iter().enumerate().flat_map(extent).collect()
}

#[test]
fn a_status_that_reaches_beyond_the_export_is_cut() {
    let script = Some(chunk(1, 5, &[&0x00C0_FFEEu32.to_be_bytes(), &extents_of(&[u32::MAX])]));
    let export = export(&Model { script, ..Model::of(disk(4096, 0)) }, 1);
    assert_eq!(export.extents(100..200).unwrap(), whole(3996));
}

#[test]
fn a_status_of_less_than_a_block_is_not_asked_for_again_and_again() {
    let script = Some(chunk(1, 5, &[&0x00C0_FFEEu32.to_be_bytes(), &extents_of(&[512])]));
    let export = export(&Model { script, min_block: 4096, ..Model::of(disk(8192, 0)) }, 1);
    assert!(
        matches!(export.extents(600..700), Err(NbdError::Violation(what)) if what.contains("less than a block"))
    );
}

#[test]
fn zeros_are_followed_to_their_end_in_one_call() {
    let mut bytes = vec![0; 100_000];
    let all = export(&Model::of(bytes.clone()), 1);
    assert_eq!(all.extents(10..20).unwrap(), whole(99_990));
    bytes[81_920] = 0x80;
    let part = export(&Model::of(bytes), 1).extents(0..20).unwrap();
    assert_eq!(part.first(), Some(&Extent { len: 81_920, zero: true }));
}
