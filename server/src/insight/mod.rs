//! Figures in words: number words, what is lost, what only agents can prove. Below: unusual runs ([`findings`]), what
//! happened in one ([`explain`]), and when the repository will be full ([`forecast`]). Pure functions of rows, without I/O.

pub(crate) mod explain;
pub(crate) mod findings;
pub(crate) mod forecast;

use holdfast_engine::catalog::{AgentsProofs, DamagedDisk};
use holdfast_proto::details::shell_word;
use holdfast_proto::when::timestamp;

/// "2.6×", "130×".
fn factor(factor: f64) -> String {
    if factor < 100.0 { format!("{factor:.1}×") } else { format!("{factor:.0}×") }
}

/// A share of something in whole percent, never rounded to 0 or 100 when it is not.
fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * ratio(part, whole);
    if part == whole {
        "100 %".to_owned()
    } else if share > 99.0 {
        "over 99 %".to_owned()
    } else if share < 1.0 && part > 0 {
        "under 1 %".to_owned()
    } else {
        format!("{share:.0} %")
    }
}

/// 0 when there is no divisor.
fn ratio(a: u64, b: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let ratio = if b == 0 { 0.0 } else { a as f64 / b as f64 };
    ratio
}

/// A namespace of which a VM was not verified by an agent for so long is reminded of: two weeks, so that a weekly timer may
/// fail once.
pub(crate) const REMIND_AFTER_MS: i64 = 14 * 86_400_000;

/// Returns true if something of it was not proved for too long.
pub(crate) const fn is_overdue(found: &AgentsProofs, now_ms: i64) -> bool {
    now_ms.saturating_sub(found.unproved_since_ms) > REMIND_AFTER_MS
}

/// One sentence for people about a namespace whose content only agents can prove: an end-to-end encrypted one.
pub(crate) fn agents_sentence(found: &AgentsProofs) -> String {
    let AgentsProofs { name, vms, never, oldest_ms, .. } = found;
    let proved = match (oldest_ms, never) {
        (None, _) => "no agent has verified any of it yet".to_owned(),
        (Some(oldest), 0) => {
            format!("agents verified all of its {vms} VMs, the first of them {}", timestamp(*oldest))
        }
        (Some(oldest), never) => {
            format!(
                "agents verified {} of its {vms} VMs, the first of them {}",
                vms - never,
                timestamp(*oldest)
            )
        }
    };
    format!(
        "namespace {name:?} is end-to-end encrypted, so its content is proved only by agents; the server proves that it has \
         what it was sent. {}",
        capital(&proved)
    )
}

/// Returns the reminder to verify, when it is due.
pub(crate) fn agents_reminder(found: &AgentsProofs, now_ms: i64) -> Option<String> {
    is_overdue(found, now_ms).then(|| {
        format!(
            "{}. Run {} at an agent with the key, best by a timer",
            agents_sentence(found),
            agents_command(found)
        )
    })
}

/// The command that has an agent prove all of it, to be pasted.
pub(crate) fn agents_command(found: &AgentsProofs) -> String {
    format!("holdfast verify --all --namespace={}", shell_word(&found.name))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Ranges of a disk shown at most.
const RANGES_SHOWN: usize = 8;

/// One sentence: which bytes of which disk of which restore point.
pub(crate) fn lost_text(disk: &DamagedDisk) -> String {
    let DamagedDisk { backup, namespace_name, vm, started_ms, disk: name, lost, .. } = disk;
    let shown = lost.listed.iter().take(RANGES_SHOWN);
    let ranges: Vec<String> = shown
        .map(|range| format!("{} to {}", range.start, range.start.saturating_add(range.bytes)))
        .collect();
    let more = lost.ranges.saturating_sub(ranges.len() as u64);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "VM {vm:?} (namespace {namespace_name:?}), restore point {backup} of {}, disk {name:?}: {} bytes cannot be restored: \
         {}{more}",
        timestamp(*started_ms),
        lost.bytes,
        ranges.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use holdfast_engine::ids::NamespaceId;

    use super::*;

    #[test]
    fn shares_are_never_rounded_to_nothing_or_all() {
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 1000), "under 1 %");
        assert_eq!(percent(999, 1000), "over 99 %");
        assert_eq!(percent(10, 10), "100 %");
        assert_eq!(percent(1, 3), "33 %");
    }

    const DAY_MS: i64 = 86_400_000;

    fn proofs(vms: u64, never: u64, oldest_ms: Option<i64>, since_ms: i64) -> AgentsProofs {
        AgentsProofs {
            namespace: NamespaceId::from_bytes([1; 16]),
            name: "vault".to_owned(),
            vms,
            never,
            oldest_ms,
            unproved_since_ms: since_ms,
        }
    }

    #[test]
    fn a_namespace_is_reminded_of_after_two_weeks() {
        let now = 1000 * DAY_MS;
        let fresh = proofs(3, 0, Some(now - 13 * DAY_MS), now - 13 * DAY_MS);
        assert_eq!(agents_reminder(&fresh, now), None);
        assert!(agents_sentence(&fresh).contains("proved only by agents"), "{}", agents_sentence(&fresh));
        let late = proofs(3, 1, Some(now - DAY_MS), now - 15 * DAY_MS);
        let told = agents_reminder(&late, now).unwrap();
        assert!(
            told.contains("2 of its 3 VMs") && told.contains("holdfast verify --all --namespace=vault"),
            "{told}"
        );
        let never = proofs(1, 1, None, now - 15 * DAY_MS);
        assert!(agents_reminder(&never, now).unwrap().contains("No agent has verified"));
        assert_eq!(
            agents_reminder(&proofs(1, 1, None, now + DAY_MS), now),
            None,
            "a clock that was set back"
        );
    }
}
