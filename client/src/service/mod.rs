//! `holdfast agent`: backs up VMs by the clock, as one file says.
//!
//! | module | open it for |
//! |---|---|
//! | `mod.rs` | the loop: what is due, what runs, what is told |
//! | `settings` | the file, and the VMs that it means |
//! | `pattern` | paths with `*` |
//! | `attempt` | one VM's turn: hooks, attempts, retries |
//! | `hooks` | shell commands |
//! | `state` | what is remembered over a restart |
//! | `tell` | what the server is told |
//! | `reached` | the way to it |
//! | `check` | what the agent would do |
//!
//! Every turn has a result at the server: a restore point, a session that failed there, or, where no session could begin, a record
//! of the attempt, which waits in `state` for as long as the server cannot be told. A turn is begun once for each time that is
//! due; what was missed, or cut short by a stop or a crash, is made up once. A time at which no VM is found is not over: its file
//! system may not be mounted.

mod attempt;
pub mod check;
mod hooks;
mod pattern;
mod reached;
pub mod settings;
mod state;
mod tell;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::api::{AgentReport, Time};
use holdfast_proto::limits::REASON_MAX_BYTES;
use holdfast_proto::schedule::Due;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::backup::{UploadLimit, host_name};
use crate::cancel::Cancel;
use crate::connect::layers::Layers;
use crate::error::ClientError;
use attempt::{Ended, Turn, word_of};
use settings::{AgentSettings, Entry, Stamp, Vm};
use state::State;
use tell::{Told, Words};

/// Time between two looks at the clock and at the file.
const TICK: Duration = Duration::from_secs(1);

/// Time between two reports, when nothing happens: half of that after which an agent is late.
const REPORT_EVERY: Duration = Duration::from_secs(3600);

/// Time after which the server is told again what it could not be told.
const TELL_AGAIN: Duration = Duration::from_secs(300);

/// Time for telling the server at the end.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the settings to reach the server with come from, each time anew.
#[derive(Clone)]
pub struct LayersSource(Arc<dyn Fn() -> Result<Layers, ClientError> + Send + Sync>);

impl LayersSource {
    /// Takes them from a function, which may read files.
    pub fn new(load: impl Fn() -> Result<Layers, ClientError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(load))
    }

    fn load(&self) -> Result<Layers, ClientError> {
        (self.0)()
    }
}

impl fmt::Debug for LayersSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LayersSource(…)")
    }
}

/// An agent to run.
#[derive(Debug)]
pub struct Service {
    /// Path of the file.
    pub file: PathBuf,
    pub layers: LayersSource,
    /// Ends it; what runs ends as failed attempts.
    pub stop: Cancel,
    /// Has it read the file again.
    pub reload: Arc<Notify>,
}

/// Turns that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub done: u64,
    /// Without some of their disks.
    pub partly: u64,
    pub failed: u64,
}

