//! `holdfast verify --all`: many restore points, one after the other, for timers.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_proto::ErrorCode;
use holdfast_proto::api::Backup;
use holdfast_proto::details::bytes;
use serde_json::{Value, json};

use super::Context;
use super::args::Verify;
use super::reading::{Outcome, bad_text};
use super::verify;
use crate::error::{ClientError, EXIT_PARTLY};
use crate::repository::list_backups;

/// Result of verifying one restore point.
enum Verdict {
    /// Bytes read.
    Sound(u64),
    Damaged(String),
    Failed(ClientError),
}

/// A VM: its namespace and its name, which is unique only there.
type Vm = (String, String);

fn vm(backup: &Backup) -> Vm {
    (backup.namespace.clone(), backup.vm.clone())
}

#[derive(Default)]
struct Totals {
    bytes: u64,
    sound: usize,
    damaged: usize,
    failed: usize,
    /// VMs of other owners.
    foreign: HashSet<Vm>,
    last_error: Option<u8>,
    points: Vec<Value>,
}

pub(super) async fn run(context: &Context, verify: &Verify) -> Result<ExitCode, ClientError> {
    verify::check_steering(verify)?;
    let (settings, connection, namespace) = context.connect_within(verify.reading.retry_for).await?;
    let listed = list_backups(&connection, &namespace, &verify.vm, "").await?;
    let (due, fresh) = due(listed, verify, now_ms());
    // Once: a passphrase may be asked for.
    let cipher = context.cipher()?;
    let mut totals = Totals::default();
    for backup in due {
        if totals.foreign.contains(&vm(&backup)) {
            continue;
        }
        let read =
            verify::point(context, verify, (settings.clone(), &connection, cipher.clone()), &backup).await;
        let verdict = match read {
            Ok((_, outcomes)) => verdict(outcomes),
            Err(error) => Verdict::Failed(error),
        };
        totals.add(context, &backup, verdict)?;
    }
    let text = || totals.sentence(fresh, verify.not_verified_for);
    let summary = || {
        json!({
            "ok": totals.damaged + totals.failed == 0,
            "sound": totals.sound,
            "damaged": totals.damaged,
            "failed": totals.failed,
            "verified_before": fresh,
            "of_other_owners": totals.foreign.len(),
            "bytes": totals.bytes,
            "restore_points": totals.points,
        })
    };
    context.output.summary(summary, text)?;
    Ok(ExitCode::from(totals.exit_code()))
}

