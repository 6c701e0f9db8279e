//! Thaw before a restore of archived data: its cost, the question whether to, and the wait.

use std::time::{Duration, Instant};

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Backup, StartThaw, Task, TaskStatus, Thaw};
use holdfast_proto::details::{bytes, escape_line, escape_text};

use super::args::{ThawSpeed, Thawing};
use super::{Context, ask};
use crate::connect::{Api, Connection, retrying};
use crate::error::ClientError;

/// Interval at which the server is asked for progress, at first and at most: a thaw takes minutes, or days.
const ASK_FIRST: Duration = Duration::from_millis(500);
const ASK_LONGEST: Duration = Duration::from_secs(30);

/// Interval between two lines for a log.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Outcome of a thaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thawed {
    /// All data can be read.
    Ready,
    /// The thaw was requested, and no one waits for it.
    Started,
}

/// Makes the archived data of these disks readable, as `thawing` says. `disk`: the one of them, if it was named; `retry_for`: the longest
/// outage to wait for.
///
/// # Errors
/// `Archived`: it has to be thawed, and no one said so.
pub(super) async fn make_ready(
    context: &Context,
    connection: &Connection,
    backup: &Backup,
    (disks, disk): (Vec<String>, Option<&str>),
    (thawing, retry_for): (&Thawing, Duration),
) -> Result<Thawed, ClientError> {
    let days = thawing.thaw_days.unwrap_or(0);
    let api = connection.api();
    let path = ["backups", &backup.id, "thaw"];
    let days_text = thawing.thaw_days.map(|days| days.to_string());
    let parameters = [("disk", disk), ("days", days_text.as_deref())];
    let quoted = async || api.get_lines(&path, &parameters).await?.only().await;
    let quote: Thaw = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ClientError::Interrupted),
        quote = retrying(retry_for, quoted) => quote?,
    };
    if quote.objects + quote.objects_under_way == 0 {
        return Ok(Thawed::Ready);
    }
    let speed = decide(context, backup, &quote, thawing)?;
    let task: Task = api.post(&path, &StartThaw { speed, days, disks }).await?;
    if thawing.no_wait {
        context.output.note(&format!(
            "holdfast: thawing goes on at the server (task {}); when it is done, the same command goes on",
            escape_line(&task.id)
        ));
        return Ok(Thawed::Started);
    }
    wait(context, (&api, &path), task, retry_for).await?;
    Ok(Thawed::Ready)
}

/// Decides how fast to thaw.
fn decide(
    context: &Context,
    backup: &Backup,
    quote: &Thaw,
    thawing: &Thawing,
) -> Result<String, ClientError> {
    let asks = ask::is_asked(context.output, thawing.yes);
    if quote.objects > 0 {
        context.output.note(&text(backup, quote));
    }
    let chosen = thawing.thaw.map(ThawSpeed::word);
    match chosen {
        Some(speed) => {
            let offer = quote.offers.iter().find(|offer| offer.speed == speed);
            if quote.objects > 0 && offer.is_none() && !quote.offers.is_empty() {
                let offered: Vec<&str> = quote.offers.iter().map(|offer| offer.speed.as_str()).collect();
                let offered = escape_line(&offered.join(" or ")).into_owned();
                return Err(ClientError::Usage(format!(
                    "not all of this can be thawed as {speed}: choose {offered}"
                )));
            }
            if quote.objects > 0 && asks {
                ask::confirm("Thaw it, and wait?")?;
            } else if quote.objects > 0 && !thawing.yes {
                return Err(refused(backup, quote, "add --yes to thaw it without being asked"));
            }
            Ok(speed.to_owned())
        }
        None if quote.objects == 0 => {
            let (count, size) = (quote.objects_under_way, bytes(quote.bytes_under_way));
            if !asks {
                return Err(refused(backup, quote, "run it again later, or with --thaw bulk to wait for it"));
            }
            context.output.note(&format!("{count} objects of {size} are being thawed; waiting for them"));
            // Nothing is asked for: the word does not matter.
            Ok(ThawSpeed::Bulk.word().to_owned())
        }
        None if asks => {
            let answer = ask::ask("Thaw it now? (bulk, standard, expedited; nothing: no) ")?;
            let speed = answer.trim().to_ascii_lowercase();
            if quote.offers.iter().any(|offer| offer.speed == speed) {
                return Ok(speed);
            }
            Err(refused(backup, quote, "nothing was thawed"))
        }
        None => Err(refused(backup, quote, "thaw it with --thaw bulk --yes (or standard, expedited)")),
    }
}

fn refused(backup: &Backup, quote: &Thaw, what_to_do: &str) -> ClientError {
    let state = if quote.objects > 0 {
        format!("{} objects ({}) must be thawed first", quote.objects, bytes(quote.bytes))
    } else {
        format!("{} objects ({}) are being thawed", quote.objects_under_way, bytes(quote.bytes_under_way))
    };
    ClientError::Refused {
        code: ErrorCode::Archived,
        message: format!(
            "restore point {} of VM {} lies in the archive in part: {state}; {what_to_do}",
            backup.id, backup.vm
        ),
        passes: false,
    }
}

