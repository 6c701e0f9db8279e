//! The agent's plan: every VM of its file, its disks as they are now, and when it is backed up.

use std::sync::Arc;

use super::settings::{AgentSettings, Entry, Vm};
use crate::source::{Format, open_as};

/// Times that are shown of each VM.
const TIMES: usize = 3;

/// A VM as it would be backed up now.
#[derive(Debug)]
pub struct CheckedVm {
    pub name: String,
    pub entry: Arc<Entry>,
    pub disks: Vec<CheckedDisk>,
    /// Why it would not be backed up, or not as a whole.
    pub problems: Vec<String>,
    /// When it comes next, in Unix milliseconds.
    pub next_ms: Vec<i64>,
}

/// A disk that was opened.
#[derive(Debug)]
pub struct CheckedDisk {
    pub name: String,
    /// Its path or address.
    pub location: String,
    pub format: Format,
    pub size_bytes: u64,
}

/// Opens every disk of every VM; returns the VMs, and what is wrong with entries as a whole. Blocks.
pub fn check(settings: &AgentSettings, now_ms: i64) -> (Vec<CheckedVm>, Vec<String>) {
    let (mut checked, mut problems) = (Vec::new(), Vec::new());
    for (entry, vms) in settings.vms() {
        let name = &entry.rules.name;
        match vms {
            Ok(vms) => checked.extend(vms.iter().map(|vm| look(vm, now_ms))),
            Err(error) => problems.push(format!("vm {name:?}: {error}")),
        }
    }
    (checked, problems)
}

fn look(vm: &Vm, now_ms: i64) -> CheckedVm {
    let mut problems: Vec<String> = vm.problem.iter().cloned().collect();
    let mut disks = Vec::new();
    for (disk, opening) in &vm.disks {
        match open_as(disk, *opening) {
            Ok((source, format)) => disks.push(CheckedDisk {
                name: disk.name.clone(),
                location: source.location().to_owned(),
                format,
                size_bytes: source.size_bytes(),
            }),
            // A hook may make it.
            Err(error) if vm.entry.rules.before.is_some() => problems
                .push(format!("disk {}: {error} (if the hook \"before\" makes it, that is fine)", disk.name)),
            Err(error) => problems.push(format!("disk {}: {error}", disk.name)),
        }
    }
    let next_ms = vm.entry.schedule.times_after_ms(now_ms).take(TIMES).collect();
    CheckedVm { name: vm.name.clone(), entry: Arc::clone(&vm.entry), disks, problems, next_ms }
}
