//! Says what was found: one sentence with figures, and one on what it comes from.

use holdfast_proto::api::{Finding, FindingKind, Time};
use holdfast_proto::details::bytes;

use super::super::{factor, percent};
use super::Found;

/// Times within so many days are told by the day of the week.
const BY_WEEKDAY_MS: i64 = 6 * 86_400_000;

/// A factor that fell to no less than this share of the usual one is not worth telling.
const FELL: f64 = 0.95;

/// Names of the run's namespace, job and VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) job: &'a str,
    /// Empty: the job as a whole.
    pub(crate) vm: &'a str,
}

/// Puts a finding into words as of `now_ms`.
pub(crate) fn finding(found: &Found, subject: Subject<'_>, now_ms: i64) -> Finding {
    let Subject { namespace, job, vm } = subject;
    let name = if vm.is_empty() { job.to_owned() } else { format!("{job}/{vm}") };
    Finding {
        namespace: namespace.to_owned(),
        job: job.to_owned(),
        vm: vm.to_owned(),
        kind: found.kind,
        since: Time::new(found.since_ms),
        until: Time::new(found.until_ms),
        runs: found.runs,
        usual: found.usual,
        now: found.now(),
        more_bytes: found.more_bytes,
        text: format!("{name}: {}", headline(found, now_ms)),
        cause: cause(found),
    }
}

fn headline(found: &Found, now_ms: i64) -> String {
    let sum = &found.sum;
    let size = bytes(sum.bytes);
    let known = percent(sum.bytes.saturating_sub(sum.new_bytes), sum.bytes);
    match found.kind {
        FindingKind::FirstFull | FindingKind::Clones => match found.vms {
            1 => format!("first backup of {size}, of which {known} was stored already"),
            vms => format!("first backups of {vms} VMs, {size}, of which {known} was stored already"),
        },
        FindingKind::ReadAgain => {
            format!("all {size} read again, of which {known} was stored already, {}", when(found, now_ms))
        }
        FindingKind::Retried => {
            format!("the attempts before it stored {}, which its factors count", bytes(sum.retried_bytes))
        }
        FindingKind::Failed => "no restore point".to_owned(),
        FindingKind::Incompressible
        | FindingKind::Rewritten
        | FindingKind::MoreNew
        | FindingKind::NoDuplicates
        | FindingKind::Compression => {
            let more = bytes(found.more_bytes);
            let vms = if found.vms > 1 { format!("{} VMs, ", found.vms) } else { String::new() };
            format!("{vms}{}{more} more than usual, {}", fall(found), when(found, now_ms))
        }
    }
}

/// "12× → 2.1×, ", if the factor fell.
fn fall(found: &Found) -> String {
    match (found.usual.and_then(|usual| usual.total_factor), found.now().total_factor) {
        (Some(usual), Some(now)) if now <= usual * FELL => format!("{} → {}, ", factor(usual), factor(now)),
        _ => String::new(),
    }
}

fn when(found: &Found, now_ms: i64) -> String {
    let since = day(found.since_ms, now_ms);
    match (found.is_over, found.runs) {
        (false, _) => format!("since {since}"),
        (true, 1) => format!("on {since}"),
        (true, _) => format!("from {since} to {}", day(found.until_ms, now_ms)),
    }
}

/// "Tuesday", or the date of what is longer ago. In UTC.
fn day(at_ms: i64, now_ms: i64) -> String {
    let is_near = now_ms.saturating_sub(at_ms).abs() <= BY_WEEKDAY_MS;
    let form = if is_near { "%A" } else { "%Y-%m-%d" };
    jiff::Timestamp::from_millisecond(at_ms).map(|at| at.strftime(form).to_string()).unwrap_or_default()
}

fn cause(found: &Found) -> String {
    let usual = found.usual.and_then(|usual| usual.local_factor);
    let instead = usual.map(|usual| format!(" instead of {}", factor(usual))).unwrap_or_default();
    let compresses = format!("{}{instead}", found.now().local_factor.map(factor).unwrap_or_default());
    let grown = found.grown_bytes;
    match found.kind {
        FindingKind::Incompressible => format!(
            "Much is new and hardly compresses ({compresses}): data was encrypted or compressed inside the VM, by its owner or by \
             ransomware."
        ),
        FindingKind::Rewritten => {
            "Much is new and compresses as before: data was rewritten, as by the reorganisation of a database, an update or \
             defragmentation."
                .to_owned()
        }
        FindingKind::MoreNew if grown > 0 => format!(
            "It holds {} more than usual: files were added, or something was restored inside the VM.",
            bytes(grown)
        ),
        FindingKind::MoreNew if found.runs > 1 => {
            format!("More is new in each run, and compresses {compresses}: more is written than before.")
        }
        FindingKind::MoreNew => format!("Much is new, and compresses {compresses}: other data is written than before."),
        FindingKind::NoDuplicates => {
            "As much changes as usual, but nearly nothing of it deduplicates any more: it is compressed, encrypted or shuffled \
             before it is written."
                .to_owned()
        }
        FindingKind::Compression => format!(
            "As much is new as usual, but it compresses {compresses}: the agent's compression level was lowered, or other data \
             is written than before."
        ),
        FindingKind::FirstFull => "There was no restore point of it to build on.".to_owned(),
        FindingKind::Clones => "They are copies of each other, or of what was backed up before.".to_owned(),
        FindingKind::ReadAgain => {
            "It was moved, restored elsewhere, or got another disk layout; this takes time once, and hardly any space.".to_owned()
        }
        FindingKind::Retried => "Attempts that create no restore point store what the next one finds there.".to_owned(),
        FindingKind::Failed => String::new(),
    }
}
