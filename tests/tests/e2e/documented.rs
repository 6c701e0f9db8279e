//! The documents are correct: every command in a shell block of README.md, CONTRIBUTING.md and `docs/` is run by the
//! real programs, with small disks and numbers in place of the reader's; every command that is only mentioned must
//! exist with the options it is mentioned with.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use holdfast_bucket::{ACCESS_KEY, BUCKET, SECRET_KEY, TestBucket};
use holdfast_tests::documents::{Command, commands};
use holdfast_tests::repository::{copy_folder, files, give_to, not_of};
use holdfast_tests::server::Options;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, program, tools, wait_for, xtask};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};

/// Options whose values depend on the reader, and values for the tests. Addresses are those of the test's own server.
const VALUES: [(&str, &str); 8] = [
    ("--grpc", "127.0.0.1:0"),
    ("--http", "127.0.0.1:0"),
    ("--entries", "4096"),
    ("--rows", "200"),
    ("--vms", "2"),
    ("--size-mib", "4"),
    ("--containers", "6"),
    ("--tools", "holdfast"),
];

/// Folders of the reader's machine, and those below the test's folder that stand in for them.
const FOLDERS: [(&str, &str); 9] = [
    ("/var/lib/libvirt/images", "images"),
    ("/dev/vg0", "disks"),
    ("/srv/holdfast", "repository"),
    ("/var/lib/holdfast", "repository"),
    ("/etc/holdfast", "settings"),
    ("/mnt/elsewhere", "elsewhere"),
    ("/mnt/disk", "lost"),
    ("/tmp", "output"),
    // In a guest.
    ("/etc", "guest"),
];

/// Words that stand for things of the reader's.
const CORPUS_WORD: &str = "DIR";
const EARLIER_WORD: &str = "FILE";
const BACKUP_WORD: &str = "BACKUP";
const CODE_WORD: &str = "CODE";

/// Results file of the first benchmark that is shown.
const RESULTS: &str = "output/holdfast-bench/results.tsv";

/// Development commands that are not run here, because they build other profiles, take minutes, need a machine of
/// their own (root, network namespaces, a TUN device) or run this test. They must still exist.
const NOT_RUN: [&[&str]; 5] = [&["demo"], &["test"], &["fix"], &["package"], &["bench", "wan"]];

/// Messages of `cargo xtask bench` when it finished but missed a target, as is likely here, in debug builds and
/// with small disks.
const NOT_REACHED: [&str; 2] = ["took longer than", "targets missed"];

/// The user that the server runs as, if the test may choose one.
const USER: u32 = 54_321;

/// Setup of the reader's server, and the user who types the commands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// Root, beside a server of another user; otherwise the server's user.
    as_root: bool,
    /// A bucket has copies of everything.
    pub(super) with_bucket: bool,
}

impl Setting {
    const ONE_USER: Self = Self { as_root: false, with_bucket: false };

    /// All setups that this machine allows.
    pub(super) fn all() -> Vec<Self> {
        let users: &[bool] = if is_root() {
            &[false, true]
        } else {
            tools::skip("only root can be two users");
            &[false]
        };
        let with = |as_root: bool| [false, true].map(|with_bucket| Self { as_root, with_bucket });
        users.iter().flat_map(|as_root| with(*as_root)).collect()
    }
}

