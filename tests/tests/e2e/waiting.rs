//! Events that can hit callers who wait for their turn: in every case they end as they would otherwise, leave the
//! queue and keep no slot.

use std::path::Path;

use holdfast::repository::list_backups;
use holdfast_tests::agent::Running;
use holdfast_tests::raw::{Session, connect};
use holdfast_tests::{Agent, Disk, Server, wait_for};
use rustix::process::Signal;
use tempfile::{TempDir, tempdir};
use tokio::runtime::Runtime;

use super::front_door::metric;

/// Number of waiting agents.
const WAITING: usize = 6;

/// A server with one slot of each kind, both taken, and agents that wait for them.
struct Queue {
    folder: TempDir,
    disk: Disk,
    /// Holds the slots; dropping it frees them.
    taken: (Runtime, tokio::task::JoinHandle<()>),
    backups: Vec<Running>,
    restores: Vec<Running>,
}

fn options() -> holdfast_tests::server::Options {
    Server::options().arg("--max-streams=1").arg("--max-restores=1")
}

fn vm(number: usize) -> String {
    format!("vm-{number}")
}

fn backup(agent: &Agent, number: usize, disk: &Disk, retry_for: &str) -> Running {
    agent.start(&["backup", "--vm", &vm(number), disk.arg(), "--retry-for", retry_for])
}

fn restored(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("restored-{number}.raw"))
}

fn restore(agent: &Agent, folder: &Path, number: usize, retry_for: &str) -> Running {
    let to = restored(folder, number).to_string_lossy().into_owned();
    let more = ["--retry-for", retry_for, "--connections", "4", "--to", &to];
    agent.start(&[&["restore", "latest", "--vm", "here"], &more[..]].concat())
}

fn waiting(server: &Server, kind: &str) -> u64 {
    metric(server, &format!("holdfast_streams_waiting{{kind=\"{kind}\"}}"))
}

fn slots(server: &Server) -> [u64; 3] {
    ["ingest", "digests", "restore"]
        .map(|kind| metric(server, &format!("holdfast_streams{{kind=\"{kind}\"}}")))
}

/// Takes the slots with a silent disk stream, and a restore that is not read, until the task is ended.
async fn take_slots(server: Server, told: std::sync::mpsc::Sender<Server>) {
    use holdfast_proto::v1;
    use holdfast_proto::v1::ingest_request::Kind;
    let connection = connect(&server).await;
    let session = Session::start(&connection, "holder", 1 << 20).await;
    let (line, messages) = tokio::sync::mpsc::channel(1);
    let open = v1::OpenStream { session_id: session.id.clone(), ..v1::OpenStream::default() };
    line.send(v1::IngestRequest { order: 0, kind: Some(Kind::Open(open)) }).await.unwrap();
    let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
    let ingest = connection.ingest().ingest(messages).await.unwrap();
    let backup_id = list_backups(&connection, "", "here", "").await.unwrap().remove(0).id;
    let request =
        v1::ReadDiskRequest { backup_id, disk: "disk".to_owned(), ..v1::ReadDiskRequest::default() };
    // A restore that leaves its answer unread.
    let other = connect(&server).await;
    let restore = other.restore().read_disk(request).await.unwrap();
    told.send(server).unwrap();
    std::future::pending::<()>().await;
    drop((line, ingest, restore, session));
}

impl Queue {
    fn new(agent_of: impl Fn(&Server) -> Agent, retry_for: &str) -> (Self, Server) {
        let folder = tempdir().unwrap();
        let server = options().start(&folder.path().join("repository"));
        // More than the windows of a connection and the server's queue hold.
        let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
        server.agent().back_up("here", &[disk.arg()]);
        let agent = agent_of(&server);
        let runtime = Runtime::new().unwrap();
        let (told, tells) = std::sync::mpsc::channel();
        let holder = runtime.spawn(take_slots(server, told));
        let server = tells.recv().unwrap();
        wait_for("the slots to be taken", || (slots(&server) == [1, 0, 1]).then_some(()));
        let backups = (0..WAITING).map(|number| backup(&agent, number, &disk, retry_for)).collect();
        let restores = (0..WAITING).map(|number| restore(&agent, folder.path(), number, retry_for)).collect();
        wait_for("all to wait", || {
            let all = WAITING as u64;
            (waiting(&server, "ingest") == all && waiting(&server, "restore") == all).then_some(())
        });
        (Self { folder, disk, taken: (runtime, holder), backups, restores }, server)
    }