/// Describes the quote for people.
fn text(backup: &Backup, quote: &Thaw) -> String {
    let mut lines = vec![format!(
        "Restore point {} of VM {} lies in the archive in part ({}).",
        backup.id,
        escape_text(&backup.vm),
        escape_line(&quote.classes.join(", "))
    )];
    lines.push(format!("To thaw: {} objects, {} ({} bytes)", quote.objects, bytes(quote.bytes), quote.bytes));
    if quote.objects_under_way + quote.objects_readable > 0 {
        lines.push(format!(
            "Thawed already or under way: {} objects, {}",
            quote.objects_under_way + quote.objects_readable,
            bytes(quote.bytes_under_way + quote.bytes_readable)
        ));
    }
    for offer in &quote.offers {
        lines.push(format!(
            "  {:<10} within {} hours, about {}",
            escape_line(&offer.speed),
            offer.hours,
            dollars(offer.cost)
        ));
        for line in &offer.lines {
            let extra = if line.extra { " (not in the sum)" } else { "" };
            lines.push(format!("    {:>12}  {}{extra}", dollars(line.cost), escape_line(&line.what)));
        }
    }
    if quote.offers.is_empty() {
        lines.push("  no price is known for this storage class: see s3_prices at the server".to_owned());
    } else {
        lines.push(format!(
            "Prices of {}, {}; taxes and contracts are not in them. Readable for {} days.",
            escape_line(&quote.region),
            escape_line(&quote.as_of),
            quote.days
        ));
    }
    lines.join("\n")
}

/// Formats an amount in dollars: to the cent; below one cent, to a hundredth of it. Rounded up.
fn dollars(amount: f64) -> String {
    const CENT: u64 = 10_000_000;
    const HUNDREDTH: u64 = CENT / 100;
    let nano = nanodollars(amount);
    if nano == 0 || nano > 99 * HUNDREDTH {
        let cents = nano.div_ceil(CENT);
        return format!("${}.{:02}", cents / 100, cents % 100);
    }
    format!("$0.{:04}", nano.div_ceil(HUNDREDTH))
}

/// Billionths, which prices are made of.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast ends at the bounds")]
fn nanodollars(amount: f64) -> u64 {
    (amount * 1e9).round() as u64
}

/// Waits until the task has ended.
async fn wait(
    context: &Context,
    (api, path): (&Api, &[&str]),
    mut task: Task,
    retry_for: Duration,
) -> Result<(), ClientError> {
    let goes_on = |task: &Task| {
        context.output.note(&format!(
            "holdfast: thawing goes on at the server (task {}); the same command waits for it again",
            escape_line(&task.id)
        ));
    };
    let (mut every, mut said) = (ASK_FIRST, None::<Instant>);
    loop {
        match task.status {
            TaskStatus::Done => return Ok(()),
            TaskStatus::Failed | TaskStatus::Cancelled => {
                let why = if task.error.is_empty() { "it was cancelled" } else { &task.error };
                return Err(ClientError::Refused {
                    code: ErrorCode::Archived,
                    message: format!("thawing ended: {}", escape_line(why)),
                    passes: false,
                });
            }
            _ => {}
        }
        if said.is_none_or(|said| said.elapsed() >= LINE_EVERY) {
            said = Some(Instant::now());
            context
                .output
                .note(&format!("thawing: {} of {} objects", task.progress.done, task.progress.total));
        }
        let path = [path, &[&*task.id]].concat();
        let asked = async {
            tokio::time::sleep(every).await;
            // It goes on at the server, whenever that is back.
            retrying(retry_for, async || api.get(&path, &()).await).await
        };
        let answer = tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ClientError::Interrupted),
            answer = asked => answer,
        };
        task = answer.inspect_err(|_| goes_on(&task))?;
        every = (every * 2).min(ASK_LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::api::{ThawLine, ThawOffer};

    use super::*;

    #[test]
    fn dollars_are_rounded_up_and_show_something() {
        for (amount, text) in [
            (0.0, "$0.00"),
            (0.000_000_001, "$0.0001"),
            (0.0003, "$0.0003"),
            (0.0099, "$0.0099"),
            (0.009_900_1, "$0.01"),
            (0.07, "$0.07"),
            (1.25, "$1.25"),
            (1.250_000_001, "$1.26"),
        ] {
            assert_eq!(dollars(amount), text, "{amount}");
        }
    }

    #[test]
    fn a_quote_has_all_its_lines() {
        let line = |what: &str, cost, extra| ThawLine { what: what.into(), cost, extra };
        let offer = ThawOffer {
            speed: "bulk".into(),
            hours: 48,
            cost: 1.25,
            lines: vec![line("12 requests to thaw", 0.0003, false), line("traffic", 0.09, true)],
        };
        let quote = Thaw {
            objects: 12,
            bytes: 12 << 25,
            offers: vec![offer],
            region: "us-east-1".into(),
            as_of: "2025-06".into(),
            classes: vec!["DEEP_ARCHIVE".into()],
            days: 7,
            ..Thaw::default()
        };
        let backup = Backup { id: "01B".into(), vm: "web".into(), ..Backup::default() };
        let text = text(&backup, &quote);
        for part in [
            "01B of VM web lies in the archive in part (DEEP_ARCHIVE)",
            "12 objects",
            "402653184 bytes",
            "bulk       within 48 hours, about $1.25",
            "$0.0003  12 requests to thaw",
            "traffic (not in the sum)",
            "us-east-1, 2025-06",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let error = refused(&backup, &quote, "thaw it with --thaw bulk --yes");
        assert_eq!(error.exit_code(), 10);
        assert!(error.to_string().contains("--thaw bulk --yes"), "{error}");
    }
}