impl Service {
    /// Backs up by the clock until it is stopped. `folder` has what it must remember.
    ///
    /// # Errors
    /// Those of the file and the folder, at the beginning only.
    pub async fn run(self, folder: &std::path::Path) -> Result<Tally, ClientError> {
        let settings = AgentSettings::load(&self.file)?;
        let mut worker = Worker::new(&self, settings, State::open(folder)?, true);
        worker.keep_entries();
        tracing::info!(file = %self.file.display(), entries = worker.settings.entries.len(), "agent started");
        loop {
            worker.look_at_file();
            worker.make_up();
            worker.begin_due(jiff::Timestamp::now().as_millisecond());
            worker.begin_queued();
            worker.tell_if_due();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = worker.running.join_next_with_id() => worker.ended(ended),
                Some(told) = worker.telling.join_next() => worker.told(told),
                () = self.reload.notified() => worker.reload(),
                () = tokio::time::sleep(TICK) => {}
            }
        }
        tracing::info!(running = worker.running.len(), "agent is stopping");
        Ok(worker.finish().await)
    }

    /// Backs up all VMs, or those of these names, once and now.
    ///
    /// # Errors
    /// Those of the file; [`ClientError::Usage`] for a name that it does not have, and when there is no VM at all.
    pub async fn run_once(self, names: &[String]) -> Result<Tally, ClientError> {
        let settings = AgentSettings::load(&self.file)?;
        let mut worker = Worker::new(&self, settings, State::forgetful(), false);
        let found = worker.queue_all(&|name| names.is_empty() || names.iter().any(|wanted| wanted == name));
        if let Some(missing) = names.iter().find(|name| !found.contains(*name)) {
            return Err(ClientError::Usage(format!("{}: there is no VM {missing:?}", self.file.display())));
        }
        if found.is_empty() {
            let why = Vec::from_iter(worker.problems.into_values()).join("; ");
            let why = if why.is_empty() { "it has no [[vm]]".to_owned() } else { why };
            return Err(ClientError::Usage(format!("{}: there is no VM: {why}", self.file.display())));
        }
        if names.is_empty() {
            // Entries of which no VM is found: one at least was to be backed up.
            worker.tally.failed += worker.problems.len() as u64;
        }
        worker.begin_queued();
        while !self.stop.is_cancelled()
            && let Some(ended) = worker.running.join_next_with_id().await
        {
            worker.ended(ended);
            worker.begin_queued();
        }
        Ok(worker.finish().await)
    }
}

/// A VM whose turn it is.
#[derive(Debug)]
struct Queued {
    vm: Vm,
    run_id: String,
}

/// VMs of an entry that are to be made up for.
#[derive(Debug, Clone)]
struct Unfinished {
    vms: BTreeSet<String>,
    /// When they are looked for.
    look_at: Instant,
}

/// The agent at work.
struct Worker<'a> {
    service: &'a Service,
    settings: AgentSettings,
    stamp: Stamp,
    /// Another state that the file was found in, and when: one that is written to is not read.
    changed: Option<(Stamp, Instant)>,
    state: State,
    upload_limit: Arc<UploadLimit>,
    queue: VecDeque<Queued>,
    running: JoinSet<Ended>,
    /// Names of VMs whose turns run, and of their entries.
    names: BTreeMap<Id, (String, String)>,
    /// VMs that an earlier process has not finished and that are not made up yet, by entry.
    unfinished: BTreeMap<String, Unfinished>,
    /// When entries that are due are looked at again, of which no VM was found.
    look_at: BTreeMap<String, Instant>,
    telling: JoinSet<Result<Told, ClientError>>,
    tell_at: Instant,
    /// Reports what the agent is about: one that backs up by the clock.
    is_service: bool,
    tally: Tally,
    /// Problems of this agent, by their subject.
    problems: BTreeMap<String, String>,
}

impl<'a> Worker<'a> {
    fn new(service: &'a Service, settings: AgentSettings, state: State, is_service: bool) -> Self {
        let upload_limit = Arc::new(UploadLimit::default());
        upload_limit.set(settings.rates.clone());
        let look_at = Instant::now();
        let unfinished = state.unfinished().into_iter();
        let unfinished = unfinished.map(|(entry, vms)| (entry, Unfinished { vms, look_at }));
        let begun_anew = state.begun_anew.clone().map(|why| ("state".to_owned(), why));
        Self {
            service,
            stamp: settings::stamp(&service.file),
            changed: None,
            settings,
            unfinished: unfinished.collect(),
            look_at: BTreeMap::new(),
            state,
            upload_limit,
            queue: VecDeque::new(),
            running: JoinSet::new(),
            names: BTreeMap::new(),
            telling: JoinSet::new(),
            tell_at: Instant::now(),
            is_service,
            tally: Tally::default(),
            problems: begun_anew.into_iter().collect(),
        }
    }

    /// Reads a file that has changed, once it has been the same for two looks.
    fn look_at_file(&mut self) {
        let stamp = settings::stamp(&self.service.file);
        match self.changed {
            _ if stamp == self.stamp => self.changed = None,
            Some((before, since)) if before == stamp => {
                if since.elapsed() >= TICK {
                    self.reload();
                }
            }
            _ => self.changed = Some((stamp, Instant::now())),
        }
    }

