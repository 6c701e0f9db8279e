//! More requests at once than the server allows: they wait for their turn, and all succeed.

use std::path::Path;

use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::{self, ingest_response};
use holdfast_tests::agent::Running;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::raw::{Session, connect_as};
use holdfast_tests::web::get;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use tempfile::tempdir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::front_door::metric;

/// A delayed agent is not a dead one.
const LEASE: &str = "--lease-secs=3600";

/// Agents that start at once.
const AGENTS: usize = 10;

fn disks(folder: &Path) -> Vec<Disk> {
    let path = |number: usize| folder.join(format!("disk-{number}.raw"));
    (0..AGENTS).map(|number| Disk::of_noise(path(number), number as u64 + 1, 6 << 20)).collect()
}

fn vm(number: usize) -> String {
    format!("vm-{number}")
}

/// Without retries: a disk that waits for its turn needs none.
fn start_backup(agent: &Agent, number: usize, disk: &Disk) -> Running {
    agent.start(&["backup", "--vm", &vm(number), "--retry-for", "0s", disk.arg()])
}

fn waiting(server: &Server, kind: &str) -> u64 {
    metric(server, &format!("holdfast_streams_waiting{{kind=\"{kind}\"}}"))
}

#[test]
fn backups_and_restores_over_the_limit_wait_and_all_succeed() {
    let folder = tempdir().unwrap();
    let server = Server::options()
        .arg("--max-streams=2")
        .arg("--max-restores=2")
        .arg(LEASE)
        .start(&folder.path().join("repository"));
    let agent = server.agent();
    let disks = disks(folder.path());
    // One holds a slot for as long as its proxy is held. On a slow machine that is longer than a connection may be
    // silent: then it reconnects.
    let proxy = Proxy::holding(server.grpc(), 1 << 20);
    let first = ["backup", "--vm", &vm(0), "--retry-for", "1h", disks[0].arg()];
    let first = agent.through(proxy.address()).start(&first);
    super::crash::wait_until_sending(&server, 1);
    let backups: Vec<Running> =
        (1..AGENTS).map(|number| start_backup(&agent, number, &disks[number])).collect();
    for run in backups {
        run.wait().ok();
    }
    proxy.release();
    first.wait().ok();
    let to = |number: usize| folder.path().join(format!("restored-{number}.raw"));
    let restore = |number: usize| {
        let to = to(number).to_string_lossy().into_owned();
        agent.start(&["restore", "latest", "--vm", &vm(number), "--retry-for", "0s", "--to", &to])
    };
    let restores: Vec<Running> = (0..AGENTS).map(restore).collect();
    for run in restores {
        run.wait().ok();
    }
    for (number, disk) in disks.iter().enumerate() {
        disk.assert_same(&to(number));
    }
}

/// An agent that takes the only slot and sends nothing, for as long as a test wants.
struct Holder {
    session: Session,
    _messages: mpsc::Sender<v1::IngestRequest>,
    _answers: Streaming<v1::IngestResponse>,
}

impl Holder {
    async fn start(server: &Server, token: &str, vm: &str) -> Self {
        let connection = connect_as(server, token).await;
        let session = Session::start(&connection, vm, 1 << 20).await;
        let open = v1::OpenStream { session_id: session.id.clone(), ..v1::OpenStream::default() };
        let (messages, line) = mpsc::channel(1);
        messages.send(v1::IngestRequest { order: 0, kind: Some(Kind::Open(open)) }).await.unwrap();
        let mut answers = connection.ingest().ingest(ReceiverStream::new(line)).await.unwrap().into_inner();
        let opened = answers.message().await.unwrap().unwrap().kind;
        assert!(matches!(opened, Some(ingest_response::Kind::Opened(_))), "{opened:?}");
        Self { session, _messages: messages, _answers: answers }
    }
}

