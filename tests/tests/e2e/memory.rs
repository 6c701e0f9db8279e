//! A server with a memory limit: whatever clients do, it is not killed.

use std::process::Command;

use holdfast::connect::Connection;
use holdfast_proto::limits::{DISK_MAX_BYTES, EXTENTS_PER_MESSAGE_MAX};
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_tests::disk::noise;
use holdfast_tests::memory::MEMORY_VARIABLE;
use holdfast_tests::raw::{Session, assert_refused, connect, region_of};
use holdfast_tests::server::maintain;
use holdfast_tests::{Agent, Disk, Server};
use tempfile::{TempDir, tempdir, tempdir_in};

/// Smallest limit with which a server starts.
const MEMORY_BYTES: u64 = 640 << 20;

/// Runs itself again with a limit in the environment, so that every server of these tests has it.
#[test]
fn the_hostile_suite() {
    if std::env::var_os(MEMORY_VARIABLE).is_some() {
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let output = Command::new(tests)
        .args(["hostile::", "front_door::", "--test-threads=4"])
        .env(MEMORY_VARIABLE, MEMORY_BYTES.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for test in ["hostile::a_decompression_bomb", "front_door::bodies_without_a_token_are_not_read"] {
        assert!(said.contains(&format!("{test} ... ok")), "{said}");
    }
}

/// Extents of a disk of 1 PiB, scattered so that no part of the recipe can be completed.
fn scattered(first: u64, count: u64, chunk: &[u8]) -> Vec<Kind> {
    let (_, name) = region_of(chunk);
    // A chunk of 32 KiB, 128 times, is an extent.
    let names = name.as_bytes().repeat(128);
    let digest = Fingerprint::of(&chunk.repeat(128));
    let extent = |index| v1::ChunkedExtent {
        index,
        digest: digest.as_bytes().to_vec().into(),
        fingerprints: names.clone().into(),
        lengths: vec![32 << 10; 128],
    };
    let all: Vec<u64> = (first..first + count).map(|number| number * 2).collect();
    all.chunks(EXTENTS_PER_MESSAGE_MAX)
        .map(|part| {
            let chunked = part.iter().copied().map(extent).collect();
            Kind::Extents(v1::Extents { unchanged: Vec::new(), zero: Vec::new(), chunked })
        })
        .collect()
}

fn scattered_zeros(first: u64, count: u64) -> Kind {
    let zero = (first..first + count).map(|number| v1::ExtentRange { first: number * 2, count: 1 }).collect();
    Kind::Extents(v1::Extents { unchanged: Vec::new(), zero, chunked: Vec::new() })
}

/// Sends `kinds` and disconnects once the server has handled them, so that the session keeps its state. Returns the
/// refusal, if there was one.
async fn leave_behind(connection: &Connection, session: &Session, kinds: Vec<Kind>) -> Option<tonic::Status> {
    let (line, messages) = tokio::sync::mpsc::channel(1);
    let open = v1::OpenStream {
        session_id: session.id.clone(),
        // The server may not have noticed yet that earlier ones are gone.
        takes_queued: true,
        ..v1::OpenStream::default()
    };
    let name = region_of(b"asked for at the end").1;
    let last = Kind::Query(v1::Query { sequence: 7, fingerprints: name.as_bytes().to_vec().into() });
    let mut client = connection.ingest();
    let call = client.ingest(tokio_stream::wrappers::ReceiverStream::new(messages));
    let feed = async {
        for kind in [Kind::Open(open)].into_iter().chain(kinds).chain([last]) {
            // Fails once the server has refused one.
            drop(line.send(v1::IngestRequest { order: 0, kind: Some(kind) }).await);
        }
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut answers = call.await?.into_inner();
        while let Some(answer) = answers.message().await? {
            if matches!(answer.kind, Some(Answer::Need(_))) {
                return Ok(());
            }
        }
        panic!("the stream ended without a word")
    };
    tokio::select! {
        () = feed => None,
        outcome = read => outcome.err(),
    }
}

/// A folder on a disk: temporary files may be in memory, where a server's files would count as its own.
fn on_disk() -> TempDir {
    tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// State of many sessions, each within its own bound, does not add up.
#[tokio::test(flavor = "multi_thread")]
async fn recipes_that_are_never_completed() {
    let folder = on_disk();
    // None of them ends by itself.
    let options = Server::options().memory(MEMORY_BYTES).arg("--lease-secs=3600");
    let server = options.start(&folder.path().join("repository"));
    let connection = connect(&server).await;
    let chunk = noise(1, 32 << 10);
    let (mut sessions, mut refused) = (Vec::new(), 0);
    for number in 0..30 {
        let session = Session::start(&connection, &format!("vm-{number}"), DISK_MAX_BYTES).await;
        let mut messages = vec![Kind::Region(region_of(&chunk).0)];
        messages.extend(scattered(0, 96, &chunk));
        messages.extend((0..240).map(|part| scattered_zeros(1000 + part * 250, 250)));
        if let Some(status) = leave_behind(&connection, &session, messages).await {
            assert_refused(Some(status), ErrorCode::Limit, "memory");
            refused += 1;
        }
        sessions.push(session);
    }
    // Each has some 3 MB; they share 58 MB.
    assert!((5..25).contains(&refused), "{refused} of {} were refused", sessions.len());
    for session in &sessions {
        // Those that were refused have ended.
        let _ = session.try_abort().await;
    }
    let disk = Disk::varied(folder.path().join("disk.raw"), 5, 9 << 20);
    tokio::task::spawn_blocking(move || {
        server.agent().back_up("honest", &[disk.arg()]);
        assert_eq!(server.agent().read_back("honest"), disk.bytes());
        let (status, said) = server.stop();
        assert!(status.success(), "{said}");
    })
    .await
    .unwrap();
}

/// Retries while the server is overloaded.
fn until_admitted(agent: &Agent, args: &[&str]) -> Vec<u8> {
    loop {
        let ran = agent.run(args);
        match ran.code {
            Some(0) => return ran.stdout,
            Some(code) if code == i32::from(ErrorCode::Limit.exit_code()) => {}
            _ => panic!("{ran:?}"),
        }
    }
}

#[test]
fn many_backups_and_restores_at_once() {
    let folder = on_disk();
    let server = Server::options().memory(MEMORY_BYTES).start(&folder.path().join("repository"));
    let agent = server.agent();
    let disks: Vec<Disk> = (0..32)
        .map(|seed| Disk::of_noise(folder.path().join(format!("{seed}.raw")), seed, 5 << 20))
        .collect();
    for round in 0..2 {
        std::thread::scope(|scope| {
            for (number, disk) in disks.iter().enumerate() {
                let (agent, vm) = (&agent, format!("vm-{number}"));
                scope.spawn(move || {
                    until_admitted(agent, &["backup", "--vm", &vm, disk.arg()]);
                    if round == 1 {
                        let read = until_admitted(agent, &["restore", "latest", "--vm", &vm, "--to", "-"]);
                        assert!(read == disk.bytes(), "{vm}");
                    }
                });
            }
        });
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn too_little_memory_is_said_at_the_start() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let (status, said) = Server::options().arg("--memory=100MiB").try_start(&data_dir).unwrap_err();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("100 MiB") && said.contains("640 MiB"), "{said}");
    let (status, said) = maintain(&data_dir, "config", &["--memory=1GiB"]);
    assert!(status.success() && said.contains("limit 1024 MiB (setting memory)"), "{said}");
}
