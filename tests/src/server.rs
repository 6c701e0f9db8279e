//! A `holdfast-server` for one test.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;
use crate::memory::MemoryCage;
use crate::{Agent, DEADLINE, faults, program, wait_for};

/// Settings of a server to start.
#[derive(Debug, Clone)]
pub struct Options {
    args: Vec<String>,
    grpc: String,
    memory_bytes: Option<u64>,
    user: Option<u32>,
    environment: Vec<(String, String)>,
}

impl Options {
    /// Adds an argument of `holdfast-server serve`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Sets a memory limit: the system kills a server that exceeds it.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the user that it runs as; only root can do that.
    #[must_use]
    pub const fn user(mut self, id: u32) -> Self {
        self.user = Some(id);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the gRPC address, instead of any free port.
    #[must_use]
    pub fn grpc(mut self, address: &str) -> Self {
        address.clone_into(&mut self.grpc);
        self
    }

    /// Starts a server on `data_dir` and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn start(&self, data_dir: &Path) -> Server {
        match self.try_start(data_dir) {
            Ok(server) => server,
            Err((status, log)) => panic!("the server ended with {status}; it said:\n{log}"),
        }
    }

    /// Starts a server on `data_dir` and waits until it is ready, or has ended; then returns its status and output.
    ///
    /// # Errors
    /// The status and the output of a server that ended before it was ready.
    ///
    /// # Panics
    /// When it is neither ready nor ends.
    pub fn try_start(&self, data_dir: &Path) -> Result<Server, (ExitStatus, String)> {
        if !self.grpc.ends_with(":0") {
            // Between two servers with one address another connection of this machine may have its port for a moment.
            wait_for("the port to be free", || TcpListener::bind(&self.grpc).ok().map(drop));
        }
        let mut command = program("holdfast-server");
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--grpc", &self.grpc, "--http", "127.0.0.1:0"]).args(&self.args);
        command.envs(self.environment.iter().cloned());
        let cage = self.memory_bytes.map(MemoryCage::new).or_else(MemoryCage::of_environment);
        if let Some(cage) = &cage {
            command = cage.around(&command);
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server can be run");
        let log = Arc::new(Mutex::new(String::new()));
        let errors = Arc::new(Mutex::new(String::new()));
        let keep = Arc::clone(&errors);
        let (send, lines) = channel();
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let threads = [
            read_lines(stdout, Arc::clone(&log), move |line| drop(send.send(line))),
            read_lines(stderr, Arc::clone(&log), move |line| {
                let mut errors = keep.lock().unwrap_or_else(PoisonError::into_inner);
                errors.push_str(&line);
                errors.push('\n');
            }),
        ];
        let mut server = Server {
            child: Some(child),
            threads: threads.into(),
            log,
            errors,
            data_dir: data_dir.to_owned(),
            _cage: cage,
            grpc: String::new(),
            https: String::new(),
        };
        if server.wait_ready(&lines) {
            return Ok(server);
        }
        let status = server.wait();
        Err((status, server.log()))
    }
}

fn read_lines(
    from: impl Read + Send + 'static,
    log: Arc<Mutex<String>>,
    mut each: impl FnMut(String) + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push_str(&line);
            log.push('\n');
            drop(log);
            each(line);
        }
    })
}

/// A running server. Killed when dropped; if the test is failing, its output is shown.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    threads: Vec<JoinHandle<()>>,
    log: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
    data_dir: PathBuf,
    grpc: String,
    https: String,
    /// Dropped last, after the process has ended.
    _cage: Option<MemoryCage>,
}

impl Server {
    /// Starts a server on `data_dir` (created on first use), on ports of its own.
    pub fn start(data_dir: &Path) -> Self {
        Self::options().start(data_dir)
    }

    /// Default settings of a server, to be changed before it is started.
    pub fn options() -> Options {
        Options {
            args: Vec::new(),
            grpc: "127.0.0.1:0".to_owned(),
            memory_bytes: None,
            user: None,
            environment: Vec::new(),
        }
    }