/// Returns the restore points to read, newest first, and how many need not be read because they were verified
/// not long ago.
fn due(listed: Vec<Backup>, verify: &Verify, now_ms: i64) -> (Vec<Backup>, usize) {
    let mut met = HashSet::new();
    let since_ms = verify
        .not_verified_for
        .map(|age| now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
    let is_fresh = |backup: &Backup| {
        let at = if verify.every_point { backup.agent_verified } else { backup.vm_agent_verified };
        let at_ms = at.map_or(0, |at| at.unix_ms);
        // A time in the future says nothing: clocks are set back.
        since_ms.is_some_and(|since_ms| at_ms >= since_ms && at_ms <= now_ms)
    };
    let newest = listed.into_iter().filter(|backup| verify.every_point || met.insert(vm(backup)));
    let (fresh, due): (Vec<_>, Vec<_>) = newest.partition(is_fresh);
    (due, fresh.len())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn verdict(outcomes: Vec<Outcome>) -> Verdict {
    let mut read_bytes = 0;
    let mut damage = Vec::new();
    let mut failure = None;
    for outcome in outcomes {
        damage.extend(bad_text(&outcome));
        match outcome.result {
            Ok(read) => read_bytes += read.data_bytes,
            Err(error) if error.is_damage() => damage.push(error.to_string()),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        _ if !damage.is_empty() => Verdict::Damaged(damage.join("; ")),
        Some(error) => Verdict::Failed(error),
        None => Verdict::Sound(read_bytes),
    }
}

impl Totals {
    /// # Errors
    /// An error that keeps the others from being read, too.
    fn add(&mut self, context: &Context, backup: &Backup, verdict: Verdict) -> Result<(), ClientError> {
        let name = format!("restore point {} of VM {}", backup.id, backup.vm);
        let (ok, said) = match verdict {
            Verdict::Sound(read_bytes) => {
                self.bytes += read_bytes;
                self.sound += 1;
                (true, None)
            }
            Verdict::Damaged(what) => {
                self.damaged += 1;
                (false, Some(what))
            }
            Verdict::Failed(ClientError::Refused { code: ErrorCode::Forbidden, .. }) => {
                self.foreign.insert(vm(backup));
                return Ok(());
            }
            Verdict::Failed(error)
                if error.is_interrupted()
                    || matches!(error, ClientError::Key(_))
                    || error.is_connection_loss() =>
            {
                return Err(error);
            }
            Verdict::Failed(error) => {
                self.failed += 1;
                self.last_error = Some(error.exit_code());
                (false, Some(error.to_string()))
            }
        };
        if let Some(said) = &said {
            context.output.note(&format!("holdfast: {name}: {said}"));
        }
        let (namespace, vm) = vm(backup);
        self.points
            .push(json!({ "backup": backup.id, "namespace": namespace, "vm": vm, "ok": ok, "error": said }));
        Ok(())
    }

    fn exit_code(&self) -> u8 {
        match self.last_error {
            _ if self.damaged > 0 => ErrorCode::Damaged.exit_code(),
            Some(code) if self.sound == 0 => code,
            Some(_) => EXIT_PARTLY,
            None => 0,
        }
    }

    fn sentence(&self, fresh: usize, within: Option<Duration>) -> String {
        let mut parts = Vec::new();
        let count = |count: usize| match count {
            1 => "1 restore point".to_owned(),
            count => format!("{count} restore points"),
        };
        let read = self.sound + self.damaged + self.failed;
        if read == 0 {
            parts.push("Nothing had to be verified".to_owned());
        } else {
            parts.push(format!("Verified {}, {} of data", count(read), bytes(self.bytes)));
            if self.damaged > 0 {
                parts.push(format!("{} DAMAGED", self.damaged));
            }
            if self.failed > 0 {
                parts.push(format!("{} could not be read", self.failed));
            }
            if self.damaged + self.failed == 0 {
                parts.push("every fingerprint matched".to_owned());
            }
        }
        if let Some(within) = within.filter(|_| fresh > 0) {
            let days = within.as_secs() / 86_400;
            let span =
                if days > 0 { format!("{days} days") } else { format!("{} hours", within.as_secs() / 3600) };
            parts.push(format!("{fresh} verified within {span} left out"));
        }
        if !self.foreign.is_empty() {
            parts.push(format!("{} VMs of other owners left out", self.foreign.len()));
        }
        format!("{}.", parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use holdfast_proto::api::Time;

    use super::super::args::{Cli, Command};

    fn asked(line: &str) -> Verify {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Verify(verify) => verify,
            _ => panic!("{line}"),
        }
    }

    fn point(id: &str, vm: &str, (agent, vm_agent): (i64, i64)) -> Backup {
        Backup {
            id: id.into(),
            vm: vm.into(),
            agent_verified: Some(Time::new(agent)).filter(|_| agent > 0),
            vm_agent_verified: Some(Time::new(vm_agent)).filter(|_| vm_agent > 0),
            ..Backup::default()
        }
    }

    const HOUR_MS: i64 = 3_600_000;

    fn chosen(line: &str) -> (Vec<String>, usize) {
        let now = 1000 * HOUR_MS;
        let listed = vec![
            point("5", "web", (0, now - HOUR_MS)),
            point("4", "db", (0, now - 80 * HOUR_MS)),
            point("3", "web", (now - HOUR_MS, now - HOUR_MS)),
            point("2", "never", (0, 0)),
            point("1", "ahead", (now + 1, now + 1)),
        ];
        let (due, fresh) = due(listed, &asked(line), now);
        (due.into_iter().map(|backup| backup.id).collect(), fresh)
    }

    #[test]
    fn what_was_verified_not_long_ago_is_left_out() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen("holdfast verify --all"), (ids(&["5", "4", "2", "1"]), 0));
        assert_eq!(chosen("holdfast verify --all --not-verified-for 3d"), (ids(&["4", "2", "1"]), 1));
        assert_eq!(chosen("holdfast verify --all --not-verified-for 7d"), (ids(&["2", "1"]), 2));
        let every = chosen("holdfast verify --all --every-point --not-verified-for 7d");
        assert_eq!(every, (ids(&["5", "4", "2", "1"]), 1));
    }

    #[test]
    fn vms_of_one_name_in_different_namespaces_are_different_vms() {
        let of =
            |id: &str, namespace: &str| Backup { namespace: namespace.into(), ..point(id, "web", (0, 0)) };
        let listed = vec![of("4", "prod"), of("3", "test"), of("2", "prod"), of("1", "test")];
        let (due, _) = due(listed, &asked("holdfast verify --all"), 1000 * HOUR_MS);
        assert_eq!(due.into_iter().map(|backup| backup.id).collect::<Vec<_>>(), ["4", "3"]);
    }

    #[test]
    fn damage_comes_first_and_one_line_says_how_it_went() {
        let mut totals = Totals { sound: 3, bytes: 5 << 30, ..Totals::default() };
        assert_eq!(totals.exit_code(), 0);
        let said = totals.sentence(2, Some(Duration::from_secs(7 * 86_400)));
        assert!(
            said.contains("Verified 3 restore points") && said.contains("2 verified within 7 days"),
            "{said}"
        );
        (totals.failed, totals.last_error) = (1, Some(3));
        assert_eq!(totals.exit_code(), EXIT_PARTLY);
        totals.damaged = 1;
        assert_eq!(totals.exit_code(), 5);
        assert!(totals.sentence(0, None).contains("1 DAMAGED; 1 could not be read"));
        assert_eq!(Totals { failed: 1, last_error: Some(3), ..Totals::default() }.exit_code(), 3);
    }
}
