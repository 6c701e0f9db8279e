//! Describes in sentences what happened in one run of one disk.

use holdfast_engine::ExtentHistory;
use holdfast_proto::api::{DetailRow, Finding, FindingKind, RowStatus};
use holdfast_proto::details::bytes;
use holdfast_proto::when::timestamp;

use super::findings::DiskPast;
use super::{factor, percent, ratio};

/// Share from which on something applies to most of it.
const MOSTLY: f64 = 0.5;

/// Least new data whose compression is worth mentioning: with less it could be chance.
const WORD_MIN_BYTES: u64 = 16 << 20;

/// Data with a lower factor does not compress.
const INCOMPRESSIBLE_FACTOR: f64 = 1.1;

/// Sentences, the most important first. `found`: what was found of the VM's run, if anything; else what was found of the disk
/// counts. `first`: the repository has no earlier run of this disk. `left`: bytes of what its run stored in vain that are still
/// there.
pub(crate) fn explain(
    row: &DetailRow,
    first: bool,
    found: Option<&Finding>,
    past: &DiskPast,
    extents: Option<&ExtentHistory>,
    left: u64,
) -> Vec<String> {
    let mut sentences = Vec::new();
    if row.status != RowStatus::Done {
        sentences.push(unfinished(row, left));
    }
    if row.retried_post_lc > 0 {
        let stored = bytes(row.retried_post_lc);
        sentences.push(format!("The attempts before it stored {stored}, which its factors count."));
    }
    let found = found.or(past.finding.as_ref()).filter(|found| !is_told_anyway(found.kind));
    if first {
        sentences.push(first_run(row));
    } else if let Some(Finding { text, cause, .. }) = found {
        sentences.push(format!("{text}."));
        sentences.push(cause.clone());
    }
    if row.new_bytes > 0 && !first {
        sentences.extend(extents.and_then(place));
    }
    sentences.extend(compression(row, past, found));
    sentences.extend(reading(row, first));
    if sentences.is_empty() {
        sentences.push(nothing_unusual(past));
    }
    sentences
}

const fn is_told_anyway(kind: FindingKind) -> bool {
    matches!(kind, FindingKind::Failed | FindingKind::Retried | FindingKind::FirstFull)
}

fn unfinished(row: &DetailRow, left: u64) -> String {
    let why = if row.error.is_empty() { row.status.word() } else { row.error.as_str() };
    let stored = row.post_lc.saturating_add(row.meta_bytes);
    let kept = match left {
        _ if stored == 0 => "It stored nothing.".to_owned(),
        0 => format!("It stored {}, of which nothing is known to be left.", bytes(stored)),
        left if left < stored => {
            format!(
                "It stored {}, of which at most {} are still there for later runs to use.",
                bytes(stored),
                bytes(left)
            )
        }
        _ => format!("It stored {}, which later runs can use while it is there.", bytes(stored)),
    };
    format!("This run made no restore point: {}. {kept}", why.trim_end_matches('.'))
}

fn first_run(row: &DetailRow) -> String {
    let known = if row.dup_bytes > 0 && row.bytes > 0 {
        format!(
            "; {} of its data was already known from other disks, or occurs in it more than once",
            percent(row.dup_bytes, row.bytes)
        )
    } else {
        String::new()
    };
    format!(
        "This is the first run of this disk, so all of its {} had to be processed{known}.",
        bytes(row.bytes)
    )
}

