//! Agents that lie, break the rules or request too much: refused with the object's name, and nobody else is harmed.

use holdfast::repository::list_backups;
use holdfast_proto::limits::{DISK_MAX_BYTES, EXTENT_BYTES, QUERY_FINGERPRINTS_MAX, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use holdfast_proto::version::PROTOCOL_METADATA;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_tests::disk::noise;
use holdfast_tests::raw::{
    Session, assert_refused, connect, connect_as, extent_of, finish, region_of, start_request,
};
use holdfast_tests::{Disk, Server};
use tempfile::{TempDir, tempdir};

const CHUNK_BYTES: u32 = 20_000;

struct Scene {
    folder: TempDir,
    server: Server,
    bystander: Disk,
}

impl Scene {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let bystander = Disk::of_noise(folder.path().join("bystander.raw"), 77, 6 << 20);
        server.agent().back_up("bystander", &[bystander.arg()]);
        Self { folder, server, bystander }
    }

    /// Asserts that others and the same VM can still be backed up and restored.
    fn unharmed(&self) {
        let agent = self.server.agent();
        assert!(agent.backups("victim").is_empty(), "a refused backup is visible");
        assert_eq!(agent.read_back("bystander"), self.bystander.bytes());
        agent.back_up("bystander", &[self.bystander.arg()]);
        let disk = Disk::varied(self.folder.path().join("victim.raw"), 5, 9 << 20);
        agent.run(&["backup", "--vm", "victim", disk.arg(), "--take-over"]).ok();
        assert_eq!(agent.read_back("victim"), disk.bytes());
    }
}

/// Sends messages about a disk of one extent of one chunk, which must be refused.
async fn refused(messages: Vec<Kind>, code: ErrorCode, word: &str) {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", CHUNK_BYTES.into()).await;
    let (_, status) = session.send(messages).await;
    assert_refused(status, code, word);
    assert!(session.commit().await.is_err(), "what was refused cannot be committed");
    session.abort().await;
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

fn chunk() -> Vec<u8> {
    noise(1, CHUNK_BYTES as usize)
}

#[tokio::test]
async fn an_honest_raw_agent_is_served() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", CHUNK_BYTES.into()).await;
    let (region, name) = region_of(&chunk());
    let query = Kind::Query(v1::Query { sequence: 9, fingerprints: name.as_bytes().to_vec().into() });
    let messages = vec![query, Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()];
    let (answers, status) = session.send(messages).await;
    assert!(status.is_none(), "{status:?}");
    assert!(matches!(answers.first(), Some(Answer::Opened(_))), "{answers:?}");
    let need =
        answers.iter().find_map(|answer| if let Answer::Need(need) = answer { Some(need) } else { None });
    assert_eq!(need.map(|need| (need.sequence, need.bitmap.to_vec())), Some((9, vec![1])));
    assert!(matches!(answers.last(), Some(Answer::Finished(_))), "{answers:?}");
    let first = session.commit().await.unwrap();
    assert_eq!(session.commit().await.unwrap(), first, "repeating a commit gives the same answer");
    assert_eq!(scene.server.agent().read_back("victim"), chunk());
}

#[tokio::test]
async fn bytes_that_do_not_match_their_fingerprint() {
    let (mut region, name) = region_of(&chunk());
    region.payload = noise(2, CHUNK_BYTES as usize).into();
    let messages = vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()];
    refused(messages, ErrorCode::Invalid, &name.short()).await;
}

#[tokio::test]
async fn lengths_that_do_not_add_up() {
    let (mut region, name) = region_of(&chunk());
    region.lengths = vec![CHUNK_BYTES - 1];
    refused(
        vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()],
        ErrorCode::Invalid,
        "19999",
    )
    .await;
}

#[tokio::test]
async fn a_payload_shorter_than_it_says() {
    let (mut region, name) = region_of(&chunk());
    region.payload = chunk()[..100].to_vec().into();
    refused(vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()], ErrorCode::Invalid, "100")
        .await;
}

#[tokio::test]
async fn a_frame_that_is_none() {
    let (mut region, name) = region_of(&chunk());
    region.codec = 1;
    refused(
        vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()],
        ErrorCode::Invalid,
        "zstd",
    )
    .await;
}

#[tokio::test]
async fn a_codec_of_the_future() {
    let (mut region, name) = region_of(&chunk());
    region.codec = 7;
    refused(
        vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()],
        ErrorCode::Invalid,
        "codec 7",
    )
    .await;
}