/// Images of a disk, where QEMU's programs are.
fn put_images(folder: &Path, disk: &str) {
    let Some(qemu_img) = tools::find("qemu-img") else { return };
    for name in ["mail.qcow2", "wiki"] {
        let image = folder.join("images").join(name);
        let args = ["convert", "-f", "raw", "-O", "qcow2", disk, image.to_str().unwrap()];
        let (done, said) = tools::run(&qemu_img, &args);
        assert!(done, "{said}");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server with a VM, in the state that the reader of one block has.
pub(super) struct Scene {
    pub(super) folder: TempDir,
    pub(super) server: Option<Server>,
    backup: String,
    pub(super) setting: Setting,
    pub(super) bucket: Option<TestBucket>,
}

impl Scene {
    pub(super) fn new(setting: Setting) -> Self {
        let folder = tempdir().unwrap();
        for (_, name) in FOLDERS {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let disks: Vec<String> = (1..)
            .zip(["web-root", "web-data", "web-snapshot"])
            .map(|(seed, name)| {
                let disk = Disk::varied(folder.path().join("disks").join(name), seed, 5 << 20);
                disk.arg().to_owned()
            })
            .collect();
        put_images(folder.path(), &disks[0]);
        let bucket = setting.with_bucket.then(TestBucket::start);
        let mut scene = Self { folder, server: None, backup: String::new(), setting, bucket };
        scene.configure();
        let agent = scene.folder.path().join("disks/web-*");
        let agent = format!("[[vm]]\nname = '*'\nschedule = '@daily'\ndisks = ['{}']\n", agent.display());
        std::fs::write(scene.path("settings/agent.toml"), agent).unwrap();
        scene.give(scene.folder.path());
        scene.start();
        let data = format!("data={}", disks[1]);
        scene.server().agent().run(&["backup", "--vm", "web", &disks[0], &data]).ok();
        scene.backup = scene.server().agent().backups("web").remove(0);
        scene.server().token("tenant", "backup", &["berlin"]);
        scene
    }

    /// Writes the settings of the server, which name the bucket.
    fn configure(&self) {
        let mut text = String::new();
        if let Some(bucket) = &self.bucket {
            let credentials = self.folder.path().join("settings/credentials");
            let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
            std::fs::write(&credentials, format!("[default]\n{keys}")).unwrap();
            let endpoint = bucket.endpoint();
            text = format!(
                "s3 = \"s3://{BUCKET}/site\"\ns3_endpoint = {endpoint:?}\ns3_path_style = true\n\
                 s3_plain = true\ns3_credentials = {credentials:?}\n"
            );
        }
        std::fs::write(self.config(), text).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("settings/server.toml")
    }

    /// Returns the folder that stands in for one of the reader's machine.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Options of the server, as in its unit.
    fn options(&self) -> Options {
        let options = Server::options().args(&["--config", self.config().to_str().unwrap()]);
        if is_root() { options.user(USER) } else { options }
    }

    pub(super) fn start(&mut self) {
        self.try_start().unwrap();
    }

    /// Starts the server, or returns its output.
    pub(super) fn try_start(&mut self) -> Result<(), String> {
        let server = self.options().try_start(&self.path("repository"));
        self.server = Some(server.map_err(|(_, said)| said)?);
        Ok(())
    }

    /// Gives a folder to the server's user.
    pub(super) fn give(&self, folder: &Path) {
        if is_root() {
            give_to(folder, USER);
        }
    }

    pub(super) fn stop(&mut self) {
        let (status, said) = self.server.take().unwrap().stop();
        assert!(status.success(), "{said}");
    }

    /// Waits until the bucket has everything that is here.
    pub(super) fn wait_for_copies(&self) {
        let Some(bucket) = &self.bucket else { return };
        let blobs = self.path("repository/blobs");
        wait_for("the copies", || {
            let keys = bucket.keys();
            let here = ["containers", "points"].into_iter().flat_map(|kind| files(&blobs.join(kind)));
            let mut names = here.map(|path| path.strip_prefix(&blobs).unwrap().display().to_string());
            names.all(|name| keys.contains(&format!("site/{name}"))).then_some(())
        });
    }

    /// Runs a command as the user who types it.
    fn typed(&self, mut command: std::process::Command) -> std::process::Command {
        if is_root() && !self.setting.as_root {
            command.uid(USER).gid(USER);
        }
        // The folder for temporary files of the tests may be root's alone.
        command.current_dir(self.path("output")).env("TMPDIR", self.path("output"));
        command
    }

    /// A `holdfast-server` command with the settings. `place`: path of the data folder, and prefix in the bucket.
    fn maintain(&self, place: &str, args: &[String]) -> std::process::Command {
        let mut command = program("holdfast-server");
        command.args(args).env("HOLDFAST_CONFIG", self.config());
        command.env("HOLDFAST_DATA_DIR", self.path(place));
        if let Some(server) = &self.server {
            command.env("HOLDFAST_ADVERTISE", server.grpc());
        }
        if self.bucket.is_some() && place != "repository" {
            command.env("HOLDFAST_S3", format!("s3://{BUCKET}/{place}"));
        }
        self.typed(command)
    }

    /// Runs a command as shown in the document.
    pub(super) fn run(&mut self, command: &Command) -> Result<(), String> {
        let args = self.stand_in(command)?;
        match (command.program.as_str(), args.first().map_or("", String::as_str)) {
            ("curl", _) => self.ask(&args),
            ("systemctl", "stop") => {
                self.stop();
                Ok(())
            }
            ("systemctl", "start") => {
                // A block that created a new data folder has started it already.
                if self.server.is_none() {
                    self.start();
                }
                Ok(())
            }
            ("holdfast", "export") => self.export(&args),
            // These need a guest, and are tried in `export.rs` with one. Here, they get as far as to miss their programs.
            ("holdfast", "boot" | "files") => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let ran = self.typed(self.server().agent().command(&args)).env("PATH", "").output().unwrap();
                let said = String::from_utf8_lossy(&ran.stderr);
                if said.contains("install the package") { Ok(()) } else { Err(said.into_owned()) }
            }
            ("holdfast", _) => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                done(&self.typed(self.server().agent().command(&args)).output().unwrap())
            }
            (_, "serve") => self.serve(&args),
            (_, "recover") => self.recover(&args),
            (_, "key") => self.key(&args),
            _ => done(&self.maintain("repository", &args).output().unwrap()),
        }
    }

    /// Starts an export, and ends it as Ctrl-C does once it listens.
    fn export(&self, args: &[String]) -> Result<(), String> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = self.typed(self.server().agent().command(&args));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        done(&child.wait_with_output().unwrap())
    }

    /// Sends a request to this server, whatever address the document has.
    fn ask(&self, args: &[String]) -> Result<(), String> {
        let url = args.iter().find_map(|arg| arg.strip_prefix("https://")).ok_or("no address")?;
        let path = url.find('/').and_then(|at| url.get(at..)).ok_or("no path")?;
        let answer = get(self.server(), path, &self.server().admin_token());
        if answer.status == 200 { Ok(()) } else { Err(format!("{}: {}", answer.status, answer.text())) }
    }

    /// Starts a separate server with the same options; the harness sets its addresses and data folder.
    fn serve(&self, args: &[String]) -> Result<(), String> {
        let (mut options, mut rest) = (Server::options(), args.iter().skip(1));
        if is_root() && !self.setting.as_root {
            options = options.user(USER);
        }
        while let Some(arg) = rest.next() {
            if ["--data-dir", "--grpc", "--http"].contains(&arg.as_str()) {
                rest.next();
            } else {
                options = options.arg(arg);
            }
        }
        let server = options.try_start(&self.path("another")).map_err(|(_, said)| said)?;
        let (status, said) = server.stop();
        if status.success() { Ok(()) } else { Err(said) }
    }

    /// Runs a key command on an encrypted repository without a server.
    fn key(&self, args: &[String]) -> Result<(), String> {
        if !self.path("encrypted").exists() {
            self.encrypted_server()?;
        }
        let mut args = args.to_vec();
        if let Some(at) = args.iter().position(|arg| arg == "--data-dir") {
            args.drain(at..at + 2);
        }
        let output = self.maintain("encrypted", &args).output().unwrap();
        if args.iter().any(|arg| arg == "export-kit") {
            std::fs::write(self.path("output/kit.txt"), &output.stdout).unwrap();
        }
        done(&output)
    }

    /// Starts and stops the server of the encrypted repository.
    pub(super) fn encrypted_server(&self) -> Result<(), String> {
        let place = format!("s3://{BUCKET}/encrypted");
        let place = if self.bucket.is_some() { &["--s3", &place][..] } else { &[] };
        let server = self.options().arg("--encrypt").args(place).try_start(&self.path("encrypted"));
        let (status, said) = server.map_err(|(_, said)| said)?.stop();
        if status.success() { Ok(()) } else { Err(said) }
    }

    /// Recovers a copy of the current volume, beside the server: the rest of the block is about tokens of a running
    /// one. With a bucket the copy lacks data that the bucket has.
    fn recover(&self, args: &[String]) -> Result<(), String> {
        self.wait_for_copies();
        let lost = self.path("lost/blobs");
        if !lost.exists() {
            copy_folder(&self.server().data_dir().join("blobs"), &lost);
        }
        if self.bucket.is_some() {
            for path in files(&lost.join("containers")) {
                std::fs::remove_file(path).unwrap();
            }
        }
        let new = self.path("recovered");
        std::fs::create_dir_all(&new).unwrap();
        self.give(&self.path("lost"));
        self.give(&new);
        let mut args = args.to_vec();
        if let Some(at) = args.iter().position(|arg| arg == "--data-dir") {
            args.drain(at..at + 2);
        }
        args.extend(["--data-dir".to_owned(), new.display().to_string()]);
        done(&self.maintain("repository", &args).output().unwrap())?;
        let server = self.options().try_start(&new).map_err(|(_, said)| said)?;
        assert_eq!(server.agent().backups("web"), [self.backup.as_str()]);
        let restored = server.agent().run(&["verify", "--all"]);
        server.stop();
        if !restored.succeeded() {
            return Err(restored.said());
        }
        self.server().token("hv1", "backup", &["default"]);
        Ok(())
    }

    /// Checks that the server starts again, whichever user worked on its folders.
    pub(super) fn ends_well(mut self) -> Result<(), String> {
        if self.server.is_some() {
            self.stop();
        }
        for name in ["repository", "recovered", "encrypted"] {
            let left = if is_root() { not_of(&self.path(name), USER) } else { Vec::new() };
            if !left.is_empty() {
                return Err(format!("{:?}: not the server's: {left:?}", self.setting));
            }
        }
        let started = self.options().try_start(&self.path("repository"));
        started.map(|server| drop(server.stop())).map_err(|(_, said)| format!("{:?}: {said}", self.setting))
    }

    /// Replaces everything of the reader's in the command's arguments.
    fn stand_in(&self, command: &Command) -> Result<Vec<String>, String> {
        let mut args: Vec<String> = Vec::new();
        if let (Some("agent"), Some("check" | "run")) =
            (command.args.first().map(String::as_str), command.args.get(1).map(String::as_str))
        {
            args.extend(command.args.iter().take(2).cloned());
            args.extend(["--file".to_owned(), self.path("settings/agent.toml").display().to_string()]);
        }
        for arg in command.args.iter().skip(args.len().min(2)) {
            let value = args.last().and_then(|before| VALUES.iter().find(|(flag, _)| flag == before));
            match value {
                Some((_, value)) => args.push((*value).to_owned()),
                None if command.program == "curl" => args.push(arg.clone()),
                None if arg == CORPUS_WORD => args.push(corpus(self.folder.path())),
                None if arg == EARLIER_WORD => args.push(self.path(RESULTS).display().to_string()),
                None if arg == BACKUP_WORD => args.push(self.backup.clone()),
                None if arg == CODE_WORD => {
                    let profile = self.path("output/profile.toml").display().to_string();
                    args.extend([self.server().join_code("joined", &[]), "--profile".to_owned(), profile]);
                }
                None => args.extend(self.here(arg)?),
            }
        }
        Ok(args)
    }

    /// Replaces paths in an argument by those of this test; a `*` may expand to several.
    fn here(&self, arg: &str) -> Result<Vec<String>, String> {
        let (name, path) = match (arg.split_once('='), arg.strip_prefix("unix:")) {
            (Some((name, path)), _) => (format!("{name}="), path),
            (None, Some(path)) => ("unix:".to_owned(), path),
            (None, None) => (String::new(), arg),
        };
        if !path.starts_with('/') {
            return if is_placeholder(arg) { Err(unknown(arg)) } else { Ok(vec![arg.to_owned()]) };
        }
        let known = FOLDERS.iter().find_map(|(theirs, ours)| Some((path.strip_prefix(theirs)?, ours)));
        let (rest, ours) = known.ok_or_else(|| unknown(path))?;
        let folder = self.folder.path().join(ours);
        if rest == "/*" {
            return Ok(files(&folder).iter().map(|path| path.display().to_string()).collect());
        }
        let path = folder.join(rest.trim_start_matches('/'));
        Ok(vec![format!("{name}{}", path.display())])
    }
}