/// Position of the changes on the disk.
fn place(extents: &ExtentHistory) -> Option<String> {
    let ExtentHistory { total, compared, changed, changed_first_time, newly_written, .. } = *extents;
    if changed == 0 || extents.compared_backups == 0 {
        return None;
    }
    let of = match compared {
        _ if compared == total => format!("{total} extents of 4 MiB"),
        _ => format!("the {compared} extents of 4 MiB compared, out of {total},"),
    };
    let since = timestamp(extents.before_ms);
    let changes = format!("{changed} of {of} changed since the backup of {since}");
    let overwritten = changed - newly_written;
    let first_time = ratio(changed_first_time, extents.traced) * ratio(overwritten, changed);
    Some(if ratio(newly_written, changed) >= MOSTLY {
        format!(
            "{changes}, most of which ({newly_written}) were empty before: the disk is filling up, as it does with \
             new files, a growing database, or a restore inside the VM."
        )
    } else if first_time >= MOSTLY && extents.compared_backups > 1 {
        let traced = match extents.traced {
            traced if traced == overwritten => changed_first_time.to_string(),
            traced => format!("{changed_first_time} of {traced} looked at"),
        };
        format!(
            "{changes}, most of which ({traced}) had not changed in the last {} restore points: something rewrote data \
             that is usually left as it is, such as an update, a database reorganisation, defragmentation, or encryption.",
            extents.compared_backups
        )
    } else {
        format!(
            "{changes}, most of which change often: the activity is where it usually is, there is only more of it."
        )
    })
}

/// Explains poor compression that is no finding: data that never compressed, or too little of it to matter.
fn compression(row: &DetailRow, past: &DiskPast, found: Option<&Finding>) -> Option<String> {
    let local = row.factors().local.filter(|_| row.new_bytes >= WORD_MIN_BYTES)?;
    let is_new = past.usual.and_then(|usual| usual.local_factor).is_none();
    (local < INCOMPRESSIBLE_FACTOR && is_new && found.is_none()).then(|| {
        format!(
            "The new data hardly compresses ({}): it is probably already encrypted or compressed, like media files, archives \
             and encrypted databases.",
            factor(local)
        )
    })
}

/// Returns true if the whole disk was read although little of it had changed.
fn reading(row: &DetailRow, first: bool) -> Option<String> {
    if first || row.bytes < WORD_MIN_BYTES || row.read_bytes < row.bytes / 10 * 9 {
        return None;
    }
    let unchanged = ratio(row.unchanged_bytes, row.bytes);
    (unchanged >= MOSTLY).then(|| {
        format!(
            "The agent read everything ({}) although {} of it had not changed: nothing told it which parts it could skip.",
            bytes(row.read_bytes),
            percent(row.unchanged_bytes, row.bytes)
        )
    })
}

