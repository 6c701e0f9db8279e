//! What the documents show works: every command in a shell block of README.md, CONTRIBUTING.md and `docs/` is run
//! by the real programs, with small disks and numbers in place of the reader's; every command that is only
//! mentioned must exist with the options it is mentioned with.

use std::path::Path;
use std::process::Output;

use holdfast_tests::documents::{Command, commands};
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, program, tools, xtask};
use tempfile::{TempDir, tempdir};

/// Options whose value is the reader's, and a value for here. Addresses are those of the test's own server.
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
const FOLDERS: [(&str, &str); 7] = [
    ("/dev/vg0", "disks"),
    ("/srv/holdfast", "repository"),
    ("/var/lib/holdfast", "repository"),
    ("/etc/holdfast", "settings"),
    ("/mnt/elsewhere", "elsewhere"),
    ("/mnt/disk", "lost"),
    ("/tmp", "output"),
];

/// Words that stand for something of the reader's.
const CORPUS_WORD: &str = "DIR";
const BACKUP_WORD: &str = "BACKUP";

/// Development commands that are not run here, because they build other profiles, take minutes, need a machine of
/// their own (root, network namespaces, a TUN device) or are what runs this test. They must exist all the same.
const NOT_RUN: [&[&str]; 4] = [&["demo"], &["test"], &["fix"], &["bench", "wan"]];

/// What `cargo xtask bench` says when it ran to its end and a figure was not reached: not here, in debug builds and with
/// small disks.
const NOT_REACHED: [&str; 2] = ["took longer than", "targets missed"];

/// A server with a VM, as the reader of one block has it.
struct Scene {
    folder: TempDir,
    server: Server,
    backup: String,
}

impl Scene {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        for (_, name) in FOLDERS {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let server = Server::start(&folder.path().join("repository"));
        let disks: Vec<String> = (1..)
            .zip(["web-root", "web-data", "web-snapshot"])
            .map(|(seed, name)| {
                let disk = Disk::varied(folder.path().join("disks").join(name), seed, 5 << 20);
                disk.arg().to_owned()
            })
            .collect();
        let data = format!("data={}", disks[1]);
        server.agent().run(&["backup", "--vm", "web", &disks[0], &data]).ok();
        let backup = server.agent().backups("web").remove(0);
        server.token("tenant", "backup", &["berlin"]);
        Self { folder, server, backup }
    }