/// Creates small disks in the layout of `cargo xtask bench --corpus`.
fn corpus(folder: &Path) -> String {
    let corpus = folder.join("output/corpus");
    std::fs::create_dir_all(&corpus).unwrap();
    for (seed, name) in (1..).zip(["web-day0.raw", "build-day2.raw"]) {
        Disk::of_noise(corpus.join(name), seed, 3 << 20);
    }
    corpus.display().to_string()
}

fn unknown(word: &str) -> String {
    format!("{word} is the reader's: say in tests/tests/e2e/documented.rs what stands for it here")
}

/// Returns true for `BACKUP`, `N`, `DIR`, `[NAME=]PATH`: words that no program would be given.
fn is_placeholder(arg: &str) -> bool {
    arg.starts_with('[') || arg.starts_with(char::is_uppercase) && !arg.chars().any(char::is_lowercase)
}

fn done(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Err(format!("{}\n{}", output.status, said.concat()))
}

/// Panics with all failures, if there are any.
fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} documented commands do not work:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

fn wrong(command: &Command, why: &str) -> String {
    format!("{}: `{}`\n{why}", command.place, command.line())
}

fn is_for_developers(command: &Command) -> bool {
    command.program == "cargo xtask"
}

fn begins(command: &Command, words: &[&str]) -> bool {
    command.args.len() >= words.len() && command.args.iter().zip(words).all(|(arg, word)| arg == word)
}

