//! The agent's file: which VMs are backed up, from which disks, when and how.
//!
//! Keys before the first `[[vm]]` are defaults of all VMs, but for those of the agent as a whole. A file that others may
//! write is refused: it names commands that this user runs.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use holdfast_proto::limits::check_name;
use holdfast_proto::rate_window::{RateWindow, RateWindows};
use holdfast_proto::schedule::Schedule;
use holdfast_proto::size::ByteSize;
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, de};

use super::pattern::{ANY, Match, matches};
use crate::connect::profile::write_private;
use crate::error::ClientError;
use crate::source::{DiskArgument, Format, Opening};

/// Bytes of the file at most.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// `[[vm]]` entries at most: each is asked every second whether it is due.
const ENTRIES_MAX: usize = 256;
/// VMs that all entries together may mean.
const VMS_MAX: usize = 4096;
/// VMs that are backed up at the same time at most: each takes some 100 MiB.
const AT_ONCE_MAX: usize = 64;
/// Attempts after the first at most.
const RETRIES_MAX: u32 = 100;

/// Settings as the file has them.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// VMs that are backed up at the same time.
    pub at_once: usize,
    /// The rate that all of them share.
    pub rates: RateWindows,
    pub entries: Vec<Arc<Entry>>,
}

/// A `[[vm]]` of the file, with its schedule.
#[derive(Debug)]
pub struct Entry {
    pub rules: Rules,
    pub schedule: Schedule,
}

/// Keys of the agent as a whole.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Whole {
    #[serde(default = "one")]
    at_once: usize,
    #[serde(default)]
    rate: ByteSize,
    #[serde(default)]
    rate_windows: Vec<RateWindow>,
}

/// Keys of [`Whole`].
const WHOLE: [&str; 3] = ["at-once", "rate", "rate-windows"];

/// Keys of a `[[vm]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rules {
    /// Name of the VM. With `*`, which stands for what the first `*` of a disk's path stands for, there are several.
    pub name: String,
    pub disks: Vec<DiskRules>,
    /// `None`: that of the profile.
    pub namespace: Option<String>,
    #[serde(default = "job")]
    pub job: String,
    /// A calendar expression, as the server's schedules have.
    schedule: String,
    /// Empty: UTC.
    #[serde(default)]
    time_zone: String,
    /// Attempts after the first.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Time between two attempts.
    #[serde(default = "retry_pause", deserialize_with = "duration")]
    pub retry_pause: Duration,
    /// For all attempts and the pauses between them.
    #[serde(default = "time_limit", deserialize_with = "duration")]
    pub time_limit: Duration,
    /// Shell command before each attempt.
    pub before: Option<String>,
    /// Shell command after each attempt, whatever came of it.
    pub after: Option<String>,
}

fn one() -> usize {
    1
}

fn job() -> String {
    "nightly".to_owned()
}

fn retries() -> u32 {
    2
}

fn retry_pause() -> Duration {
    Duration::from_secs(600)
}

fn time_limit() -> Duration {
    Duration::from_secs(24 * 3600)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text)
        .map_err(|error| D::Error::custom(format!("{text:?}: {error}; write 10m or 12h")))
}

/// A disk: its path or address alone, or a table with how it is opened.
#[derive(Debug)]
pub struct DiskRules {
    /// `[NAME=]PATH` or `NAME=ADDRESS`, as on the command line; a path may have `*`.
    text: String,
    opening: Opening,
}

impl<'de> Deserialize<'de> for DiskRules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        struct Table {
            path: String,
            #[serde(default)]
            format: Option<String>,
            #[serde(default)]
            allow_backing: bool,
        }
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Table;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a disk: a path, or a table with path, format and allow-backing")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Table, E> {
                Ok(Table { path: text.to_owned(), format: None, allow_backing: false })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Table, A::Error> {
                Table::deserialize(de::value::MapAccessDeserializer::new(map))
            }
        }
        let Table { path, format, allow_backing } = deserializer.deserialize_any(Either)?;
        let format = format.map(|word| Format::from_str(&word, false).map_err(|_| unknown_format(&word)));
        let format = format.transpose().map_err(D::Error::custom)?;
        Ok(Self { text: path, opening: Opening { format, allow_backing } })
    }
}

fn unknown_format(word: &str) -> String {
    let known: Vec<_> = Format::value_variants().iter().map(|format| format.word()).collect();
    format!("{word:?} is no format of disks; write one of {}", known.join(", "))
}

/// An argument as on a command line, or why it is not known, with what the first `*` stands for.
type Argument = (Result<OsString, String>, String);

