//! An agent without network: what a real one sends, in the same order, as plainly as it can be written.

use std::collections::HashSet;

use std::collections::HashMap;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::{Chunker, is_zero};
use holdfast_proto::limits::{EXTENT_BYTES, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::region::{Codec, Decoder, EncodedRegion, Encoder, sealed};
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, NamespaceId, SessionId, TokenId};
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::namespace;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::{Committed, DiskStream, StartBackup, Starter};
use crate::restore::DiskReader;

pub(crate) fn request(vm: &str, disks: &[(&str, &[u8])]) -> v1::StartRequest {
    let spec = |(name, bytes): &(&str, &[u8])| v1::DiskSpec {
        name: (*name).to_owned(),
        size_bytes: bytes.len() as u64,
    };
    v1::StartRequest {
        namespace: "default".into(),
        vm: vm.into(),
        job: "nightly".into(),
        disks: disks.iter().map(spec).collect(),
        client_host: "test".into(),
        // Disks of all sizes follow each other.
        accept_change: true,
        ..v1::StartRequest::default()
    }
}

/// A token of the role backup, the same for the same number.
pub(crate) fn starter(number: u8) -> Starter {
    let token = TokenId::from_bytes([number; 16]);
    Starter {
        token,
        name: format!("agent-{number}"),
        owner: "default".into(),
        is_for_every_owner: false,
        may_take_over: false,
    }
}

pub(crate) fn start(engine: &Engine, request: v1::StartRequest) -> Result<v1::StartResponse, EngineError> {
    start_as(engine, request, starter(1))
}

pub(crate) fn start_as(
    engine: &Engine,
    request: v1::StartRequest,
    starter: Starter,
) -> Result<v1::StartResponse, EngineError> {
    engine.start_backup(&StartBackup { namespace: namespace(engine), request, starter })
}

/// Backs up disks as one restore point.
pub(crate) fn backup(engine: &Engine, vm: &str, disks: &[(&str, &[u8])]) -> Result<Committed, EngineError> {
    let started = start(engine, request(vm, disks))?;
    let session: SessionId = started.session_id.parse().unwrap();
    for (number, (_, bytes)) in (0..).zip(disks) {
        let stream = engine.open_stream(session, number)?;
        send_disk(engine, session, &stream, number, bytes)?;
    }
    engine.commit(session)
}

/// Sends one disk over its open stream.
pub(crate) fn send_disk(
    engine: &Engine,
    session: SessionId,
    stream: &DiskStream,
    number: u32,
    disk: &[u8],
) -> Result<(), EngineError> {
    send_disk_claiming(engine, session, stream, (number, disk), |_, digest| digest)
}

/// As [`send_disk`] with the disk's number beside its bytes, but says of each extent that it hashes to what `claim`
/// makes of its number and digest.
pub(crate) fn send_disk_claiming(
    engine: &Engine,
    session: SessionId,
    stream: &DiskStream,
    (number, disk): (u32, &[u8]),
    claim: impl Fn(u64, Fingerprint) -> Fingerprint,
) -> Result<(), EngineError> {
    let digests = parent_digests(engine, session, number)?;
    let accepted = stream.opened()?.accepted;
    let names = Names::of(engine, session)?;
    let mut agent = Agent { stream, names, known: HashSet::new(), encoder: Encoder::new(3).unwrap() };
    for (index, extent) in (0..).zip(disk.chunks(EXTENT_BYTES as usize)) {
        if accepted.iter().any(|range| (range.first..range.first + range.count).contains(&index)) {
            continue;
        }
        let digest = if is_zero(extent) { Fingerprint::ZERO } else { names.of_extent(extent) };
        let range = v1::ExtentRange { first: index, count: 1 };
        let mut message = v1::Extents::default();
        if usize::try_from(index).ok().and_then(|i| digests.get(i)) == Some(&digest) {
            message.unchanged.push(range);
        } else if digest.is_zero() {
            message.zero.push(range);
        } else {
            message.chunked.push(agent.send_extent(index, claim(index, digest), extent)?);
        }
        stream.handle(Request::Extents(message), 10)?;
    }
    stream.handle(
        Request::Finish(v1::FinishStream { read_bytes: disk.len() as u64, ..v1::FinishStream::default() }),
        10,
    )?;
    Ok(())
}