fn is_run(command: &Command) -> bool {
    let not_run = is_for_developers(command) && NOT_RUN.iter().any(|words| begins(command, words));
    // Of a request only the address is compared; its token is never shown.
    let whole = command.program == "curl" || !command.is_abridged();
    command.block.is_some() && whole && !not_run
}

#[test]
fn commands_shown_to_administrators_run() {
    let shown: Vec<Command> =
        commands().into_iter().filter(|command| is_run(command) && !is_for_developers(command)).collect();
    assert!(shown.len() > 10, "the documents show commands: {shown:?}");
    let settings = Setting::all();
    let all: Vec<usize> = (0..settings.len()).collect();
    let in_one = |at: usize| -> Vec<String> {
        let (setting, mut failures) = (settings[at], Vec::new());
        for block in shown.chunk_by(|a, b| a.block == b.block) {
            // Agents work the same for every user.
            if at > 0 && !block.iter().any(|command| command.program == "holdfast-server") {
                continue;
            }
            let mut scene = Scene::new(setting);
            for command in block {
                let why = scene.run(command).err();
                failures.extend(why.map(|why| wrong(command, &format!("{setting:?}: {why}"))));
            }
            failures.extend(scene.ends_well().err());
        }
        failures
    };
    let failures = std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|at| scope.spawn(|| in_one(*at))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    report(&failures);
}

