//! A bucket in memory: the example program of `tests/bucket`, which listens on loopback and reports the
//! requests it got.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{self, Profile};

/// Builds the program, if need be.
///
/// # Errors
/// When the build fails.
pub(crate) fn program(profile: Profile) -> Result<PathBuf> {
    shell::example_of("holdfast-bucket", "bucket_server", profile)
}

/// A running bucket. Ends when dropped, unless [`Bucket::leave_running`] was called; its contents are lost then.
#[derive(Debug)]
pub(crate) struct Bucket {
    child: Option<Child>,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    endpoint: String,
    name: String,
    /// The file with the credentials.
    credentials: PathBuf,
}

impl Bucket {
    /// Starts an empty one. `credentials`: a file to write the credentials to.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(program: &Path, credentials: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("--lines").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let commands = child.stdin.take().context("piped")?;
        let answers = BufReader::new(child.stdout.take().context("piped")?);
        let mut bucket = Self {
            child: Some(child),
            commands: Some(commands),
            answers,
            endpoint: String::new(),
            name: String::new(),
            credentials: credentials.to_owned(),
        };
        let told = bucket.answer()?;
        let text = |key: &str| {
            let found = told.get(key).and_then(Value::as_str).map(str::to_owned);
            found.with_context(|| format!("the bucket does not tell its {key}"))
        };
        (bucket.endpoint, bucket.name) = (text("endpoint")?, text("bucket")?);
        let keys = format!(
            "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            text("access_key")?,
            text("secret_key")?
        );
        std::fs::write(credentials, keys)
            .with_context(|| format!("cannot write {}", credentials.display()))?;
        let mut ready = String::new();
        bucket.answers.read_line(&mut ready)?;
        if ready.trim() != "ready" {
            bail!("the bucket is not ready: {ready:?}");
        }
        Ok(bucket)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the bucket answered {line:?}"))
    }

    fn ask(&mut self, command: &str) -> Result<Value> {
        writeln!(self.commands.as_mut().context("the bucket was left")?, "{command}")
            .context("the bucket is gone")?;
        self.answer()
    }

    /// Address of the service.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Location of a prefix in it.
    pub(crate) fn place(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}", self.name)
    }

    /// The settings of a server that keeps copies at `prefix`, for a configuration file.
    pub(crate) fn settings(&self, prefix: &str) -> String {
        format!(
            "encryption = \"on\"\ns3 = \"{}\"\ns3_endpoint = \"{}\"\ns3_path_style = true\ns3_credentials = \"{}\"\n",
            self.place(prefix),
            self.endpoint,
            self.credentials.display()
        )
    }

    /// Sets the additional latency of every request, and the bytes a second, each way; 0: unlimited.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn set_line(&mut self, latency_ms: u64, bytes_per_sec: u64) -> Result<()> {
        self.ask(&format!("latency {latency_ms}"))?;
        self.ask(&format!("rate {bytes_per_sec}")).map(|_| ())
    }

    /// Returns true if the containers, restore points and keys at `prefix` are those of a server's data folder.
    ///
    /// # Errors
    /// When it is gone, or the folder cannot be read.
    pub(crate) fn has_all_of(&mut self, prefix: &str, data_dir: &Path) -> Result<bool> {
        let kinds = ["containers", "points", "keys"].map(|kind| format!("{prefix}/{kind}/"));
        let told = self.ask("keys")?;
        let told = told.as_array().into_iter().flatten().filter_map(Value::as_str);
        let there: BTreeSet<String> =
            told.filter(|key| kinds.iter().any(|kind| key.starts_with(kind))).map(str::to_owned).collect();
        let blobs = data_dir.join("blobs");
        let mut here = BTreeSet::new();
        for kind in ["containers", "points", "keys"] {
            files(&blobs.join(kind), &format!("{prefix}/{kind}"), &mut here)?;
        }
        Ok(here == there)
    }

    /// Removes all objects.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.ask("empty").map(|_| ())
    }

    /// Counts of the requests so far.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn counts(&mut self) -> Result<Counts> {
        self.ask("counts").map(Counts)
    }

    /// Lets it run on after this program; returns its process id.
    ///
    /// # Errors
    /// Never in practice.
    pub(crate) fn leave_running(mut self) -> Result<u32> {
        Ok(self.child.take().context("no bucket")?.id())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if it has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Adds the names of all files below a folder.
fn files(folder: &Path, name: &str, found: &mut BTreeSet<String>) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files(&entry.path(), &name, found)?;
        } else {
            found.insert(name);
        }
    }
    Ok(())
}

/// Counts of requests to a bucket, and of its objects.
#[derive(Debug, Clone)]
pub(crate) struct Counts(Value);

impl Counts {
    /// Requests of a kind since `earlier`.
    pub(crate) fn made_since(&self, op: &str, earlier: &Self) -> u64 {
        self.made(op).saturating_sub(earlier.made(op))
    }

    fn sum(of: Option<&Value>, wanted: impl Fn(&str) -> bool) -> u64 {
        let fields = of.and_then(Value::as_object).into_iter().flatten();
        fields.filter(|(name, _)| wanted(name)).filter_map(|(_, count)| count.as_u64()).sum()
    }

    /// Requests of a kind, such as `put`.
    pub(crate) fn made(&self, op: &str) -> u64 {
        Self::sum(self.0.get(op), |_| true)
    }

    /// Requests of a kind for a kind of blob, such as `containers`.
    pub(crate) fn about(&self, op: &str, folder: &str) -> u64 {
        Self::sum(self.0.get(op), |name| name == folder)
    }

    /// Objects of a kind, and their bytes.
    pub(crate) fn objects(&self, folder: &str) -> (u64, u64) {
        let of_folder = self.0.get("objects").and_then(|objects| objects.get(folder));
        (Self::sum(of_folder, |name| name == "count"), Self::sum(of_folder, |name| name == "bytes"))
    }

    /// Bytes of all objects.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let folders = self.0.get("objects").and_then(Value::as_object).into_iter().flatten();
        folders.map(|(name, _)| self.objects(name).1).sum()
    }

    /// A single figure, such as `sent_bytes`.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_up() {
        let counts = Counts(serde_json::json!({
            "put": { "containers": 3, "points": 2 },
            "objects": { "containers": { "count": 3, "bytes": 30 }, "lease": { "count": 1, "bytes": 5 } },
            "sent_bytes": 7,
        }));
        assert_eq!((counts.made("put"), counts.about("put", "points"), counts.made("get")), (5, 2, 0));
        assert_eq!((counts.objects("containers"), counts.stored_bytes()), ((3, 30), 35));
        assert_eq!(counts.figure("sent_bytes"), 7);
    }
}
