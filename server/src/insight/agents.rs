//! What is said of namespaces whose content only agents can prove: end-to-end encrypted ones.

use holdfast_engine::catalog::AgentsProofs;
use holdfast_proto::details::shell_word;
use holdfast_proto::when::timestamp;

/// A namespace of which a VM was not verified by an agent for so long is reminded of: two weeks, so that a weekly timer may
/// fail once.
pub(crate) const REMIND_AFTER_MS: i64 = 14 * 86_400_000;

/// Whether something of it was not proved for too long.
pub(crate) const fn is_overdue(found: &AgentsProofs, now_ms: i64) -> bool {
    now_ms.saturating_sub(found.unproved_since_ms) > REMIND_AFTER_MS
}

/// One sentence for people.
pub(crate) fn sentence(found: &AgentsProofs) -> String {
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

/// What to do about it, when it is time.
pub(crate) fn reminder(found: &AgentsProofs, now_ms: i64) -> Option<String> {
    is_overdue(found, now_ms).then(|| {
        format!("{}. Run {} at an agent with the key, best by a timer", sentence(found), command(found))
    })
}

/// The command that has an agent prove all of it, to be pasted.
pub(crate) fn command(found: &AgentsProofs) -> String {
    format!("holdfast verify --all --namespace={}", shell_word(&found.name))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::ids::NamespaceId;

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
        assert_eq!(reminder(&fresh, now), None);
        assert!(sentence(&fresh).contains("proved only by agents"), "{}", sentence(&fresh));
        let late = proofs(3, 1, Some(now - DAY_MS), now - 15 * DAY_MS);
        let told = reminder(&late, now).unwrap();
        assert!(
            told.contains("2 of its 3 VMs") && told.contains("holdfast verify --all --namespace=vault"),
            "{told}"
        );
        let never = proofs(1, 1, None, now - 15 * DAY_MS);
        assert!(reminder(&never, now).unwrap().contains("No agent has verified"));
        assert_eq!(reminder(&proofs(1, 1, None, now + DAY_MS), now), None, "a clock that was set back");
    }
}