#[test]
fn commands_shown_to_developers_run() {
    let scene = Scene::new(Setting::ONE_USER);
    let mut failures = Vec::new();
    let mut ran_already = BTreeSet::new();
    for command in commands().into_iter().filter(|command| is_run(command) && is_for_developers(command)) {
        // The command installs it if allowed; a test installs nothing.
        if command.args.iter().any(|arg| arg == "details") && tools::find("curl").is_none() {
            continue;
        }
        let outcome = scene.stand_in(&command).and_then(|args| {
            // Shown with other numbers of the reader's.
            if !ran_already.insert(args.clone()) {
                return Ok(());
            }
            let ran = xtask().args(&args).env("TMPDIR", scene.folder.path()).output().unwrap();
            let ended = |said: &String| NOT_REACHED.iter().any(|words| said.contains(words));
            done(&ran).or_else(|said| if ended(&said) { Ok(()) } else { Err(said) })
        });
        failures.extend(outcome.err().map(|why| wrong(&command, &why)));
    }
    report(&failures);
    assert!(ran_already.len() > 1, "the documents show commands for developers");
}

#[test]
fn commands_mentioned_exist() {
    let mentioned: Vec<Command> =
        commands().into_iter().filter(|command| !is_run(command) && command.program != "curl").collect();
    assert!(mentioned.len() > 10, "the documents mention commands: {mentioned:?}");
    let failures =
        mentioned.iter().filter_map(|command| exists(command).err().map(|why| wrong(command, &why)));
    report(&failures.collect::<Vec<_>>());
}

/// Its words up to the first option must lead to a help text, which must contain every option.
fn exists(command: &Command) -> Result<(), String> {
    let mut run = if is_for_developers(command) { xtask() } else { program(&command.program) };
    let words = command.args.iter().take_while(|arg| !arg.starts_with('-') && !arg.contains('…'));
    let help = run.args(words.filter(|arg| !is_placeholder(arg))).arg("--help").output().unwrap();
    done(&help)?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in command.args.iter().filter(|arg| arg.starts_with("--")) {
        let name = option.split('=').next().unwrap_or(option);
        let ends = |after: &str| !after.starts_with(|c: char| c.is_alphanumeric() || c == '-');
        if !help.match_indices(name).any(|(at, _)| ends(&help[at + name.len()..])) {
            return Err(format!("there is no {name} in its help:\n{help}"));
        }
    }
    Ok(())
}