#[tokio::test]
async fn a_decompression_bomb() {
    let bomb = zstd::bulk::compress(&vec![0; 1 << 30], 3).unwrap();
    assert!(bomb.len() < 200_000);
    let (mut region, name) = region_of(&chunk());
    region.codec = 1;
    region.payload = bomb.into();
    let (peak, said) = ("VmHWM:", "/proc/PID/status");
    let scene = Scene::new();
    let peak_kib = |server: &Server| -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(peak)).expect(said);
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = peak_kib(&scene.server);
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", CHUNK_BYTES.into()).await;
    let messages = vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()];
    let (_, status) = session.send(messages).await;
    assert_refused(status, ErrorCode::Invalid, "20000");
    let grown = peak_kib(&scene.server) - before;
    assert!(grown < 256 << 10, "the server's memory grew by {grown} KiB");
    session.abort().await;
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn a_region_larger_than_allowed() {
    let plain_bytes = REGION_PLAIN_MAX_BYTES + 1;
    let plain = noise(3, plain_bytes as usize);
    let lengths = vec![60_000, 60_000, 60_000, 60_000, plain_bytes - 240_000];
    let names: Vec<u8> = {
        let mut rest = &plain[..];
        let mut names = Vec::new();
        for &length in &lengths {
            let (chunk, tail) = rest.split_at(length as usize);
            names.extend_from_slice(Fingerprint::of(chunk).as_bytes());
            rest = tail;
        }
        names
    };
    let region =
        v1::Region { codec: 0, plain_bytes, fingerprints: names.into(), lengths, payload: plain.into() };
    refused(vec![Kind::Region(region), finish()], ErrorCode::Invalid, "262145").await;
}

#[tokio::test]
async fn a_fingerprint_that_was_never_uploaded() {
    let name = Fingerprint::of(b"never sent");
    refused(vec![extent_of(0, name, CHUNK_BYTES), finish()], ErrorCode::Invalid, &name.short()).await;
}

#[tokio::test]
async fn a_chunk_of_another_length_than_it_has() {
    let (region, name) = region_of(&noise(1, 10_000));
    let messages = vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()];
    refused(messages, ErrorCode::Invalid, &name.short()).await;
}

#[tokio::test]
async fn an_extent_past_the_end_of_the_disk() {
    let (region, name) = region_of(&chunk());
    let messages = vec![Kind::Region(region), extent_of(1, name, CHUNK_BYTES), finish()];
    refused(messages, ErrorCode::Invalid, "extent 1").await;
}

#[tokio::test]
async fn an_extent_longer_than_the_disk() {
    let (region, name) = region_of(&noise(1, 30_000));
    let messages = vec![Kind::Region(region), extent_of(0, name, 30_000), finish()];
    refused(messages, ErrorCode::Invalid, "extent 0").await;
}

#[tokio::test]
async fn an_extent_sent_twice() {
    let (region, name) = region_of(&chunk());
    let twice = || extent_of(0, name, CHUNK_BYTES);
    refused(vec![Kind::Region(region), twice(), twice(), finish()], ErrorCode::Invalid, "twice").await;
}

fn ranges(unchanged: Vec<v1::ExtentRange>, zero: Vec<v1::ExtentRange>) -> Kind {
    Kind::Extents(v1::Extents { unchanged, zero, chunked: Vec::new() })
}

#[tokio::test]
async fn ranges_past_the_end_of_the_disk() {
    for (first, count) in [(0, 2), (1, 1), (0, u64::MAX), (u64::MAX, 2), (u64::MAX, u64::MAX)] {
        let past = ranges(Vec::new(), vec![v1::ExtentRange { first, count }]);
        refused(vec![past, finish()], ErrorCode::Invalid, &format!("{first}")).await;
    }
}

#[tokio::test]
async fn unchanged_since_nothing() {
    let unchanged = ranges(vec![v1::ExtentRange { first: 0, count: 1 }], Vec::new());
    refused(vec![unchanged, finish()], ErrorCode::Invalid, "parent").await;
}

#[tokio::test]
async fn a_disk_that_is_not_all_there() {
    refused(vec![finish()], ErrorCode::Invalid, "extent").await;
}

#[tokio::test]
async fn a_query_larger_than_allowed() {
    let fingerprints = noise(4, 32 * (QUERY_FINGERPRINTS_MAX + 1));
    let query = Kind::Query(v1::Query { sequence: 1, fingerprints: fingerprints.into() });
    refused(vec![query, finish()], ErrorCode::Invalid, "1025").await;
}

#[tokio::test]
async fn a_query_of_half_a_fingerprint() {
    let query = Kind::Query(v1::Query { sequence: 1, fingerprints: noise(4, 33).into() });
    refused(vec![query, finish()], ErrorCode::Invalid, "33").await;
}