    /// Waits until it is ready. Returns false if the server ended instead.
    fn wait_ready(&mut self, lines: &Receiver<String>) -> bool {
        loop {
            match lines.recv_timeout(DEADLINE) {
                Ok(line) if line.trim() == "ready" => return true,
                Ok(line) => {
                    if let Some(address) = line.trim().strip_prefix("gRPC listening on ") {
                        address.clone_into(&mut self.grpc);
                    } else if let Some(address) = line.trim().strip_prefix("HTTPS listening on ") {
                        address.clone_into(&mut self.https);
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the server is not ready after {DEADLINE:?}; it said:\n{}", self.log())
                }
            }
        }
    }

    /// Address for agents.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// Address of the web interface.
    pub fn https(&self) -> &str {
        &self.https
    }

    /// Folder of its repository.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// SHA-256 of its certificate, as text.
    pub fn fingerprint(&self) -> String {
        let file = self.data_dir.join("tls/fingerprint");
        std::fs::read_to_string(file).expect("the server leaves its fingerprint").trim().to_owned()
    }

    /// The token that the first start created.
    pub fn admin_token(&self) -> String {
        let file = self.data_dir.join("admin.token");
        std::fs::read_to_string(file).expect("the server leaves an admin token").trim().to_owned()
    }

    /// An agent of this server, with the admin token.
    pub fn agent(&self) -> Agent {
        Agent::new(&self.grpc, &self.admin_token(), &self.fingerprint())
    }

    /// Creates a token with `holdfast-server token create`, while the server runs. Its owner is that of the admin
    /// token.
    ///
    /// # Panics
    /// When that fails.
    pub fn token(&self, name: &str, role: &str, namespaces: &[&str]) -> String {
        let mut args = vec!["--role", role, "--owner", "admin"];
        for namespace in namespaces {
            args.extend(["--namespace", namespace]);
        }
        self.token_with(name, &args)
    }

    /// Creates a token with these further arguments of `holdfast-server token create`.
    ///
    /// # Panics
    /// When that fails.
    pub fn token_with(&self, name: &str, args: &[&str]) -> String {
        let args = [&["create", "--name", name], args].concat();
        let (status, text) = self.tokens(&args);
        assert!(status.success(), "token create: {status}\n{text}");
        let token = text.lines().map(str::trim).find(|line| line.starts_with("hf_"));
        token.unwrap_or_else(|| panic!("no token in {text:?}")).to_owned()
    }

    /// A join code for an agent called `name`, by `holdfast-server token create --join`.
    ///
    /// # Panics
    /// When none is made.
    pub fn join_code(&self, name: &str, args: &[&str]) -> String {
        let args = [&["create", "--join", "--name", name, "--advertise", &self.grpc], args].concat();
        let (status, text) = self.tokens(&args);
        assert!(status.success(), "token create --join: {status}\n{text}");
        let code = text.lines().find_map(|line| line.strip_prefix("holdfast agent join "));
        code.unwrap_or_else(|| panic!("no code in {text:?}")).to_owned()
    }

    /// Runs `holdfast-server token …` on this repository; returns its status and output.
    pub fn tokens(&self, args: &[&str]) -> (ExitStatus, String) {
        maintain(&self.data_dir, "token", args)
    }

    /// All output of the server so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server's standard error so far: its log.
    pub fn stderr(&self) -> String {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Process id.
    ///
    /// # Panics
    /// When it ended already.
    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the server runs"))
    }

    /// Returns true once it has ended, by itself or by a signal.
    ///
    /// # Panics
    /// When it was waited for before.
    pub fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("the server runs");
        faults::has_ended(Pid::from_child(child)) || child.try_wait().expect("our child").is_some()
    }

    /// Kills it: like a power cut as far as a process can tell.
    pub fn kill(mut self) {
        self.child.as_mut().expect("the server runs").kill().expect("our child");
        self.wait();
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("our child");
    }

    /// Asks it to stop and waits for that; returns its status and output.
    pub fn stop(mut self) -> (ExitStatus, String) {
        self.terminate();
        let status = self.wait();
        (status, self.log())
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the server runs");
        let status = wait_for("the server to end", || child.try_wait().expect("our child"));
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        if std::thread::panicking() {
            eprintln!("--- the server on {} said:\n{}---", self.data_dir.display(), self.log());
        }
    }
}

/// Runs `holdfast-server COMMAND --data-dir DIR ARGS…`; returns its status and output.
///
/// # Panics
/// When it cannot be run.
pub fn maintain(data_dir: &Path, command: &str, args: &[&str]) -> (ExitStatus, String) {
    let mut run = program("holdfast-server");
    run.arg(command).args(args).arg("--data-dir").arg(data_dir);
    let output = run.output().expect("the server can be run");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status, text.concat())
}
