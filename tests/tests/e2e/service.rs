//! The agent by the clock: what is due is done once, whatever happens to the agent, the server or the way between them, and
//! each attempt is on record with its cause.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use holdfast_tests::agent::Row;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// A hypervisor with its agent's file and what that remembers.
struct Machine {
    folder: TempDir,
    disk: Disk,
}

/// A running agent. Killed when dropped.
struct Service {
    child: Child,
    log: PathBuf,
}

impl Machine {
    fn new(settings: &str) -> Self {
        let folder = tempdir().unwrap();
        let disk = Disk::varied(folder.path().join("web.raw"), 1, 5 << 20);
        let machine = Self { folder, disk };
        machine.configure(settings);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self, settings: &str) {
        fs::write(self.path("agent.toml"), settings.replace("ROOT", self.folder.path().to_str().unwrap()))
            .unwrap();
    }

    /// Makes an entry due: everything up to the beginning of 1970 was done.
    fn make_due(&self, entries: &[&str]) {
        let marks = entries.iter().map(|name| ((*name).to_owned(), json!({ "at_ms": 0, "unfinished": [] })));
        let state = json!({ "entries": marks.collect::<serde_json::Map<_, _>>(), "untold": [] });
        fs::create_dir_all(self.path("state")).unwrap();
        fs::write(self.path("state/state.json"), state.to_string()).unwrap();
    }

    fn state(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("state/state.json")).unwrap()).unwrap()
    }

    fn args(&self) -> [String; 6] {
        let [file, state] = ["agent.toml", "state"].map(|name| self.path(name).display().to_string());
        ["agent".to_owned(), "run".to_owned(), "--file".to_owned(), file, "--state".to_owned(), state]
    }

    fn start(&self, agent: &Agent, token_file: Option<&Path>) -> Service {
        let args = self.args();
        let mut command = agent.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        if let Some(path) = token_file {
            command.env_remove("HOLDFAST_TOKEN").env("HOLDFAST_TOKEN_FILE", path);
        }
        let log = self.path("log");
        let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        Service { child, log }
    }
}

impl Service {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn says(&self, words: &str) {
        wait_for(words, || fs::read_to_string(&self.log).unwrap().contains(words).then_some(()));
    }

    fn ends(mut self) -> ExitStatus {
        wait_for("the agent to end", || self.child.try_wait().unwrap())
    }

