//! Messages the server sends after Finish, valid and invalid.

use std::os::unix::fs::FileExt as _;

use super::*;

const EXTENT: usize = EXTENT_BYTES as usize;

/// Messages that arrive at the server.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Query(v1::Query),
    /// The chunks of a region.
    Region(Vec<Fingerprint>),
    Extents(v1::Extents),
    Finish {
        read_bytes: u64,
    },
}

/// Runs the loop over `disk` against a server that replies to everything with what `server` gives. Returns how it
/// ended and all that arrived.
async fn talk(
    disk: Arc<dyn Source>,
    progress: Arc<Tally>,
    mut server: impl FnMut(&Said) -> Vec<Reply>,
) -> (Result<(), ClientError>, Vec<Said>) {
    let pipeline = Pipeline::new(&BackupOptions::new("", "vm"), progress).unwrap();
    let written_before = disk.write_times().unwrap();
    let walk = ExtentWalk::new(&*disk, Vec::new(), None).unwrap();
    let pass = Pass::start(&pipeline, &disk, walk, ParentDigests::none()).unwrap();
    let (wire, mut queries) = mpsc::channel::<v1::IngestRequest>(8);
    let (items, mut sent) = mpsc::channel(8);
    let (replies, replied) = mpsc::channel(64);
    let query_loop = QueryLoop::new(&pipeline, &disk, written_before, wire, items).run(pass, replied);
    let mut all = Vec::new();
    let serve = async {
        loop {
            let said = tokio::select! {
                biased;
                Some(request) = queries.recv() => match request.kind {
                    Some(Kind::Query(query)) => Said::Query(query),
                    other => panic!("{other:?} among the queries"),
                },
                Some(item) = sent.recv() => match item {
                    Item::Region(compressing) => {
                        let region = compressing.await.unwrap().unwrap();
                        Said::Region(Fingerprint::split_list(&region.fingerprints).unwrap().collect())
                    }
                    Item::Message(Kind::Extents(extents)) => Said::Extents(extents),
                    Item::Message(Kind::Finish(finish)) => Said::Finish { read_bytes: finish.read_bytes },
                    Item::Message(other) => panic!("{other:?} among the items"),
                },
                else => return,
            };
            for reply in server(&said) {
                // The loop may have ended with an error.
                drop(replies.send(reply).await);
            }
            all.push(said);
        }
    };
    let (outcome, ()) = tokio::join!(query_loop, serve);
    (outcome, all)
}

/// Every chunk asked about is brought by another backup.
fn all_pending(query: &v1::Query) -> Reply {
    let count = query.fingerprints.len() / 32;
    let pending = (0..count.div_ceil(8)).map(|byte| u8::MAX >> (8 - (count - byte * 8).min(8)));
    let bitmap = vec![0; count.div_ceil(8)].into();
    Reply::Need(v1::Need { sequence: query.sequence, bitmap, pending: pending.collect::<Vec<_>>().into() })
}

fn again(extents: &[(u64, &[Fingerprint])]) -> Reply {
    let extent = |(index, chunks): &(u64, &[Fingerprint])| {
        let fingerprints: Vec<u8> = chunks.iter().flat_map(|chunk| *chunk.as_bytes()).collect();
        v1::AgainExtent { index: *index, fingerprints: fingerprints.into() }
    };
    Reply::Again(v1::Again { extents: extents.iter().map(extent).collect() })
}

/// A server that is told everything is pending and then asks for what `script` says, Finish by Finish.
fn scripted(script: Vec<Reply>) -> impl FnMut(&Said) -> Vec<Reply> {
    let mut script = script.into_iter();
    move |said| match said {
        Said::Query(query) => vec![all_pending(query)],
        Said::Finish { .. } => vec![script.next().unwrap_or(Reply::Finished)],
        Said::Region(_) | Said::Extents(_) => Vec::new(),
    }
}