    fn keep_entries(&mut self) {
        let entries = &self.settings.entries;
        let now_ms = jiff::Timestamp::now().as_millisecond();
        self.state.keep_entries(now_ms, |name| entries.iter().any(|entry| entry.rules.name == name));
    }

    /// Reads the file again. One that cannot be understood changes nothing, and what runs goes on.
    fn reload(&mut self) {
        self.tell_at = Instant::now();
        let file = &self.service.file;
        self.stamp = settings::stamp(file);
        self.changed = None;
        match AgentSettings::load(file) {
            Ok(settings) => {
                tracing::info!(file = %file.display(), entries = settings.entries.len(), "settings read again");
                self.upload_limit.set(settings.rates.clone());
                self.settings = settings;
                self.keep_entries();
                self.look_at.clear();
                self.unfinished.values_mut().for_each(|unfinished| unfinished.look_at = Instant::now());
                self.problems.retain(|about, _| about != "settings" && !about.starts_with(ABOUT_ENTRY));
            }
            Err(error) => {
                tracing::error!(%error, "the settings are kept as they were");
                self.problems
                    .insert("settings".to_owned(), format!("the settings are kept as they were: {error}"));
            }
        }
    }

    /// Begins what an earlier process has begun and not finished. A VM that is not found now is looked for again, until its entry
    /// is due.
    fn make_up(&mut self) {
        let (now, entries) = (Instant::now(), &self.settings.entries);
        let is_due = |(name, unfinished): (&String, &Unfinished)| {
            unfinished.look_at <= now && entries.iter().any(|entry| entry.rules.name == *name)
        };
        if !self.unfinished.iter().any(is_due) {
            return;
        }
        for (entry, found) in self.settings.vms() {
            let name = entry.rules.name.as_str();
            let Some(Unfinished { vms, look_at }) = self.unfinished.get(name).cloned() else { continue };
            if look_at > now {
                continue;
            }
            let found: Vec<_> =
                found.unwrap_or_default().into_iter().filter(|vm| vms.contains(&vm.name)).collect();
            let names: BTreeSet<_> = found.iter().map(|vm| vm.name.clone()).collect();
            let left: BTreeSet<_> = vms.difference(&names).cloned().collect();
            tracing::info!(entry = name, vms = names.len(), ?left, "making up for what was not finished");
            self.state.take_unfinished(name, &names);
            let run_id = new_run();
            self.queue.extend(found.into_iter().map(|vm| Queued { vm, run_id: run_id.clone() }));
            if left.is_empty() {
                self.unfinished.remove(name);
                self.solved(&entry);
            } else {
                let which = Vec::from_iter(left.iter().map(String::as_str)).join(", ");
                self.missing(&entry, format!("a backup was not finished, and its VM is not found: {which}"));
                self.unfinished.insert(name.to_owned(), Unfinished { vms: left, look_at: pause_end(&entry) });
            }
        }
    }

    /// Queues the VMs of every entry whose time has come. An entry whose last turns have not ended waits for them, and one of
    /// which no VM is found is looked at again.
    fn begin_due(&mut self, now_ms: i64) {
        let mut due = BTreeSet::new();
        for entry in self.settings.entries.clone() {
            let name = entry.rules.name.as_str();
            match entry.schedule.due(self.state.mark_ms(name), now_ms) {
                Due::Begin => self.state.begin(name, now_ms, BTreeSet::new()),
                Due::Now if !self.is_busy(name) && self.may_look(name) => drop(due.insert(name.to_owned())),
                Due::Now | Due::Later => {}
            }
        }
        if due.is_empty() {
            return;
        }
        for (entry, vms) in self.settings.vms() {
            let name = entry.rules.name.as_str();
            if !due.contains(name) {
                continue;
            }
            let vms = self.found(&entry, vms);
            if vms.is_empty() {
                continue;
            }
            self.unfinished.remove(name);
            self.state.begin(name, now_ms, vms.iter().map(|vm| vm.name.clone()).collect());
            let run_id = new_run();
            tracing::info!(entry = name, vms = vms.len(), run = run_id, "it is time");
            self.queue.extend(vms.into_iter().map(|vm| Queued { vm, run_id: run_id.clone() }));
        }
    }