fn parent_digests(engine: &Engine, session: SessionId, number: u32) -> Result<Vec<Fingerprint>, EngineError> {
    let mut digests = Vec::new();
    while let Some(block) = engine.parent_digests(session, number, digests.len() as u64)? {
        digests.extend(Fingerprint::split_list(&block.digests).unwrap());
    }
    Ok(digests)
}

/// Naming and encryption by an agent. In a namespace that is end-to-end encrypted the data is not encrypted here, but
/// looks like it to a server, which cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Plain,
    Sealed,
}

const NAME_KEY: [u8; 32] = [0x4E; 32];
const DIGEST_KEY: [u8; 32] = [0x44; 32];
const MASK: u8 = 0x5A;

impl Names {
    fn of(engine: &Engine, session: SessionId) -> Result<Self, EngineError> {
        let namespace = engine.catalog().namespace(engine.session_namespace(session)?)?.unwrap();
        Ok(if namespace.key_id.is_some() { Self::Sealed } else { Self::Plain })
    }

    pub(crate) fn of_chunk(self, bytes: &[u8]) -> Fingerprint {
        match self {
            Self::Plain => Fingerprint::of(bytes),
            Self::Sealed => Fingerprint::from_bytes(*blake3::keyed_hash(&NAME_KEY, bytes).as_bytes()),
        }
    }

    fn of_extent(self, bytes: &[u8]) -> Fingerprint {
        match self {
            Self::Plain => Fingerprint::of(bytes),
            Self::Sealed => Fingerprint::from_bytes(*blake3::keyed_hash(&DIGEST_KEY, bytes).as_bytes()),
        }
    }

    pub(crate) fn region(self, chunks: &[(Fingerprint, &[u8])], encoder: &mut Encoder) -> v1::Region {
        let plain = region(chunks, encoder);
        if self == Self::Plain {
            return plain;
        }
        let names: Vec<Fingerprint> = chunks.iter().map(|(name, _)| *name).collect();
        let table = sealed::TableHash::of(&names, &plain.lengths, plain.plain_bytes);
        let codec = Codec::try_from(plain.codec).unwrap();
        let encoded =
            EncodedRegion { codec, plain_bytes: plain.plain_bytes, payload: plain.payload.to_vec() };
        let mut hidden: Vec<u8> = sealed::inner(&encoded).iter().map(|byte| byte ^ MASK).collect();
        hidden.extend([0xEE; sealed::TAG_BYTES]);
        let payload = sealed::assemble(&[7; sealed::SALT_BYTES], &table, &hidden);
        v1::Region { codec: Codec::Sealed as u32, payload: payload.into(), ..plain }
    }
}

/// Decodes a region of a restore, and returns its plain bytes and how its chunks are named.
pub(crate) fn opened(region: &v1::RegionData) -> (Vec<u8>, Names) {
    let codec = Codec::try_from(region.codec).unwrap();
    let mut decoder = Decoder::new().unwrap();
    if codec != Codec::Sealed {
        return (decoder.decode(codec, &region.payload, region.plain_bytes).unwrap(), Names::Plain);
    }
    let parts = sealed::parts(&region.payload, region.plain_bytes).unwrap();
    let (hidden, _) = parts.ciphertext.split_last_chunk::<{ sealed::TAG_BYTES }>().unwrap();
    let inner: Vec<u8> = hidden.iter().map(|byte| byte ^ MASK).collect();
    let (codec, payload) = sealed::split_inner(&inner).unwrap();
    (decoder.decode(codec, payload, region.plain_bytes).unwrap(), Names::Sealed)
}