fn nothing_unusual(past: &DiskPast) -> String {
    let Some(usual) = past.usual else {
        return "Nothing stands out. After a week of runs of this disk they can be compared.".to_owned();
    };
    let then =
        usual.total_factor.map(|f| format!(" and a total factor of {}", factor(f))).unwrap_or_default();
    format!(
        "Nothing unusual: the median of the last {} runs is {} of new data{then}.",
        past.runs,
        bytes(usual.new_bytes)
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const MIB: u64 = 1 << 20;

    const DAY_MS: i64 = 86_400_000;

    /// A done row of a disk of 10 GiB with that much new, stored at half.
    pub(crate) fn done(new_mib: u64) -> DetailRow {
        let (bytes, new_bytes) = (10_240 * MIB, new_mib * MIB);
        DetailRow {
            job: "nightly".into(),
            vm: "db".into(),
            disk: "sda".into(),
            status: RowStatus::Done,
            started_ms: 1_795_000_000_000,
            finished_ms: 1_795_000_600_000,
            virtual_bytes: 2 * bytes,
            bytes,
            read_bytes: new_bytes,
            new_bytes,
            unchanged_bytes: bytes - new_bytes,
            post_lc: new_bytes / 2,
            ..DetailRow::default()
        }
    }

    /// The nights before, each with 100 MiB new.
    pub(crate) fn past(nights: i64) -> Vec<DetailRow> {
        let night = |ago: i64| DetailRow { started_ms: done(0).started_ms - ago * DAY_MS, ..done(100) };
        (1..=nights).rev().map(night).collect()
    }

    const EXTENTS: ExtentHistory = ExtentHistory {
        total: 2560,
        compared: 2560,
        changed: 800,
        newly_written: 10,
        traced: 790,
        changed_first_time: 700,
        compared_backups: 8,
        before_ms: 1_795_000_000_000,
    };

    fn said(row: &DetailRow, earlier: &[DetailRow], extents: Option<ExtentHistory>) -> String {
        let past = DiskPast::of(row, earlier);
        explain(row, earlier.is_empty(), None, &past, extents.as_ref(), u64::MAX).join("\n")
    }

    #[track_caller]
    fn assert_says(text: &str, words: &[&str]) {
        for word in words {
            assert!(text.contains(word), "{word:?} in\n{text}");
        }
    }

    #[test]
    fn where_new_data_lies() {
        let earlier = past(10);
        let first_time = said(&done(3277), &earlier, Some(EXTENTS));
        assert_says(
            &first_time,
            &[
                "205× → 6.2×, 1.55 GiB more than usual",
                "compresses as before",
                "800 of 2560",
                "since the backup of 2026-11-18",
                "(700) had not changed",
                "8 restore points",
            ],
        );
        let filling = ExtentHistory { newly_written: 600, traced: 200, changed_first_time: 150, ..EXTENTS };
        assert_says(&said(&done(3277), &earlier, Some(filling)), &["filling up", "600"]);
        let always = ExtentHistory { changed_first_time: 100, ..EXTENTS };
        assert_says(&said(&done(3277), &earlier, Some(always)), &["where it usually is"]);
        let in_part = ExtentHistory { compared: 1024, traced: 300, changed_first_time: 290, ..EXTENTS };
        assert_says(
            &said(&done(3277), &earlier, Some(in_part)),
            &["800 of the 1024 extents of 4 MiB compared, out of 2560,", "290 of 300 looked at"],
        );
        let alone = ExtentHistory { compared_backups: 0, ..EXTENTS };
        assert!(!said(&done(3277), &earlier, Some(alone)).contains("extents"));
    }

    #[test]
    fn data_that_does_not_compress() {
        let sealed = DetailRow { post_lc: 300 * MIB, ..done(300) };
        assert_says(
            &said(&sealed, &past(10), None),
            &["As much is new as usual, but it compresses 1.0× instead of 2.0×"],
        );
        assert_says(&said(&sealed, &past(3), None), &["hardly compresses (1.0×)", "encrypted"]);
        let found = DiskPast::of(&sealed, &past(10)).finding.unwrap();
        let of_vm = Finding { text: "nightly/db: something".into(), ..found };
        let said_of = |kind| {
            let found = Finding { kind, ..of_vm.clone() };
            explain(&done(100), false, Some(&found), &DiskPast::default(), None, 0).join("\n")
        };
        assert_says(&said_of(FindingKind::Compression), &["nightly/db: something.", "As much is new"]);
        assert!(!said_of(FindingKind::Retried).contains("something"), "the row says it");
    }

    #[test]
    fn reading_for_nothing() {
        let row = DetailRow { read_bytes: 10_240 * MIB, ..done(100) };
        assert_says(&said(&row, &past(10), None), &["read everything (10.0 GiB)", "over 99 %"]);
        assert!(!said(&row, &[], None).contains("read everything"), "a first run must");
    }

    #[test]
    fn first_failed_and_ordinary_runs() {
        let first = DetailRow { dup_bytes: 1024 * MIB, ..done(9216) };
        assert_says(
            &said(&first, &[], None),
            &["first run", "10.0 GiB", "10 % of its data was already known"],
        );
        let failed = DetailRow { status: RowStatus::Aborted, error: "cut off.".into(), ..done(100) };
        assert_says(
            &said(&failed, &[done(1)], None),
            &["no restore point", "cut off. It stored 50.0 MiB, which later runs can use while it is there"],
        );
        let left = |left| explain(&failed, false, None, &DiskPast::default(), None, left).remove(0);
        assert_says(&left(20 * MIB), &["It stored 50.0 MiB, of which at most 20.0 MiB are still there"]);
        assert_says(&left(0), &["It stored 50.0 MiB, of which nothing is known to be left."]);
        assert_says(&said(&done(100), &past(10), None), &["Nothing unusual", "100 MiB"]);
        assert_says(&said(&done(100), &[done(100)], None), &["Nothing stands out"]);
    }
}
