//! An agent without network whose disks are blocks of noise; it keeps count of what it sent.

use std::collections::BTreeSet;

use holdfast_engine::ids::{NamespaceId, SessionId, TokenId};
use holdfast_engine::{DiskStream, Engine, StartBackup, Starter};
use holdfast_proto::Fingerprint;
use holdfast_proto::region::Encoder;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind as Request;
use holdfast_proto::v1::ingest_response::Kind as Response;

pub(super) const BLOCK: usize = 16 << 10;

/// Blocks of a disk by what they hold; 0: zeros. All of it is one extent.
pub(super) type Disk = Vec<u64>;

/// Bytes that an attempt sent, by the kind it reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) unchanged: u64,
    pub(super) new: u64,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) sent: Sent,
    /// Its restore point.
    pub(super) backup: Option<String>,
}

/// Noise, the same for the same number.
fn block(number: u64) -> Vec<u8> {
    // Far apart: from neighbours by the step below, a block would be the one before it, a word further on.
    let mut state = number.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend((word ^ (word >> 31)).to_le_bytes());
    }
    bytes
}

pub(super) fn bytes_of(blocks: usize) -> u64 {
    (blocks * BLOCK) as u64
}

/// Backs a disk up, or breaks off before the end.
pub(super) fn back_up(
    engine: &Engine,
    namespace: NamespaceId,
    (vm, job): (&str, &str),
    disk: &Disk,
    (fails, is_partial): (bool, bool),
) -> Attempt {
    let request = v1::StartRequest {
        namespace: "default".into(),
        vm: vm.into(),
        job: job.into(),
        disks: vec![v1::DiskSpec { name: "sda".into(), size_bytes: bytes_of(disk.len()) }],
        client_host: "test".into(),
        missing_disks: if is_partial { vec!["sdb".into()] } else { Vec::new() },
        // The disk that was missing is not in the next run.
        accept_change: true,
        ..v1::StartRequest::default()
    };
    let starter = Starter {
        token: TokenId::from_bytes([1; 16]),
        name: "agent".into(),
        owner: "admin".into(),
        is_for_every_owner: false,
        may_take_over: false,
    };
    let started = engine.start_backup(&StartBackup { namespace, request, starter }).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let sent = send(engine, session, &stream, disk);
    if fails {
        engine.abort(session, "the line was cut").unwrap();
        return Attempt { sent, backup: None };
    }
    let finish = v1::FinishStream { read_bytes: bytes_of(disk.len()), ..v1::FinishStream::default() };
    stream.handle(Request::Finish(finish), 10).unwrap();
    let committed = engine.commit(session).unwrap();
    Attempt { sent, backup: Some(committed.backup_id) }
}

fn send(engine: &Engine, session: SessionId, stream: &DiskStream, disk: &Disk) -> Sent {
    let filled: Vec<u64> = disk.iter().copied().filter(|number| *number > 0).collect();
    let bytes = bytes_of(filled.len());
    let image: Vec<u8> =
        disk.iter().flat_map(|number| if *number == 0 { vec![0; BLOCK] } else { block(*number) }).collect();
    let digest = if filled.is_empty() { Fingerprint::ZERO } else { Fingerprint::of(&image) };
    let known = engine.parent_digests(session, 0, 0).unwrap();
    let known = known.and_then(|found| Fingerprint::split_list(&found.digests).unwrap().next());
    let range = vec![v1::ExtentRange { first: 0, count: 1 }];
    let mut message = v1::Extents::default();
    let mut sent = Sent { bytes, ..Sent::default() };
    if known == Some(digest) {
        message.unchanged = range;
        sent.unchanged = bytes;
    } else if filled.is_empty() {
        message.zero = range;
    } else {
        sent.new = send_missing(stream, &filled);
        let names = |number: &u64| {
            if *number == 0 { Fingerprint::ZERO } else { Fingerprint::of(&block(*number)) }
        };
        message.chunked = vec![v1::ChunkedExtent {
            index: 0,
            digest: digest.as_bytes().to_vec().into(),
            fingerprints: disk
                .iter()
                .flat_map(|number| *names(number).as_bytes())
                .collect::<Vec<u8>>()
                .into(),
            lengths: vec![u32::try_from(BLOCK).unwrap(); disk.len()],
        }];
    }
    stream.handle(Request::Extents(message), 10).unwrap();
    sent
}

/// Asks for each block once and sends what the server lacks; returns how many bytes.
fn send_missing(stream: &DiskStream, filled: &[u64]) -> u64 {
    let asked: Vec<u64> = filled.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let names: Vec<u8> =
        asked.iter().flat_map(|number| *Fingerprint::of(&block(*number)).as_bytes()).collect();
    let query = v1::Query { sequence: 1, fingerprints: names.into() };
    let answer = stream.handle(Request::Query(query), 10).unwrap();
    let Some(Response::Need(need)) = answer.and_then(|answer| answer.kind) else { panic!("no answer") };
    let lacking = |(place, _): &(usize, &u64)| need.bitmap[place / 8] >> (place % 8) & 1 == 1;
    let wanted: Vec<u64> = asked.iter().enumerate().filter(lacking).map(|(_, number)| *number).collect();
    let mut encoder = Encoder::new(3).unwrap();
    for part in wanted.chunks(8) {
        let blocks: Vec<Vec<u8>> = part.iter().map(|number| block(*number)).collect();
        let encoded = encoder.encode(&blocks.concat()).unwrap();
        let region = v1::Region {
            codec: encoded.codec as u32,
            plain_bytes: encoded.plain_bytes,
            fingerprints: blocks
                .iter()
                .flat_map(|block| *Fingerprint::of(block).as_bytes())
                .collect::<Vec<u8>>()
                .into(),
            lengths: vec![u32::try_from(BLOCK).unwrap(); part.len()],
            payload: encoded.payload.into(),
        };
        stream.handle(Request::Region(region), 10).unwrap();
    }
    bytes_of(wanted.len())
}