struct Agent<'a> {
    stream: &'a DiskStream,
    names: Names,
    known: HashSet<Fingerprint>,
    encoder: Encoder,
}

impl Agent<'_> {
    fn send_extent(
        &mut self,
        index: u64,
        digest: Fingerprint,
        extent: &[u8],
    ) -> Result<v1::ChunkedExtent, EngineError> {
        let mut fingerprints = Vec::new();
        let mut lengths = Vec::new();
        let mut chunks: Vec<(Fingerprint, &[u8])> = Vec::new();
        for piece in Chunker::default().cut(extent) {
            let bytes = &extent[piece.offset as usize..(piece.offset + piece.len) as usize];
            let name = if piece.zero { Fingerprint::ZERO } else { self.names.of_chunk(bytes) };
            fingerprints.extend(name.as_bytes());
            lengths.push(piece.len);
            if !piece.zero && self.known.insert(name) {
                chunks.push((name, bytes));
            }
        }
        for batch in chunks.chunks(holdfast_proto::limits::QUERY_FINGERPRINTS_MAX) {
            self.send_missing(batch)?;
        }
        Ok(v1::ChunkedExtent {
            index,
            digest: digest.as_bytes().to_vec().into(),
            fingerprints: fingerprints.into(),
            lengths,
        })
    }

    fn send_missing(&mut self, chunks: &[(Fingerprint, &[u8])]) -> Result<(), EngineError> {
        let names: Vec<u8> = chunks.iter().flat_map(|(name, _)| *name.as_bytes()).collect();
        let query = v1::Query { sequence: 1, fingerprints: names.into() };
        let answer = self.stream.handle(Request::Query(query), 10)?;
        let Some(Response::Need(need)) = answer.and_then(|answer| answer.kind) else { panic!("no answer") };
        let mut region = Vec::new();
        let mut bytes = 0;
        for (place, chunk) in chunks.iter().enumerate() {
            if need.bitmap[place / 8] >> (place % 8) & 1 == 0 {
                continue;
            }
            if bytes + chunk.1.len() > REGION_PLAIN_MAX_BYTES as usize {
                self.send_region(&std::mem::take(&mut region))?;
                bytes = 0;
            }
            bytes += chunk.1.len();
            region.push(*chunk);
        }
        if region.is_empty() { Ok(()) } else { self.send_region(&region) }
    }

    fn send_region(&mut self, chunks: &[(Fingerprint, &[u8])]) -> Result<(), EngineError> {
        self.stream.handle(Request::Region(self.names.region(chunks, &mut self.encoder)), 10)?;
        Ok(())
    }
}

pub(crate) fn region(chunks: &[(Fingerprint, &[u8])], encoder: &mut Encoder) -> v1::Region {
    let plain = chunks.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
    let encoded = encoder.encode(&plain).unwrap();
    v1::Region {
        codec: encoded.codec as u32,
        plain_bytes: encoded.plain_bytes,
        fingerprints: chunks.iter().flat_map(|(name, _)| *name.as_bytes()).collect::<Vec<u8>>().into(),
        lengths: chunks.iter().map(|(_, bytes)| u32::try_from(bytes.len()).unwrap()).collect(),
        payload: encoded.payload.into(),
    }
}

/// Restores a disk as a careful client does: every chunk is hashed, every window complete.
pub(crate) fn restore(engine: &Engine, backup: &str, disk: &str) -> Result<Vec<u8>, EngineError> {
    restore_in(engine, namespace(engine), backup, disk)
}

/// As [`restore`], of another namespace.
pub(crate) fn restore_in(
    engine: &Engine,
    namespace: NamespaceId,
    backup: &str,
    disk: &str,
) -> Result<Vec<u8>, EngineError> {
    let id: BackupId = backup.parse().unwrap();
    let (image, bad) = follow(engine.read_disk(namespace, id, disk, 0, 0)?)?;
    assert!(bad.is_empty(), "not asked for: {bad:?}");
    Ok(image)
}