    /// Returns false for an entry that was just looked at in vain.
    fn may_look(&self, entry: &str) -> bool {
        self.look_at.get(entry).is_none_or(|at| *at <= Instant::now())
    }

    /// Notes that VMs of an entry are not found; the server is told.
    fn missing(&mut self, entry: &Entry, why: String) {
        tracing::error!(entry = entry.rules.name, why, "VMs of an entry are not found");
        if self.problems.get(&about(entry)) != Some(&why) {
            self.problems.insert(about(entry), why);
            self.tell_at = Instant::now();
        }
    }

    /// Notes that the VMs of an entry are found.
    fn solved(&mut self, entry: &Entry) {
        if self.problems.remove(&about(entry)).is_some() {
            self.tell_at = Instant::now();
        }
    }

    /// Queues the VMs whose names `is_wanted`; returns their names.
    fn queue_all(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (entry, vms) in self.settings.vms() {
            let run_id = new_run();
            for vm in self.found(&entry, vms).into_iter().filter(|vm| is_wanted(&vm.name)) {
                names.insert(vm.name.clone());
                self.queue.push_back(Queued { vm, run_id: run_id.clone() });
            }
        }
        names
    }

    /// The VMs of an entry; none where that cannot be found out, which is a problem of the entry. It is looked at again after its
    /// pause.
    fn found(&mut self, entry: &Entry, vms: Result<Vec<Vm>, String>) -> Vec<Vm> {
        match vms {
            Ok(vms) => {
                self.look_at.remove(&entry.rules.name);
                self.solved(entry);
                vms
            }
            Err(why) => {
                self.look_at.insert(entry.rules.name.clone(), pause_end(entry));
                self.missing(entry, why);
                Vec::new()
            }
        }
    }

    fn is_busy(&self, entry: &str) -> bool {
        self.queue.iter().any(|queued| queued.vm.entry.rules.name == entry)
            || self.names.values().any(|(of, _)| of == entry)
    }

    fn is_at_work(&self, vm: &str) -> bool {
        self.queue.iter().any(|queued| queued.vm.name == vm) || self.names.values().any(|(_, of)| of == vm)
    }