impl DiskRules {
    /// The name before the `=`, if there is one, and the path.
    fn parts(&self) -> (Option<&str>, &str) {
        match self.text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name), path),
            _ => (None, &self.text),
        }
    }

    /// Returns true if its path means several files.
    fn is_pattern(&self) -> bool {
        let (_, path) = self.parts();
        path.starts_with('/') && path.contains(ANY)
    }

    /// The disks that it stands for now.
    fn arguments(&self) -> Result<Vec<Argument>, String> {
        if !self.is_pattern() {
            return Ok(vec![(Ok(OsString::from(&self.text)), String::new())]);
        }
        let (name, path) = self.parts();
        let found = matches(path).map_err(|error| error.to_string())?;
        let argument = |path: &Path| {
            let mut argument = name.map(|name| OsString::from(format!("{name}="))).unwrap_or_default();
            argument.push(path);
            argument
        };
        let argument =
            |Match { path, part, problem }| (problem.map_or_else(|| Ok(argument(&path)), Err), part);
        Ok(found.into_iter().map(argument).collect())
    }
}

/// Where a file system is not mounted, its files are not gone.
const NO_VM: &str = "it means no VM: no file matches, or every one that does is of another [[vm]]; is a file system not mounted?";

/// An entry with the VMs that it means now, of which there is one at least, or why they cannot be found.
pub type FollowedEntry = (Arc<Entry>, Result<Vec<Vm>, String>);

/// A VM, with the disks that it has now.
#[derive(Debug, Clone)]
pub struct Vm {
    pub name: String,
    pub entry: Arc<Entry>,
    pub disks: Vec<(DiskArgument, Opening)>,
    /// Why its disks are not known.
    pub problem: Option<String>,
}

/// Disks of a VM as its paths lead to them now.
#[derive(Debug, Default)]
struct Found {
    arguments: Vec<(OsString, Opening)>,
    /// Why it is not known where one of them leads.
    problem: Option<String>,
}

impl Entry {
    /// Names one VM, or several.
    fn is_pattern(&self) -> bool {
        self.rules.name.contains(ANY)
    }

    /// The VMs that it means now, whatever other entries mean.
    ///
    /// # Errors
    /// A path with `*` cannot be followed.
    fn vms(self: &Arc<Self>) -> Result<Vec<Vm>, String> {
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        for disk in &self.rules.disks {
            for (argument, part) in disk.arguments()? {
                let name = if self.is_pattern() {
                    self.rules.name.replacen(ANY, &part, 1)
                } else {
                    self.rules.name.clone()
                };
                let found = found.entry(name).or_default();
                match argument {
                    Ok(argument) => found.arguments.push((argument, disk.opening)),
                    Err(problem) => found.problem = Some(problem),
                }
            }
        }
        if !self.is_pattern() {
            // One that has none is a problem of that VM.
            found.entry(self.rules.name.clone()).or_default();
        }
        Ok(found.into_iter().map(|(name, found)| self.vm(name, found)).collect())
    }