/// Three extents of noise and what they are cut into.
fn noisy() -> (Vec<u8>, Vec<Vec<Fingerprint>>) {
    let bytes = noise(1, 3 * EXTENT);
    let cut = |extent: &[u8]| {
        let pieces = holdfast_proto::chunker::Chunker::default().cut(extent);
        let name = |piece| Fingerprint::of(crate::slices::piece_bytes(extent, piece));
        pieces.iter().map(name).collect::<Vec<_>>()
    };
    let chunks = bytes.chunks(EXTENT).map(cut).collect();
    (bytes, chunks)
}

/// Dates a write later than any before, however coarse the file system's clock is.
fn written_to(file: &std::fs::File) {
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(10)).unwrap();
}

fn regions(said: &[Said]) -> Vec<Fingerprint> {
    said.iter()
        .filter_map(|said| if let Said::Region(names) = said { Some(names) } else { None })
        .flatten()
        .copied()
        .collect()
}

fn finishes(said: &[Said]) -> Vec<u64> {
    said.iter()
        .filter_map(|said| if let Said::Finish { read_bytes } = said { Some(*read_bytes) } else { None })
        .collect()
}

#[tokio::test]
async fn what_others_bring_is_described_and_sent_only_when_asked_for_again() {
    let (bytes, chunks) = noisy();
    let disk = Arc::new(MemorySource::new(bytes));
    let (first, last) = (&chunks[0][3..5], &chunks[2][..2]);
    let script = vec![again(&[(2, last), (0, first)]), again(&[(2, &chunks[2][7..8])])];
    let progress = Arc::new(Tally::default());
    let (outcome, said) = talk(disk, Arc::clone(&progress), scripted(script)).await;
    outcome.unwrap();
    assert_eq!(regions(&said), [first, last, &chunks[2][7..8]].concat(), "in disk order, round by round");
    let extent = EXTENT as u64;
    assert_eq!(
        finishes(&said),
        [3 * extent, 5 * extent, 6 * extent],
        "only the extents asked for are read again"
    );
    let described: usize = said
        .iter()
        .map(|said| if let Said::Extents(extents) = said { extents.chunked.len() } else { 0 })
        .sum();
    assert_eq!(described, 3, "extents are not described again");
    let done = progress.snapshot().done;
    assert_eq!((done.done_bytes, done.data_bytes), (3 * extent, 3 * extent), "progress counts the disk once");
    assert!(done.new_bytes > 0);
    let notices = progress.take_notices();
    let expected = [2, 1].map(|extents| Notice::ReadingAgain { disk: "d".to_owned(), extents });
    assert_eq!(notices, expected);
}

#[tokio::test]
async fn requests_that_make_no_sense_end_the_stream() {
    let (bytes, chunks) = noisy();
    let disk: Arc<dyn Source> = Arc::new(MemorySource::new(bytes));
    let one = &chunks[1][..1];
    let many: Vec<_> = (0..1025u32).map(|number| Fingerprint::of(&number.to_le_bytes())).collect();
    let need = || Reply::Need(v1::Need::default());
    for (script, finished, word) in [
        (vec![Reply::Again(v1::Again::default())], 1, "for 0 chunks"),
        (vec![again(&[(1, &many)])], 1, "for 1025 chunks"),
        (vec![again(&[(3, one)])], 1, "of a disk that has 3"),
        (vec![again(&[(0, one)])], 1, "which extent 0 of disk d does not have"),
        (vec![again(&[(1, one)]), again(&[(1, one)])], 2, "which it was sent"),
        (vec![need()], 1, "after the last query"),
    ] {
        let (outcome, said) = talk(Arc::clone(&disk), Arc::default(), scripted(script)).await;
        let error = outcome.unwrap_err();
        assert!(matches!(&error, ClientError::Protocol(text) if text.contains(word)), "{error}, not {word}");
        assert_eq!(finishes(&said).len(), finished, "{word}");
    }
}