/// Restores a disk past damage: zeros where nothing can be read, and these ranges with the reason.
pub(crate) fn restore_past_damage(
    engine: &Engine,
    backup: &str,
    disk: &str,
) -> Result<(Vec<u8>, Vec<Bad>), EngineError> {
    let id: BackupId = backup.parse().unwrap();
    follow(engine.read_disk_past_damage(namespace(engine), id, disk, 0, 0)?)
}

/// A range of a disk that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) damage: v1::Damage,
}

fn follow(reader: DiskReader) -> Result<(Vec<u8>, Vec<Bad>), EngineError> {
    let mut image = Vec::new();
    let mut bad = Vec::new();
    let mut lost = HashMap::new();
    let mut window = v1::Window::default();
    let mut chunks: Vec<Option<Vec<u8>>> = Vec::new();
    let mut size = 0;
    for message in reader {
        use v1::read_disk_response::Kind;
        match message?.kind.unwrap() {
            Kind::Header(header) => size = header.size_bytes,
            Kind::Window(next) => {
                chunks = vec![None; next.lengths.len()];
                lost.clear();
                window = next;
            }
            Kind::Regions(batch) => {
                batch.regions.iter().for_each(|region| take_region(&window, region, &mut chunks));
            }
            Kind::Damaged(damaged) => {
                assert!(!damaged.chunks.is_empty());
                let why = damaged.damage.unwrap();
                for chunk in damaged.chunks {
                    assert!(lost.insert(chunk, why.clone()).is_none() && chunks[chunk as usize].is_none());
                }
            }
            Kind::WindowEnd(_) => assemble(&window, (&chunks, &lost), size, &mut image, &mut bad),
            Kind::Queued(_) => panic!("only a server with limits makes a stream wait"),
        }
    }
    assert_eq!(image.len() as u64, size);
    Ok((image, bad))
}

fn take_region(window: &v1::Window, region: &v1::RegionData, chunks: &mut [Option<Vec<u8>>]) {
    let (plain, how) = opened(region);
    let names: Vec<Fingerprint> = Fingerprint::split_list(&window.fingerprints).unwrap().collect();
    for (&chunk, &offset) in region.chunks.iter().zip(&region.offsets) {
        let length = window.lengths[chunk as usize];
        let bytes = &plain[offset as usize..(offset + length) as usize];
        assert_eq!(how.of_chunk(bytes), names[chunk as usize]);
        chunks[chunk as usize] = Some(bytes.to_vec());
    }
}

/// Puts a window together. A chunk that is neither there nor said to be lost is a defect.
fn assemble(
    window: &v1::Window,
    (chunks, lost): (&[Option<Vec<u8>>], &HashMap<u32, v1::Damage>),
    size: u64,
    image: &mut Vec<u8>,
    bad: &mut Vec<Bad>,
) {
    for (index, extent) in (window.first_extent..).zip(&window.extents) {
        let mut zeros = extent.zero_lengths.iter();
        if extent.refs.is_empty() {
            let len = holdfast_proto::limits::extent_len(size, index) as usize;
            let damage = extent.damage.clone();
            bad.extend(damage.map(|damage| Bad { offset: image.len(), len, damage }));
            image.resize(image.len() + len, 0);
        }
        for &reference in &extent.refs {
            let Some(chunk) = reference.checked_sub(1) else {
                image.resize(image.len() + *zeros.next().unwrap() as usize, 0);
                continue;
            };
            if let Some(bytes) = &chunks[chunk as usize] {
                image.extend(bytes);
                continue;
            }
            let damage = lost.get(&chunk).expect("a chunk of the window is missing").clone();
            let len = window.lengths[chunk as usize] as usize;
            bad.push(Bad { offset: image.len(), len, damage });
            image.resize(image.len() + len, 0);
        }
    }
}
