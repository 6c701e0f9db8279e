use std::collections::HashSet;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;

use super::*;
use crate::backup::BackupOptions;
use crate::backup::scan::Scanner;
use crate::pool::BufferPool;
use crate::progress::{Silent, Tally};
use crate::source::testing::MemorySource;
use crate::source::testing::image::{self, noise};

mod again;

fn pipeline() -> Pipeline {
    Pipeline::new(&BackupOptions::new("", "vm"), Arc::new(Silent)).unwrap()
}

/// Runs the loop over a disk of ten extents whose scan comes to these results, with a server that is satisfied.
/// Returns how it ended, and what it wants to be sent.
async fn run(results: Vec<Scanned>) -> (Result<(), ClientError>, Vec<Kind>) {
    let disk: Arc<dyn Source> = Arc::new(MemorySource::hole(10 * u64::from(EXTENT_BYTES)));
    let pipeline = pipeline();
    let walk = ExtentWalk::new(&*disk, Vec::new(), None).unwrap();
    let pool = BufferPool::new(1, 1);
    let (scanner, _) =
        Scanner::start(Arc::clone(&disk), walk, ParentDigests::none(), pool, 0, Default::default()).unwrap();
    let (wire, _queries) = mpsc::channel(8);
    let (items, mut sent) = mpsc::channel(8);
    let (sender, receiver) = mpsc::channel(16);
    for scanned in results {
        sender.try_send(scanned).unwrap();
    }
    drop(sender);
    let (replies, replied) = mpsc::channel(8);
    let query_loop =
        QueryLoop::new(&pipeline, &disk, None, wire, items).run(Pass::of(scanner, receiver), replied);
    let mut messages = Vec::new();
    let satisfied = async {
        while let Some(item) = sent.recv().await {
            let Item::Message(kind) = item else { panic!("a region of nothing") };
            if matches!(kind, Kind::Finish(_)) {
                replies.send(Reply::Finished).await.ok().unwrap();
            }
            messages.push(kind);
        }
    };
    let (outcome, ()) = tokio::join!(query_loop, satisfied);
    (outcome, messages)
}

fn zero(sequence: u64, first: u64, count: u64) -> Scanned {
    Ok((sequence, ScanResult::Zero { first, count }))
}

fn is_finished(messages: &[Kind]) -> bool {
    messages.iter().any(|kind| matches!(kind, Kind::Finish(_)))
}

#[tokio::test]
async fn a_whole_disk_is_finished_whatever_the_order_of_its_results() {
    let (outcome, messages) = run(vec![zero(2, 6, 4), zero(0, 0, 5), zero(1, 5, 1)]).await;
    outcome.unwrap();
    let range = v1::ExtentRange { first: 0, count: 10 };
    let described = v1::Extents { zero: vec![range], ..v1::Extents::default() };
    assert_eq!(messages.first(), Some(&Kind::Extents(described)));
    assert!(is_finished(&messages));
}

#[tokio::test]
async fn a_disk_with_a_part_left_out_is_not_finished() {
    let skipped = "scanning skipped or repeated an extent";
    let early = "scanning ended before the disk's end";
    for (results, why) in [
        (vec![zero(0, 0, 5), zero(1, 6, 4)], skipped),
        (vec![zero(0, 0, 5), zero(1, 4, 6)], skipped),
        (vec![zero(0, 0, 9)], early),
        (vec![zero(0, 0, 5), zero(2, 5, 5)], early),
        (vec![zero(0, 0, 10), zero(2, 10, 1)], early),
        (Vec::new(), early),
    ] {
        let (outcome, messages) = run(results).await;
        assert!(matches!(outcome, Err(ClientError::Internal(text)) if text == why), "{outcome:?}, not {why}");
        assert!(!is_finished(&messages));
    }
}