#[tokio::test]
async fn nothing_but_answers_may_come_before_the_disk_was_sent() {
    let (bytes, chunks) = noisy();
    let disk: Arc<dyn Source> = Arc::new(MemorySource::new(bytes));
    let early: [fn(&[Fingerprint]) -> Reply; 2] = [|chunks| again(&[(0, chunks)]), |_| Reply::Finished];
    for reply in early {
        // Otherwise it is a good server.
        let server = |said: &Said| match said {
            Said::Query(query) => vec![reply(&chunks[0][..1]), all_pending(query)],
            Said::Finish { .. } => vec![Reply::Finished],
            _ => Vec::new(),
        };
        let (outcome, said) = talk(Arc::clone(&disk), Arc::default(), server).await;
        let error = outcome.unwrap_err();
        let word = "before all of the disk was sent";
        assert!(matches!(&error, ClientError::Protocol(text) if text.contains(word)), "{error}");
        assert!(finishes(&said).is_empty());
    }
}

#[tokio::test]
async fn a_disk_written_to_meanwhile_is_an_error_only_where_the_chunks_are_gone() {
    let (bytes, chunks) = noisy();
    let asked = &chunks[1][1..2];
    // Where the extent's second and last chunk are.
    let second =
        holdfast_proto::chunker::Chunker::default().cut(&bytes[EXTENT..2 * EXTENT])[1].offset as usize;
    for (offset, overwritten) in [(EXTENT + second + 5, true), (2 * EXTENT - 5, false), (5, false)] {
        let (file, disk) = image::raw(&bytes);
        let server = |said: &Said| match said {
            Said::Query(query) => vec![all_pending(query)],
            Said::Finish { read_bytes } if *read_bytes == bytes.len() as u64 => {
                let changed = bytes[offset] ^ 1;
                file.as_file().write_all_at(&[changed], offset as u64).unwrap();
                written_to(file.as_file());
                vec![again(&[(1, asked)])]
            }
            Said::Finish { .. } => vec![Reply::Finished],
            _ => Vec::new(),
        };
        let (outcome, said) = talk(Arc::new(disk), Arc::default(), server).await;
        if overwritten {
            let error = outcome.unwrap_err();
            assert!(matches!(error, ClientError::Source(SourceError::Written { .. })), "{error}");
            let text = error.to_string();
            for word in ["disk d", "was written to during the backup", &EXTENT.to_string(), "snapshot"] {
                assert!(text.contains(word), "no {word:?} in {text}");
            }
            assert_eq!(finishes(&said).len(), 1);
        } else {
            outcome.unwrap();
            assert_eq!(regions(&said), asked);
        }
    }
}

#[tokio::test]
async fn a_disk_emptied_meanwhile_is_an_error() {
    let (bytes, chunks) = noisy();
    let (file, disk) = image::raw(&bytes);
    let server = |said: &Said| match said {
        Said::Query(query) => vec![all_pending(query)],
        Said::Finish { .. } => {
            file.as_file().set_len(0).unwrap();
            file.as_file().set_len(bytes.len() as u64).unwrap();
            written_to(file.as_file());
            vec![again(&[(1, &chunks[1][..1])])]
        }
        _ => Vec::new(),
    };
    let (outcome, _) = talk(Arc::new(disk), Arc::default(), server).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, ClientError::Source(SourceError::Written { .. })), "{error}");
}

/// An older server knows nothing of pending chunks: everything it lacks is sent at once.
#[tokio::test]
async fn a_server_that_never_says_pending_gets_everything() {
    let (bytes, chunks) = noisy();
    let server = |said: &Said| match said {
        Said::Query(query) => {
            let bitmap = vec![u8::MAX; (query.fingerprints.len() / 32).div_ceil(8)].into();
            vec![Reply::Need(v1::Need { sequence: query.sequence, bitmap, ..v1::Need::default() })]
        }
        Said::Finish { .. } => vec![Reply::Finished],
        _ => Vec::new(),
    };
    let (outcome, said) = talk(Arc::new(MemorySource::new(bytes)), Arc::default(), server).await;
    outcome.unwrap();
    let all: HashSet<_> = regions(&said).into_iter().collect();
    assert_eq!(all, chunks.concat().into_iter().collect());
    assert_eq!(finishes(&said).len(), 1);
}