#[tokio::test]
async fn messages_out_of_order() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", CHUNK_BYTES.into()).await;
    let (_, status) = session.send_exactly(vec![finish()]).await;
    assert_refused(status, ErrorCode::Invalid, "Open");
    let open = |disk| {
        Kind::Open(v1::OpenStream { session_id: session.id.clone(), disk, ..v1::OpenStream::default() })
    };
    let (_, status) = session.send_exactly(vec![open(7)]).await;
    assert_refused(status, ErrorCode::Invalid, "7");
    let (_, status) = session.send_exactly(vec![open(0), open(0)]).await;
    assert_refused(status, ErrorCode::Invalid, "");
    let (_, status) = session.send_exactly(Vec::new()).await;
    assert_refused(status, ErrorCode::Invalid, "Open");
    session.abort().await;
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn sessions_that_are_not_there() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", CHUNK_BYTES.into()).await;
    session.abort().await;
    session.abort().await;
    let refused = session.commit().await.unwrap_err();
    assert_refused(Some(refused), ErrorCode::SessionGone, &session.id);
    let (_, status) = session.send(vec![finish()]).await;
    assert_refused(status, ErrorCode::SessionGone, &session.id);
    let request = v1::CommitRequest { session_id: "nonsense".to_owned() };
    let refused = connection.backup().commit(request).await.unwrap_err();
    assert_refused(Some(refused), ErrorCode::Invalid, "nonsense");
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn sessions_that_ask_too_much() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let mut requests = Vec::new();
    for name in ["", "a\nb", " lead", &"x".repeat(201)] {
        requests.push(start_request(name, 1));
    }
    requests.push(start_request("victim", DISK_MAX_BYTES + 1));
    let disk = |name: &str| v1::DiskSpec { name: name.to_owned(), size_bytes: 1 };
    requests.push(v1::StartRequest { disks: Vec::new(), ..start_request("victim", 1) });
    requests.push(v1::StartRequest { disks: vec![disk("same"), disk("same")], ..start_request("victim", 1) });
    let many = (0..257).map(|n| disk(&format!("d{n}"))).collect();
    requests.push(v1::StartRequest { disks: many, ..start_request("victim", 1) });
    requests.push(v1::StartRequest { run_id: "nonsense".to_owned(), ..start_request("victim", 1) });
    for request in requests {
        let shown = format!("{:.200}", format!("{request:?}"));
        let status = connection.backup().start(request).await.err();
        let status = status.unwrap_or_else(|| panic!("{shown} was accepted"));
        assert_eq!(ErrorCode::of_status(&status), Some(ErrorCode::Invalid), "{shown}: {status}");
        assert!(status.message().len() < 1000, "{}", status.message().len());
    }
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn reads_past_every_bound() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let backup_id = list_backups(&connection, "", "bystander", "").await.unwrap().remove(0).id;
    let disk = "bystander".to_owned();
    let read = |first_extent, extent_count| v1::ReadDiskRequest {
        backup_id: backup_id.clone(),
        disk: disk.clone(),
        first_extent,
        extent_count,
        report_damage: false,
        ..v1::ReadDiskRequest::default()
    };
    // The bystander's disk has two extents. Ranges past the end are empty, and cost nothing.
    for (first, count, expected) in
        [(0, 0, 2), (1, 1, 1), (2, 0, 0), (0, 3, 2), (1, u64::MAX, 1), (u64::MAX, u64::MAX, 0)]
    {
        let mut stream = connection.restore().read_disk(read(first, count)).await.unwrap().into_inner();
        let mut extents = 0;
        while let Some(message) = stream.message().await.unwrap() {
            if let Some(v1::read_disk_response::Kind::Window(window)) = message.kind {
                assert_eq!(window.first_extent, first + extents);
                extents += window.extents.len() as u64;
            }
        }
        assert_eq!(extents, expected, "{count} extents from {first}");
    }
    let range = |offset, length| v1::ReadRangeRequest {
        backup_id: backup_id.clone(),
        disk: disk.clone(),
        offset,
        length,
    };
    let too_long = connection.restore().read_range(range(0, u64::MAX)).await;
    let status = match too_long {
        Ok(stream) => stream.into_inner().message().await.err(),
        Err(status) => Some(status),
    };
    assert_refused(status, ErrorCode::Limit, "268435456");
    // Past the end a range is empty; across the end it is cut.
    let bytes = scene.bystander.bytes();
    for (offset, length) in [
        (0, 10),
        (4_194_300, 100),
        (bytes.len() as u64 - 5, 100),
        (bytes.len() as u64, 10),
        (12_345, 3_000_000),
    ] {
        let mut stream = connection.restore().read_range(range(offset, length)).await.unwrap().into_inner();
        let mut got = Vec::new();
        while let Some(part) = stream.message().await.unwrap() {
            assert_eq!(part.offset, offset + got.len() as u64);
            match part.kind.unwrap() {
                v1::read_range_response::Kind::Data(data) => got.extend_from_slice(&data),
                v1::read_range_response::Kind::ZeroBytes(count) => {
                    got.resize(got.len() + usize::try_from(count).unwrap(), 0);
                }
            }
        }
        let start = usize::try_from(offset).unwrap();
        let end = bytes.len().min(start + usize::try_from(length).unwrap());
        assert_eq!(got, bytes[start..end], "{length} bytes at {offset}");
    }
}