    /// Runs a command as the document shows it.
    fn run(&self, command: &Command) -> Result<(), String> {
        let args = self.stand_in(command)?;
        match command.program.as_str() {
            "curl" => self.ask(&args),
            "holdfast" => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                done(&self.server.agent().command(&args).output().unwrap())
            }
            _ if args.first().is_some_and(|first| first == "serve") => self.serve(&args),
            _ if args.first().is_some_and(|first| first == "recover") => self.recover(&args),
            _ if args.first().is_some_and(|first| first == "key") => self.key(&args),
            _ => {
                let mut run = program("holdfast-server");
                run.args(&args).env("HOLDFAST_DATA_DIR", self.server.data_dir());
                done(&run.output().unwrap())
            }
        }
    }

    /// The address is this server's, whatever the document calls it.
    fn ask(&self, args: &[String]) -> Result<(), String> {
        let url = args.iter().find_map(|arg| arg.strip_prefix("https://")).ok_or("no address")?;
        let path = url.find('/').and_then(|at| url.get(at..)).ok_or("no path")?;
        let answer = get(&self.server, path, &self.server.admin_token());
        if answer.status == 200 { Ok(()) } else { Err(format!("{}: {}", answer.status, answer.text())) }
    }

    /// A server of its own with the same options; where it listens and keeps its data is the harness's.
    fn serve(&self, args: &[String]) -> Result<(), String> {
        let (mut options, mut rest) = (Server::options(), args.iter().skip(1));
        while let Some(arg) = rest.next() {
            if ["--data-dir", "--grpc", "--http"].contains(&arg.as_str()) {
                rest.next();
            } else {
                options = options.arg(arg);
            }
        }
        let server = options.try_start(&self.folder.path().join("another")).map_err(|(_, said)| said)?;
        let (status, said) = server.stop();
        if status.success() { Ok(()) } else { Err(said) }
    }

    /// Of an encrypted repository at rest.
    fn key(&self, args: &[String]) -> Result<(), String> {
        let folder = self.folder.path().join("encrypted");
        if !folder.exists() {
            let server = Server::options().arg("--encrypt").try_start(&folder).map_err(|(_, said)| said)?;
            server.stop();
        }
        let mut args = args.to_vec();
        if let Some(at) = args.iter().position(|arg| arg == "--data-dir") {
            args.drain(at..at + 2);
        }
        done(&program("holdfast-server").args(&args).env("HOLDFAST_DATA_DIR", folder).output().unwrap())
    }

    /// Of a volume as it is now, and beside the server: what follows in the block is about tokens of one that runs.
    fn recover(&self, args: &[String]) -> Result<(), String> {
        copy(&self.server.data_dir().join("blobs"), &self.folder.path().join("lost/blobs"));
        let mut args = args.to_vec();
        if let Some(at) = args.iter().position(|arg| arg == "--data-dir") {
            args[at + 1] = self.folder.path().join("recovered").display().to_string();
        }
        done(&program("holdfast-server").args(&args).output().unwrap())?;
        self.server.token("hv1", "backup", &["default"]);
        Ok(())
    }

    /// The command's arguments with everything of the reader's replaced.
    fn stand_in(&self, command: &Command) -> Result<Vec<String>, String> {
        let mut args: Vec<String> = Vec::new();
        for arg in &command.args {
            let value = args.last().and_then(|before| VALUES.iter().find(|(flag, _)| flag == before));
            match value {
                Some((_, value)) => args.push((*value).to_owned()),
                None if command.program == "curl" => args.push(arg.clone()),
                None if arg == CORPUS_WORD => args.push(corpus(self.folder.path())),
                None if arg == BACKUP_WORD => args.push(self.backup.clone()),
                None => args.extend(self.here(arg)?),
            }
        }
        Ok(args)
    }

    /// An argument with paths of this test; several for a `*`.
    fn here(&self, arg: &str) -> Result<Vec<String>, String> {
        let (name, path) = match arg.split_once('=') {
            Some((name, path)) => (format!("{name}="), path),
            None => (String::new(), arg),
        };
        if !path.starts_with('/') {
            return if is_placeholder(arg) { Err(unknown(arg)) } else { Ok(vec![arg.to_owned()]) };
        }
        let known = FOLDERS.iter().find_map(|(theirs, ours)| Some((path.strip_prefix(theirs)?, ours)));
        let (rest, ours) = known.ok_or_else(|| unknown(path))?;
        let folder = self.folder.path().join(ours);
        if rest == "/*" {
            return Ok(files(&folder));
        }
        let path = folder.join(rest.trim_start_matches('/'));
        Ok(vec![format!("{name}{}", path.display())])
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Disks as `cargo xtask bench --corpus` expects them, small.
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

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path().display().to_string()).collect()
}

/// `BACKUP`, `N`, `DIR`, `[NAME=]PATH`: nothing that a program would be given.
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

/// Panics with everything that went wrong.
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
    // Of a request the address counts; its token is never shown.
    let whole = command.program == "curl" || !command.is_abridged();
    command.block.is_some() && whole && !not_run
}

#[test]
fn commands_shown_to_administrators_run() {
    let shown: Vec<Command> =
        commands().into_iter().filter(|command| is_run(command) && !is_for_developers(command)).collect();
    assert!(shown.len() > 10, "the documents show commands: {shown:?}");
    let mut failures = Vec::new();
    for block in shown.chunk_by(|a, b| a.block == b.block) {
        let scene = Scene::new();
        for command in block {
            failures.extend(scene.run(command).err().map(|why| wrong(command, &why)));
        }
    }
    report(&failures);
}

#[test]
fn commands_shown_to_developers_run() {
    let scene = Scene::new();
    let mut failures = Vec::new();
    let mut count = 0;
    for command in commands().into_iter().filter(|command| is_run(command) && is_for_developers(command)) {
        // Installed by the command itself, where it may; a test installs nothing.
        if command.args.iter().any(|arg| arg == "details") && tools::find("curl").is_none() {
            continue;
        }
        count += 1;
        let outcome = scene.stand_in(&command).and_then(|args| {
            let ran = xtask().args(&args).env("TMPDIR", scene.folder.path()).output().unwrap();
            let ended = |said: &String| NOT_REACHED.iter().any(|words| said.contains(words));
            done(&ran).or_else(|said| if ended(&said) { Ok(()) } else { Err(said) })
        });
        failures.extend(outcome.err().map(|why| wrong(&command, &why)));
    }
    report(&failures);
    assert!(count > 1, "the documents show commands for developers");
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

/// Its words up to the first option must lead to a help text, which must have every option.
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