#[test]
fn a_second_tenant_is_next_although_the_first_has_many_waiting() {
    let folder = tempdir().unwrap();
    let server = Server::options().arg("--max-streams=1").arg(LEASE).start(&folder.path().join("repository"));
    let token = server.token("busy", "backup", &["busy"]);
    let (busy, other) = (
        server.agent().with_token(&token),
        server.agent().with_token(&server.token("other", "backup", &["other"])),
    );
    let disks = disks(folder.path());
    // Its threads run independently of the test, and answer the server's pings.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let holder = runtime.block_on(Holder::start(&server, &token, &vm(0)));
    wait_for("the slot to be taken", || {
        (metric(&server, "holdfast_streams{kind=\"ingest\"}") == 1).then_some(())
    });
    let mut runs: Vec<Running> =
        (1..AGENTS - 1).map(|number| start_backup(&busy, number, &disks[number])).collect();
    let waits = |count: usize| {
        wait_for("all to wait", || (waiting(&server, "ingest") == count as u64).then_some(()));
    };
    waits(AGENTS - 2);
    runs.push(start_backup(&other, AGENTS - 1, &disks[AGENTS - 1]));
    waits(AGENTS - 1);
    let activity = get(&server, "/api/v1/activity", &server.admin_token()).json();
    let sessions = activity["sessions"].as_array().unwrap();
    let place = |vm: &str| sessions.iter().find(|session| session["vm"] == vm).unwrap()["ahead"].as_u64();
    assert_eq!(place(&vm(AGENTS - 1)), Some(0), "{activity}");
    assert_eq!(place(&vm(0)), None, "it has the slot");
    runtime.block_on(holder.session.abort());
    drop(holder);
    for run in runs {
        run.wait().ok();
    }
    assert_eq!(metric(&server, "holdfast_stream_waits_total{kind=\"ingest\"}"), AGENTS as u64 - 1);
}

/// Peak memory of the server, in MB.
fn peak_mb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024 / 1_000_000
}

/// Run by hand: `cargo test -p holdfast-tests --test e2e -- --ignored fifty_backups --nocapture`.
#[test]
#[ignore = "takes minutes, and says how much memory it took"]
fn fifty_backups_and_a_hundred_restores_of_one_token_at_once() {
    const BACKUPS: usize = 50;
    const RESTORES: usize = 100;
    let folder = tempdir().unwrap();
    let repository = folder.path().join("repository");
    let server = Server::start(&repository);
    let agent = server.agent();
    let bytes = 24 << 20;
    let path = |number: usize| folder.path().join(format!("disk-{number}.raw"));
    let disks: Vec<Disk> =
        (0..BACKUPS).map(|number| Disk::of_noise(path(number), number as u64 + 1, bytes)).collect();
    let threads = |args: &[&str]| agent.start(&[args, &["--threads", "1"]].concat());
    let backups: Vec<Running> = disks
        .iter()
        .enumerate()
        .map(|(number, disk)| threads(&["backup", "--vm", &vm(number), "--retry-for", "0s", disk.arg()]))
        .collect();
    for run in backups {
        run.wait().ok();
    }
    println!("{BACKUPS} backups at once: the server took {} MB at most", peak_mb(&server));
    assert!(peak_mb(&server) <= 400);
    drop(server);
    let server = Server::start(&repository);
    let agent = server.agent();
    let to = |number: usize| folder.path().join(format!("restored-{number}.raw"));
    let restores: Vec<Running> = (0..RESTORES)
        .map(|number| {
            let (vm, to) = (vm(number % BACKUPS), to(number).to_string_lossy().into_owned());
            agent.start(&[
                "restore",
                "latest",
                "--vm",
                &vm,
                "--threads",
                "1",
                "--retry-for",
                "0s",
                "--to",
                &to,
            ])
        })
        .collect();
    for run in restores {
        run.wait().ok();
    }
    println!("{RESTORES} restores at once: the server took {} MB at most", peak_mb(&server));
    assert!(peak_mb(&server) <= 600);
    for number in 0..RESTORES {
        disks[number % BACKUPS].assert_same(&to(number));
    }
}