#[tokio::test]
async fn versions_that_do_not_meet() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let hello = v1::HelloRequest { min_protocol: 900, max_protocol: 901, client_version: "9".to_owned() };
    let status = connection.backup().hello(hello).await.err();
    assert_refused(status, ErrorCode::Unsupported, "900");
    let mut request = tonic::Request::new(v1::CommitRequest { session_id: String::new() });
    request.metadata_mut().insert(PROTOCOL_METADATA, 900u32.into());
    // The agent's own interceptor sets the right version; the server's unit test covers a call without it.
    let status = connection.backup().commit(request).await.err();
    assert_refused(status, ErrorCode::Invalid, "session");
}

#[tokio::test]
async fn a_message_larger_than_allowed() {
    let (mut region, name) = region_of(&chunk());
    region.payload = vec![0; 9 << 20].into();
    let messages = vec![Kind::Region(region), extent_of(0, name, CHUNK_BYTES), finish()];
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", u64::from(EXTENT_BYTES)).await;
    let (_, status) = session.send(messages).await;
    // Refused by whichever side checks first: the agent's library or the server.
    assert!(status.is_some());
    session.abort().await;
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn a_session_of_another_token() {
    let scene = Scene::new();
    let (mine, stolen) = (
        scene.server.token("mine", "backup", &["default"]),
        scene.server.token("stolen", "backup", &["default"]),
    );
    let (mine, stolen) = (connect_as(&scene.server, &mine).await, connect_as(&scene.server, &stolen).await);
    let session = Session::start(&mine, "victim", CHUNK_BYTES.into()).await;

    let busy = stolen.backup().start(start_request("victim", 1)).await.unwrap_err();
    assert!(!busy.message().contains(&session.id), "{busy}");
    assert_refused(Some(busy), ErrorCode::Busy, "another token");
    let over = v1::StartRequest { take_over: true, ..start_request("victim", 1) };
    let refused = stolen.backup().start(over.clone()).await.err();
    assert_refused(refused, ErrorCode::Forbidden, "another token");

    // Even with a known id.
    let foreign = session.over(&stolen);
    let (answers, status) = foreign.send(vec![ranges(Vec::new(), Vec::new()), finish()]).await;
    assert_eq!(answers, []);
    assert_refused(status, ErrorCode::Forbidden, "another token");
    assert_refused(foreign.commit().await.err(), ErrorCode::Forbidden, "another token");
    assert_refused(foreign.try_abort().await.err(), ErrorCode::Forbidden, "another token");
    let alive = v1::KeepAliveRequest { session_id: session.id.clone() };
    let refused = stolen.backup().keep_alive(alive).await.err();
    assert_refused(refused, ErrorCode::Forbidden, "another token");
    let digests = v1::ParentDigestsRequest { session_id: session.id.clone(), disk: 0 };
    let refused = stolen.backup().parent_digests(digests).await.err();
    assert_refused(refused, ErrorCode::Forbidden, "another token");

    // An agent that died returns with the same token.
    let second = mine.backup().start(over).await.unwrap().into_inner();
    assert_refused(session.commit().await.err(), ErrorCode::SessionGone, &session.id);
    let abort = v1::AbortRequest { session_id: second.session_id, reason: String::new() };
    mine.backup().abort(abort).await.unwrap();
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}

#[tokio::test]
async fn names_and_ids_that_deceive() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let mut requests: Vec<_> =
        ["a\u{202e}b", "a\u{2066}b", "a\u{1b}b"].iter().map(|name| start_request(name, 1)).collect();
    requests.push(v1::StartRequest { run_id: "x".repeat(1 << 16), ..start_request("victim", 1) });
    requests.push(v1::StartRequest { job: "j\u{200f}".to_owned(), ..start_request("victim", 1) });
    for request in requests {
        let status = connection.backup().start(request).await.unwrap_err();
        assert_eq!(ErrorCode::of_status(&status), Some(ErrorCode::Invalid), "{status}");
        let shown = status.message();
        assert!(shown.len() < 500 && shown.is_ascii() && !shown.contains('\u{1b}'), "{shown}");
    }
    let commit = v1::CommitRequest { session_id: "\u{202e}".repeat(1 << 14) };
    let status = connection.backup().commit(commit).await.unwrap_err();
    assert!(status.message().len() < 500 && status.message().is_ascii(), "{status}");
    tokio::task::spawn_blocking(move || scene.unharmed()).await.unwrap();
}