    fn runs(&mut self) -> impl Iterator<Item = Running> {
        self.backups.drain(..).chain(self.restores.drain(..))
    }

    /// Asserts that only the repository and the disk are there.
    fn assert_no_file_left(&self) {
        let mut names: Vec<_> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["disk.raw", "repository"]);
    }

    /// Frees the slots, and asserts that all succeed.
    fn assert_goes_on(self, server: &Server) {
        wait_for("no one to wait", || {
            (waiting(server, "ingest") + waiting(server, "restore") == 0).then_some(())
        });
        assert_eq!(slots(server), [1, 0, 1], "the holder's, and no other");
        self.taken.1.abort();
        drop(self.taken.0);
        wait_for("the slots to be free", || (slots(server) == [0, 0, 0]).then_some(()));
        let agent = server.agent();
        backup(&agent, 0, &self.disk, "0s").wait().ok();
        restore(&agent, self.folder.path(), 0, "0s").wait().ok();
        self.disk.assert_same(&restored(self.folder.path(), 0));
    }
}

#[test]
fn agents_that_are_killed_leave_the_queue() {
    let (mut queue, server) = Queue::new(Server::agent, "0s");
    queue.runs().for_each(Running::kill);
    wait_for("sessions of dead agents to wait no more", || (waiting(&server, "ingest") == 0).then_some(()));
    // Their sessions exist until their leases end; another VM is not delayed.
    let Queue { folder, disk, taken, .. } = queue;
    wait_for("all to have left", || (waiting(&server, "restore") == 0).then_some(()));
    assert_eq!(slots(&server), [1, 0, 1]);
    taken.1.abort();
    drop(taken.0);
    server.agent().back_up("another", &[disk.arg()]);
    assert!(server.agent().read_back("another") == disk.bytes());
    drop(folder);
}

#[test]
fn interrupted_agents_end_and_leave_nothing() {
    let (mut queue, server) = Queue::new(Server::agent, "1h");
    let runs: Vec<_> = queue.runs().collect();
    runs.iter().for_each(|run| run.signal(Signal::INT));
    for run in runs {
        run.wait().fails(130, &[]);
    }
    queue.assert_no_file_left();
    queue.assert_goes_on(&server);
}

#[test]
fn a_token_that_is_revoked_waits_no_longer() {
    let agent = |server: &Server| server.agent().with_token(&server.token("waits", "operator", &["default"]));
    let (mut queue, server) = Queue::new(agent, "1h");
    let (status, said) = server.tokens(&["revoke", "waits"]);
    assert!(status.success(), "{said}");
    for run in queue.runs() {
        run.wait().fails(4, &["token"]);
    }
    queue.assert_no_file_left();
    let Queue { folder, disk, taken, .. } = queue;
    wait_for("all to have left", || {
        (waiting(&server, "ingest") + waiting(&server, "restore") == 0).then_some(())
    });
    assert_eq!(slots(&server), [1, 0, 1]);
    drop((taken, folder, disk));
}

#[test]
fn a_server_that_stops_says_so_to_all_who_wait() {
    let (mut queue, server) = Queue::new(Server::agent, "0s");
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    for run in queue.runs() {
        run.wait().fails(9, &[]);
    }
    queue.assert_no_file_left();
}

#[test]
fn those_who_wait_come_back_to_a_server_that_was_started_again() {
    let (mut queue, server) = Queue::new(Server::agent, "1h");
    let (address, data_dir) = (server.grpc().to_owned(), server.data_dir().to_owned());
    server.kill();
    queue.taken.1.abort();
    // Another test may have taken the port in the meantime.
    let server = wait_for("the port", || options().grpc(&address).try_start(&data_dir).ok());
    for run in queue.runs() {
        run.wait().ok();
    }
    for number in 0..WAITING {
        queue.disk.assert_same(&restored(queue.folder.path(), number));
        assert_eq!(server.agent().backups(&vm(number)).len(), 1);
    }
    wait_for("the slots to be free", || (slots(&server) == [0, 0, 0]).then_some(()));
}
