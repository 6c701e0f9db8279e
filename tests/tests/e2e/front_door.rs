//! Peers without a token, or with one that has just been revoked, that try to make the server spend memory, threads,
//! slots or time on them. In each case health checks are answered and a caller with a token is served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_proto::v1;
use holdfast_tests::http2::{
    CONTINUATION, DATA, END_STREAM, Frame, HEADERS, Http2, RST_STREAM, connect, fields_block, message,
};
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, wait_for};
use prost::Message as _;
use tempfile::{TempDir, tempdir};

/// Far longer than any deadline of the server; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time limit of a write when the server has stopped reading.
const TAKES_NO_MORE: Duration = Duration::from_secs(2);

fn start(args: &[&str]) -> (TempDir, Server) {
    let folder = tempdir().unwrap();
    let mut options = Server::options();
    for arg in args {
        options = options.arg(*arg);
    }
    let server = options.start(&folder.path().join("repository"));
    (folder, server)
}

/// Asserts that health checks are answered and callers with a token are served.
fn serves(server: &Server) {
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(server, path, "").status, 200, "{path}");
    }
    assert_eq!(get(server, "/api/v1/session", &server.admin_token()).status, 200);
    server.agent().run(&["list"]).ok();
}

/// Memory of the server in KiB, from the field `what` in /proc.
fn memory_kib(server: &Server, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The value of the metric with this prefix.
pub(crate) fn metric(server: &Server, begins: &str) -> u64 {
    let text = get(server, "/metrics", &server.admin_token()).text();
    let line =
        text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("no {begins} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Number of calls of a method that have ended.
fn ended(server: &Server, method: &str) -> u64 {
    let text = get(server, "/metrics", &server.admin_token()).text();
    let counts = text.lines().filter(|line| line.starts_with("holdfast_grpc_requests_total{"));
    let counts = counts.filter(|line| line.contains(method));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn silent_connections_lock_no_one_out() {
    let (_folder, server) = start(&["--max-connections", "16"]);
    let mut silent = Vec::new();
    let mut shaken = Vec::new();
    for _ in 0..40 {
        for address in [server.grpc(), server.https()] {
            silent.push(TcpStream::connect(address).unwrap());
        }
        shaken.extend(holdfast_tests::http2::try_connect(&server, server.grpc(), "h2"));
        shaken.extend(holdfast_tests::http2::try_connect(&server, server.https(), "http/1.1"));
    }
    serves(&server);
    drop((silent, shaken));
}

#[test]
fn unfinished_logins_lock_no_one_out() {
    let (_folder, server) = start(&[]);
    let mut begun = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(&server, server.https(), "http/1.1");
        let head = "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                    Content-Length: 100\r\n\r\n{";
        // The oldest are disconnected meanwhile.
        drop(stream.write_all(head.as_bytes()));
        begun.push(stream);
    }
    serves(&server);
    let token = serde_json::json!({ "token": server.admin_token() });
    assert_eq!(holdfast_tests::web::post(&server, "/api/v1/login", "", &token).status, 200);
    // Those that lost their places were notified, or disconnected.
    let mut answer = String::new();
    let first = begun.first_mut().unwrap();
    first.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    match first.read_to_string(&mut answer) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("still open")
        }
        _ => {}
    }
}

#[test]
fn bodies_without_a_token_are_not_read() {
    let (_folder, server) = start(&[]);
    let before_kib = memory_kib(&server, "VmHWM");
    let block = vec![7; 16 << 10];
    for method in ["Backup/Ingest", "Backup/Start", "Backup/Hello"] {
        let mut peer = Http2::connect(&server, 1 << 20);
        peer.stream.sock.set_write_timeout(Some(TAKES_NO_MORE)).unwrap();
        let stream = peer.call(method, "hf_nonsense").unwrap();
        let prefix = message(8 << 20, &[]);
        let mut sent = peer.send(DATA, 0, stream, &prefix);
        // 32 MiB, whatever the windows are.
        for _ in 0..2048 {
            if sent.is_err() {
                break;
            }
            sent = peer.send(DATA, 0, stream, &block);
        }
        assert!(sent.is_err(), "the server goes on reading what a stranger sends");
    }
    let received = metric(&server, "holdfast_network_received_bytes_total{listener=\"grpc\"}");
    assert!(received < 3 * (1 << 20), "{received} bytes were read from three strangers");
    let grown = memory_kib(&server, "VmHWM") - before_kib;
    assert!(grown < 64 << 10, "the server's memory grew by {grown} KiB");
    serves(&server);
}

#[test]
fn a_call_without_a_token_is_answered_before_its_body_comes() {
    let (_folder, server) = start(&[]);
    for token in ["", "hf_nonsense"] {
        for method in ["Backup/Ingest", "Backup/Start", "No/Method"] {
            let mut peer = Http2::connect(&server, 1 << 20);
            let stream = peer.call(method, token).unwrap();
            // The call is incomplete: its body has not begun.
            let answered = |frame: &Frame| frame.ends(stream);
            while !answered(&peer.read(PATIENCE).expect("an answer")) {}
        }
    }
    serves(&server);
}

#[test]
fn announced_lengths_allocate_nothing() {
    let (_folder, server) = start(&[]);
    // Not with the token of the health checks: each token has its own share of calls.
    let token = server.token("hostile", "backup", &[]);
    serves(&server);
    let before_kib = memory_kib(&server, "VmData");
    let mut peers = Vec::new();
    for _ in 0..8 {
        let mut peer = Http2::connect(&server, 1 << 20);
        for (method, bytes) in [("Backup/Start", 8 << 20), ("Backup/Ingest", 8 << 20)] {
            for _ in 0..30 {
                let stream = peer.call(method, &token).unwrap();
                peer.send(DATA, 0, stream, &message(bytes, &[0; 9])).unwrap();
            }
        }
        peers.push(peer);
    }
    // Before a disk's turn, the server reads no more than its name.
    wait_for("the disks to be refused", || (ended(&server, "Ingest") == 8 * 30).then_some(()));
    let grown = memory_kib(&server, "VmData").saturating_sub(before_kib);
    // Threads, with 2 MiB of stack each, are the greater part.
    assert!(grown < 100 << 10, "{} announced lengths cost {grown} KiB", 8 * 60);
    serves(&server);
}

#[test]
fn floods_of_headers_and_resets_end_the_connection() {
    let (_folder, server) = start(&[]);
    let before_kib = memory_kib(&server, "VmHWM");
    let large = "x".repeat(16_000);
    let mut continued = Http2::connect(&server, 0);
    continued.stream.sock.set_write_timeout(Some(TAKES_NO_MORE)).unwrap();
    let mut sent = continued.send(HEADERS, 0, 1, &fields_block(&[(":method", "POST")]));
    for _ in 0..4096 {
        sent = sent.and_then(|()| continued.send(CONTINUATION, 0, 1, &fields_block(&[("x", &large)])));
    }
    assert!(sent.is_err(), "64 MiB of headers were taken");

    let mut reset = Http2::connect(&server, 0);
    reset.stream.sock.set_write_timeout(Some(TAKES_NO_MORE)).unwrap();
    let mut sent = Ok(());
    for _ in 0..20_000 {
        sent = reset
            .call("Backup/Hello", "hf_nonsense")
            .and_then(|stream| reset.send(RST_STREAM, 0, stream, &[0; 4]));
        if sent.is_err() {
            break;
        }
    }
    assert!(sent.is_err(), "a stranger opened and reset 20,000 streams");
    let grown = memory_kib(&server, "VmHWM") - before_kib;
    assert!(grown < 64 << 10, "the server's memory grew by {grown} KiB");
    serves(&server);
}

/// Peers that request a disk with `token`, read none of it, and answer pings until they are disconnected.
fn stalled_restores(server: &Server, folder: &TempDir, token: &str) -> Vec<JoinHandle<()>> {
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    let backup_id = server.agent().backups("vm").remove(0);
    let request =
        v1::ReadDiskRequest { backup_id, disk: "disk".to_owned(), ..v1::ReadDiskRequest::default() };
    let request = request.encode_to_vec();
    let length = u32::try_from(request.len()).unwrap();
    let mut peers = Vec::new();
    for _ in 0..4 {
        let mut peer = Http2::connect(server, 0);
        for _ in 0..4 {
            let stream = peer.call("Restore/ReadDisk", token).unwrap();
            peer.send(DATA, END_STREAM, stream, &message(length, &request)).unwrap();
        }
        peers.push(std::thread::spawn(move || peer.read_to_end(PATIENCE)));
    }
    wait_for("the restores", || (metric(server, "holdfast_streams{kind=\"restore\"}") > 0).then_some(()));
    peers
}

#[test]
fn a_stalled_restore_ends_with_its_token() {
    let (folder, server) = start(&[]);
    let token = server.token("short", "restore", &[]);
    let peers = stalled_restores(&server, &folder, &token);
    let (status, said) = server.tokens(&["revoke", "short"]);
    assert!(status.success(), "{said}");
    // It takes some five seconds; without the rule it would never end.
    wait_for("the restores to end", || {
        let is_over = metric(&server, "holdfast_streams{kind=\"restore\"}") == 0;
        (is_over && peers.iter().all(JoinHandle::is_finished)).then_some(())
    });
    serves(&server);
}

#[test]
fn a_stalled_restore_does_not_hold_up_shutdown() {
    let (folder, mut server) = start(&[]);
    let token = server.admin_token();
    let peers = stalled_restores(&server, &folder, &token);
    let silent = [server.grpc(), server.https()].map(|address| TcpStream::connect(address).unwrap());
    let idle = Http2::connect(&server, 0);
    let begun = Instant::now();
    server.terminate();
    let status = server.wait();
    assert!(status.success(), "{status}\n{}", server.log());
    // It takes some five seconds; the peers stall for longer than that.
    assert!(begun.elapsed() < PATIENCE / 2, "it took {:?}", begun.elapsed());
    drop((peers, silent, idle));
}

#[test]
fn wrong_tokens_are_slowed_down_and_right_ones_are_not() {
    let (_folder, server) = start(&[]);
    let wrong = server.admin_token().replace("hf_", "hf_0");
    let first = get(&server, "/api/v1/session", &wrong);
    // In parallel, so that they come faster than they are forgiven on a slow machine, too.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| (0..16).map(|_| get(&server, "/api/v1/session", &wrong)).collect::<Vec<_>>())
            })
            .collect();
        asked.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(first.status, 401);
    let slowed: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!slowed.is_empty(), "a hundred wrong tokens in a row");
    for answer in slowed {
        let secs: u64 = answer.headers["retry-after"].parse().unwrap();
        assert!((1..=60).contains(&secs), "{answer:?}");
        assert_eq!(answer.json()["code"], "limit");
    }
    // From the same address: a token that was shown before, one that was not, and no token at all.
    serves(&server);
    let new = server.token("new", "operator", &[]);
    assert_eq!(get(&server, "/api/v1/session", &new).status, 200);
}