    fn begin_queued(&mut self) {
        while self.running.len() < self.settings.at_once
            && let Some(Queued { vm, run_id }) = self.queue.pop_front()
        {
            let names = (vm.entry.rules.name.clone(), vm.name.clone());
            let turn = Turn {
                vm,
                run_id,
                layers: self.service.layers.clone(),
                upload_limit: Arc::clone(&self.upload_limit),
                stop: self.service.stop.clone(),
            };
            tracing::info!(vm = names.1, "backup begins");
            let id = self.running.spawn(async move { turn.run().await }).id();
            self.names.insert(id, names);
        }
    }

    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let (id, ended) = match ended {
            Ok((id, ended)) => (id, Some(ended)),
            Err(error) => (error.id(), None),
        };
        let Some((entry, vm)) = self.names.remove(&id) else { return };
        let Some(Ended { outcome, untold, after_failed }) = ended else {
            tracing::error!(vm, "a backup ended with an internal error");
            self.tally.failed += 1;
            return self.state.end(&entry, &vm);
        };
        match (&outcome, word_of(&outcome)) {
            (Ok(summary), word) => {
                tracing::info!(
                    vm,
                    word,
                    backup = summary.backup_id,
                    seconds = summary.seconds,
                    "backup ended"
                );
                for failed in &summary.failed_disks {
                    tracing::error!(vm, disk = failed.disk, error = failed.error, "the backup lacks a disk");
                }
                *(if word == "done" { &mut self.tally.done } else { &mut self.tally.partly }) += 1;
            }
            (Err(error), _) => {
                tracing::error!(vm, %error, "backup failed");
                self.tally.failed += 1;
            }
        }
        // What the agent's stop cut short is made up by the next.
        if !self.service.stop.is_cancelled() || outcome.is_ok() {
            self.state.end(&entry, &vm);
        }
        let about = format!("hook after {vm:?}");
        if let Some(why) = after_failed {
            tracing::error!(vm, why, "the hook after a backup failed");
            self.problems.insert(about, why);
        } else {
            self.problems.remove(&about);
        }
        untold.into_iter().for_each(|attempt| self.state.add_untold(attempt));
        self.tell_at = Instant::now();
    }

    fn tell_if_due(&mut self) {
        if !self.telling.is_empty() || Instant::now() < self.tell_at {
            return;
        }
        self.tell_at = Instant::now() + REPORT_EVERY;
        // The record of an attempt is a session of its VM, which would be in the way of another. What is left out is told once
        // the turn has ended.
        let attempts: Vec<_> =
            self.state.untold().iter().filter(|attempt| !self.is_at_work(&attempt.vm)).cloned().collect();
        if self.is_service || !attempts.is_empty() {
            let report = self.is_service.then(|| self.report());
            self.telling.spawn(Words { layers: self.service.layers.clone(), attempts, report }.tell());
        }
    }

    fn report(&self) -> AgentReport {
        let vms = self
            .settings
            .vms()
            .into_iter()
            .filter_map(|(_, vms)| vms.ok())
            .map(|vms| vms.len())
            .sum::<usize>();
        let next = |entry: &Arc<Entry>| {
            let mark_ms = self.state.mark_ms(&entry.rules.name)?;
            entry.schedule.next_after_ms(mark_ms)
        };
        // A time that has come and waits for turns that have not ended is still the next one.
        let next_ms = self.settings.entries.iter().filter_map(next).min();
        let problems = self.problems.values().map(String::as_str).chain(self.state.problem.as_deref());
        let mut problem = problems.collect::<Vec<_>>().join("; ");
        problem.truncate(problem.floor_char_boundary(REASON_MAX_BYTES));
        AgentReport {
            host: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            next_run: next_ms.map(Time::new),
            vms: u32::try_from(vms).unwrap_or(u32::MAX),
            problem,
        }
    }

    fn told(&mut self, told: Result<Result<Told, ClientError>, JoinError>) {
        match told {
            Ok(Ok(Told { attempts, reported })) => {
                self.state.told(&attempts);
                if let Err(error) = &reported {
                    tracing::warn!(%error, "the server does not take the agent's report");
                }
                if reported.is_err() || !self.state.untold().is_empty() {
                    self.tell_at = self.tell_at.min(Instant::now() + TELL_AGAIN);
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the server cannot be told of this agent yet");
                self.tell_at = self.tell_at.min(Instant::now() + TELL_AGAIN);
            }
            Err(error) => tracing::error!(%error, "telling the server ended with an internal error"),
        }
    }

    /// Waits for what runs, which ends by itself, and tells the server what can be told in time.
    async fn finish(mut self) -> Tally {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.ended(ended);
        }
        self.queue.clear();
        let last_words = async {
            while let Some(told) = self.telling.join_next().await {
                self.told(told);
            }
            self.tell_at = Instant::now();
            self.tell_if_due();
            if let Some(told) = self.telling.join_next().await {
                self.told(told);
            }
        };
        if tokio::time::timeout(LAST_WORDS_TIMEOUT, last_words).await.is_err() {
            tracing::warn!("the server was not told of everything in time");
        }
        self.tally
    }
}

/// Beginning of the name of a problem of an entry.
const ABOUT_ENTRY: &str = "vm ";

/// When an entry is looked at again of which no VM is found.
fn pause_end(entry: &Entry) -> Instant {
    Instant::now() + entry.rules.retry_pause.clamp(TICK, REPORT_EVERY)
}

fn about(entry: &Entry) -> String {
    format!("{ABOUT_ENTRY}{:?}", entry.rules.name)
}

/// The id of a run for the VMs that are begun together; empty, so that the server makes one for each, without random numbers.
fn new_run() -> String {
    let mut random = [0; 16];
    if aws_lc_rs::rand::fill(&mut random).is_err() {
        return String::new();
    }
    let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    ulid::Ulid::from_parts(now_ms, u128::from_be_bytes(random)).to_string()
}