    fn stop(self) {
        self.signal(Signal::TERM);
        let log = self.log.clone();
        let status = self.ends();
        assert!(status.success(), "{status}: {}", fs::read_to_string(log).unwrap());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn failed(agent: &Agent, vm: &str) -> Vec<Row> {
    agent.report().into_iter().filter(|row| row.text("vm") == vm && row.text("status") != "done").collect()
}

fn failure(agent: &Agent, vm: &str, cause: &str) {
    wait_for(cause, || failed(agent, vm).iter().any(|row| row.text("error").contains(cause)).then_some(()));
}

#[test]
fn what_is_due_is_done_once_and_told() {
    let folder = tempdir().unwrap();
    let server = Server::start(folder.path());
    let agent = server.agent();
    let machine = Machine::new(
        "schedule = '@yearly'\nretries = 0\nat-once = 2\n[[vm]]\nname = 'bad'\ndisks = ['ROOT/web.raw']\n\
         before = 'echo no snapshot >&2; exit 1'\nafter = 'echo \"$HOLDFAST_VM $HOLDFAST_RESULT $HOLDFAST_ERROR\" > ROOT/bad'\n\
         [[vm]]\nname = 'kvm-*'\ndisks = ['root=ROOT/*.raw']\nbefore = 'test -z \"$HOLDFAST_TOKEN\"'\n\
         after = 'echo \"$HOLDFAST_VM $HOLDFAST_RESULT $HOLDFAST_BACKUP\" > ROOT/good'\n",
    );
    machine.make_due(&["bad", "kvm-*"]);
    let service = machine.start(&agent, None);
    failure(&agent, "bad", "no snapshot");
    let backup = wait_for("the backup", || agent.backups("kvm-web").pop());
    wait_for("the hook", || {
        fs::read_to_string(machine.path("good")).ok().filter(|text| text.ends_with('\n'))
    });
    assert_eq!(fs::read_to_string(machine.path("good")).unwrap(), format!("kvm-web done {backup}\n"));
    let said = fs::read_to_string(machine.path("bad")).unwrap();
    assert!(said.starts_with("bad failed") && said.contains("no snapshot"), "{said}");
    let told = wait_for("the report", || {
        let agents = agent.run(&["agent", "list", "--json"]).ok().summary()["agents"].clone();
        (agents[0]["report"]["next_run"].is_string()).then_some(agents)
    });
    assert_eq!((&told[0]["late"], &told[0]["report"]["vms"]), (&json!(false), &json!(2)), "{told}");
    wait_for("what is told to be forgotten", || {
        machine.state()["untold"].as_array().unwrap().is_empty().then_some(())
    });
    service.stop();
    // The next one finds nothing to do.
    let service = machine.start(&agent, None);
    service.says("agent started");
    service.stop();
    assert_eq!((agent.backups("kvm-web").len(), failed(&agent, "bad").len()), (1, 1));
    assert_eq!(machine.disk.bytes(), agent.read_back("kvm-web"));
}

#[test]
fn a_stop_and_a_kill_are_made_up_for_and_a_broken_file_changes_nothing() {
    let folder = tempdir().unwrap();
    let server = Server::start(folder.path());
    let agent = server.agent();
    let settings = "schedule = '@yearly'\n[[vm]]\nname = 'web'\ndisks = ['ROOT/web.raw']\n\
                    before = 'echo $$ > ROOT/pid; test -e ROOT/go || sleep 3600'\n";
    let machine = Machine::new(settings);
    let begun = || {
        let begun = wait_for("the hook", || {
            fs::read_to_string(machine.path("pid")).ok().filter(|text| text.ends_with('\n'))
        });
        fs::remove_file(machine.path("pid")).unwrap();
        begun.trim().to_owned()
    };
    machine.make_due(&["web"]);
    let service = machine.start(&agent, None);
    let hook = begun();
    // What runs goes on with a file that cannot be understood, which nothing is taken from.
    machine.configure(&settings.replace("schedule", "shedule"));
    service.signal(Signal::HUP);
    service.says("kept as they were");
    machine.configure(settings);
    service.says("settings read again");
    assert!(Path::new("/proc").join(&hook).exists(), "the backup goes on");
    service.stop();
    wait_for("the hook to end", || (!Path::new("/proc").join(&hook).exists()).then_some(()));
    failure(&agent, "web", "the agent was stopped");

    // Once: of the second, which is killed, nothing is made up again.
    let service = machine.start(&agent, None);
    begun();
    service.signal(Signal::KILL);
    service.ends();
    let service = machine.start(&agent, None);
    service.says("agent started");
    service.stop();
    assert!(agent.backups("web").is_empty() && !machine.path("pid").exists());

    // What is due of itself and killed is made up for.
    machine.make_due(&["web"]);
    let service = machine.start(&agent, None);
    begun();
    service.signal(Signal::KILL);
    service.ends();
    fs::write(machine.path("go"), "").unwrap();
    let service = machine.start(&agent, None);
    wait_for("the backup", || agent.backups("web").pop());
    service.stop();
}

#[test]
fn attempts_that_the_server_cannot_know_of_wait_until_it_can() {
    let folder = tempdir().unwrap();
    let data = folder.path().join("repository");
    let server = Server::start(&data);
    let (agent, address) = (server.agent(), server.grpc().to_owned());
    let machine =
        Machine::new("schedule = '@yearly'\nretries = 0\n[[vm]]\nname = 'web'\ndisks = ['ROOT/web.raw']\n");
    let token = machine.path("token");
    let give = |name: &str| fs::write(&token, server.token(name, "backup", &[])).unwrap();
    let untold = || machine.state()["untold"].as_array().map_or(0, Vec::len);

    // A token that ended: no second attempt could do better, and what joins again tells of the first.
    give("ended");
    let (status, _) = server.tokens(&["revoke", "ended"]);
    assert!(status.success());
    machine.make_due(&["web"]);
    let service = machine.start(&agent, Some(&token));
    service.says("backup failed");
    wait_for("the attempt to be kept", || (untold() == 1).then_some(()));
    give("again");
    service.signal(Signal::HUP);
    failure(&agent, "web", "revoked");
    wait_for("it to be forgotten", || (untold() == 0).then_some(()));
    service.stop();

    // No way to the server: the stop is kept, and told by the next agent.
    machine.make_due(&["web"]);
    let service = machine.start(&agent.through("127.0.0.1:1"), Some(&token));
    service.says("cannot reach the server");
    service.stop();
    assert_eq!(untold(), 1);
    server.stop();

    // A full server takes no backup, nor the record of one; the same server with room takes both.
    let full = Server::options().grpc(&address).args(&["--reserve", "1000000TiB"]).start(&data);
    let service = machine.start(&agent, Some(&token));
    service.says("backup failed");
    wait_for("the attempt to be kept", || (untold() == 2).then_some(()));
    full.stop();
    let server = Server::options().grpc(&address).start(&data);
    service.signal(Signal::HUP);
    for cause in ["the agent was stopped", "do not fit"] {
        failure(&server.agent(), "web", cause);
    }
    service.stop();
    assert!(server.agent().backups("web").is_empty());
}

#[test]
fn a_time_at_which_no_vm_is_found_is_not_over() {
    let folder = tempdir().unwrap();
    let server = Server::start(folder.path());
    let agent = server.agent();
    let machine = Machine::new(
        "schedule = '@yearly'\nretry-pause = '1s'\n[[vm]]\nname = 'due-*'\ndisks = ['ROOT/nfs/*.raw']\n[[vm]]\nname = 'cut-*'\n\
         disks = ['ROOT/nfs/*.raw']\n",
    );
    fs::create_dir(machine.path("nfs")).unwrap();
    let file = machine.path("agent.toml").display().to_string();
    let once = agent.run(&["agent", "run", "--once", "--file", &file]);
    assert_eq!(once.code, Some(2), "nothing was backed up");

    // One is due, and one was not finished, whose entry is not.
    let now_ms = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let mark = |at_ms: u64, unfinished: &[&str]| json!({ "at_ms": at_ms, "unfinished": unfinished });
    let entries = json!({ "due-*": mark(0, &[]), "cut-*": mark(now_ms, &["cut-web"]) });
    fs::create_dir_all(machine.path("state")).unwrap();
    fs::write(machine.path("state/state.json"), json!({ "entries": entries, "untold": [] }).to_string())
        .unwrap();
    let service = machine.start(&agent, None);
    let problem = wait_for("the problem", || {
        let agents = agent.run(&["agent", "list", "--json"]).ok().summary()["agents"].clone();
        let problem = agents[0]["report"]["problem"].as_str()?.to_owned();
        (problem.contains("no VM") && problem.contains("cut-web")).then_some(problem)
    });
    assert_eq!(machine.state()["entries"], entries, "{problem}");
    fs::copy(machine.path("web.raw"), machine.path("copy")).unwrap();
    fs::rename(machine.path("copy"), machine.path("nfs/web.raw")).unwrap();
    for vm in ["due-web", "cut-web"] {
        wait_for(vm, || agent.backups(vm).pop());
    }
    service.stop();
}