    fn vm(self: &Arc<Self>, name: String, Found { arguments, problem }: Found) -> Vm {
        let (texts, openings): (Vec<_>, Vec<_>) = arguments.into_iter().unzip();
        // Some of its disks would pass for all.
        let parsed = if let Some(problem) = problem {
            Err(problem)
        } else if texts.is_empty() {
            Err("none of its paths leads to a file".to_owned())
        } else {
            let parsed = DiskArgument::parse_all(&texts).map_err(|error| error.to_string());
            check_name("VM", &name).and(parsed)
        };
        let (disks, problem) = match parsed {
            Ok(disks) => (disks.into_iter().zip(openings).collect(), None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Vm { name, entry: Arc::clone(self), disks, problem }
    }
}

impl AgentSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ClientError::Usage`], naming the file: others may write it, or it cannot be understood.
    pub fn load(path: &Path) -> Result<Self, ClientError> {
        let wrong = |why: String| ClientError::Usage(format!("{}: {why}", path.display()));
        let text = read(path).map_err(wrong)?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let shown = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let mut defaults: toml::Table = toml::from_str(text).map_err(shown)?;
        let whole = WHOLE.iter().filter_map(|key| defaults.remove_entry(*key)).collect::<toml::Table>();
        let Whole { at_once, rate, rate_windows } =
            whole.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        if !(1..=AT_ONCE_MAX).contains(&at_once) {
            return Err(format!("at-once is {at_once}; it must be from 1 to {AT_ONCE_MAX}"));
        }
        let vms = match defaults.remove("vm") {
            None => Vec::new(),
            Some(toml::Value::Array(vms)) => vms,
            Some(_) => return Err("vm is no list of tables; write [[vm]]".to_owned()),
        };
        if vms.len() > ENTRIES_MAX {
            return Err(format!("it has {} [[vm]]; there may be {ENTRIES_MAX}: write patterns", vms.len()));
        }
        check_defaults(&defaults)?;
        let entries = vms.into_iter().map(|vm| entry(&defaults, vm)).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = entries.iter().find(|entry| !names.insert(entry.rules.name.as_str())) {
            return Err(format!("there are two [[vm]] of the name {:?}", twice.rules.name));
        }
        Ok(Self { at_once, rates: RateWindows { windows: rate_windows, otherwise: rate }, entries })
    }

    /// The VMs of each entry now. One that has an entry of its own, or is of an earlier pattern, is in no other.
    pub fn vms(&self) -> Vec<FollowedEntry> {
        let mut taken: BTreeSet<String> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_pattern())
            .map(|entry| entry.rules.name.clone())
            .collect();
        let of_entry = |entry: &Arc<Entry>| {
            let vms = entry.vms().and_then(|mut vms| {
                if entry.is_pattern() {
                    vms.retain(|vm| taken.len() < VMS_MAX && taken.insert(vm.name.clone()));
                }
                if vms.is_empty() { Err(NO_VM.to_owned()) } else { Ok(vms) }
            });
            (Arc::clone(entry), vms)
        };
        self.entries.iter().map(of_entry).collect()
    }
}

/// Refuses a misspelt default also where no VM is there to have it.
fn check_defaults(defaults: &toml::Table) -> Result<(), String> {
    let some = toml::toml! {
        name = "any"
        disks = ["/any"]
        schedule = "@daily"
    };
    entry(defaults, toml::Value::Table(some)).map(drop)
}

fn entry(defaults: &toml::Table, vm: toml::Value) -> Result<Arc<Entry>, String> {
    let toml::Value::Table(own) = vm else { return Err("vm is no table; write [[vm]]".to_owned()) };
    let name = own.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let wrong = |why: &str| format!("vm {name:?}: {why}");
    let mut all = defaults.clone();
    all.extend(own);
    let rules = Rules::deserialize(all.into_deserializer()).map_err(|error| wrong(error.message()))?;
    check(&rules).map_err(|why| wrong(&why))?;
    let schedule =
        Schedule::parse(&rules.schedule, &rules.time_zone).map_err(|error| wrong(&error.to_string()))?;
    Ok(Arc::new(Entry { rules, schedule }))
}

fn check(rules: &Rules) -> Result<(), String> {
    check_name("VM", &rules.name)?;
    check_name("job", &rules.job)?;
    rules.namespace.as_deref().map_or(Ok(()), |namespace| check_name("namespace", namespace))?;
    if rules.disks.is_empty() {
        return Err("it has no disks".to_owned());
    }
    if rules.retries > RETRIES_MAX {
        return Err(format!("retries is {}; the limit is {RETRIES_MAX}", rules.retries));
    }
    let named_by = |disk: &DiskRules| disk.is_pattern();
    if rules.name.contains(ANY) && !rules.disks.iter().all(named_by) {
        return Err("a name with * needs a * in the path of each disk, for what it stands for".to_owned());
    }
    let literal = rules.disks.iter().filter(|disk| !disk.is_pattern());
    literal
        .map(|disk| OsString::from(&disk.text))
        .try_for_each(|text| DiskArgument::parse(&text).map(drop).map_err(|error| error.to_string()))
}

/// The file's text, if this user alone, or root, may write it.
fn read(path: &Path) -> Result<String, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(
                "there is no such file; 'holdfast agent join' writes one that explains every key".to_owned()
            );
        }
        Err(error) => return Err(error.to_string()),
    };
    let about = file.metadata().map_err(|error| error.to_string())?;
    let (mode, owner, user) = (about.mode() & 0o7777, about.uid(), rustix::process::geteuid().as_raw());
    if mode & 0o022 != 0 || (owner != 0 && owner != user) {
        return Err(format!(
            "others than user {user} may write it (mode {mode:04o}, owner {owner}), and it names commands that this user runs: \
             'chown {user} {0}' and 'chmod go-w {0}'",
            path.display()
        ));
    }
    let mut text = String::new();
    let read = file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > FILE_MAX_BYTES {
        return Err(format!("it is longer than {FILE_MAX_BYTES} bytes"));
    }
    Ok(text)
}

/// A file that explains every key, and backs up nothing yet.
const EXAMPLE: &str = include_str!("agent.toml");

/// Writes such a file, if there is none. Returns true if it was written.
///
/// # Errors
/// [`ClientError::File`].
pub fn write_example(path: &Path) -> Result<bool, ClientError> {
    if path.exists() {
        return Ok(false);
    }
    write_private("writing the agent's settings to", path, EXAMPLE).map(|()| true)
}

/// Tells one state of the file from another; `None`: there is none.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

/// The state that the file is in.
pub(super) fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path).ok()?;
    Some((about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}
