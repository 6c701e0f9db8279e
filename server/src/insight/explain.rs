//! Describes in sentences what happened in one run of one disk.

use holdfast_proto::details::{RowExt as _, bytes, status_word};
use holdfast_proto::v1::{DetailRow, RowStatus};

use super::flags::{Usual, much_new};
use super::{factor, percent, ratio};

/// From this share on, something applies to most of it.
const MOSTLY: f64 = 0.5;

/// How much new data makes its compression worth mentioning: with less it could be chance.
const WORD_MIN_BYTES: u64 = 16 << 20;

/// Data with a lower factor does not compress.
const INCOMPRESSIBLE_FACTOR: f64 = 1.1;

/// Local compression is worse than usual when it fell to this share.
const COMPRESSES_WORSE_SHARE: f64 = 0.7;

/// The extents of a restore point's disk against those of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) total: u64,
    /// Different from those of the restore point before.
    pub(crate) changed: u64,
    /// Of those changed, the ones that were the same in all earlier restore points compared.
    pub(crate) changed_first_time: u64,
    /// Of those changed, the ones that were empty before.
    pub(crate) newly_written: u64,
    /// Earlier restore points compared.
    pub(crate) compared_backups: u64,
}

/// Sentences, the most important first. `first`: the repository has no earlier run of this disk.
pub(crate) fn explain(
    row: &DetailRow,
    first: bool,
    usual: Option<&Usual>,
    extents: Option<&Extents>,
) -> Vec<String> {
    let mut sentences = Vec::new();
    if row.status != RowStatus::Done as i32 {
        sentences.push(unfinished(row));
    }
    if first {
        sentences.push(first_run(row));
    } else if let Some(usual) = usual {
        sentences.extend(amount(row, usual));
    }
    if row.new_bytes > 0 && !first {
        sentences.extend(extents.and_then(place));
    }
    sentences.extend(compression(row, usual));
    sentences.extend(reading(row, first));
    if sentences.is_empty() {
        sentences.push(nothing_unusual(usual));
    }
    sentences
}

fn unfinished(row: &DetailRow) -> String {
    let why = if row.error.is_empty() { status_word(row.status) } else { row.error.as_str() };
    let kept = row.post_lc.saturating_add(row.meta_bytes);
    let kept = match kept {
        0 => "It stored nothing.".to_owned(),
        stored => format!("The next run will use the {} it stored.", bytes(stored)),
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

fn amount(row: &DetailRow, usual: &Usual) -> Option<String> {
    if let Some(text) = much_new(row, usual) {
        return Some(format!("{text} (median of the last {} runs).", usual.rows));
    }
    let (now, then) = (row.factors().total?, usual.total_factor?);
    (now <= then * MOSTLY && row.post_lc >= WORD_MIN_BYTES).then(|| {
        format!(
            "Its total factor is {} instead of the usual {} (median of the last {} runs).",
            factor(now),
            factor(then),
            usual.rows
        )
    })
}

/// Where on the disk the changes are.
fn place(extents: &Extents) -> Option<String> {
    let Extents { total, changed, changed_first_time, newly_written, compared_backups } = *extents;
    if changed == 0 || compared_backups == 0 {
        return None;
    }
    let where_from = format!("{changed} of {total} extents of 4 MiB changed");
    let share = |part| ratio(part, changed);
    Some(if share(newly_written) >= MOSTLY {
        format!(
            "{where_from}, most of which ({newly_written}) were empty before: the disk is filling up, as it does with \
             new files, a growing database, or a restore inside the VM."
        )
    } else if share(changed_first_time) >= MOSTLY && compared_backups > 1 {
        format!(
            "{where_from}, most of which ({changed_first_time}) had not changed in the last {compared_backups} restore \
             points: something rewrote data that is usually left as it is, such as an update, a database \
             reorganisation, defragmentation, or encryption."
        )
    } else {
        format!(
            "{where_from}, most of which change often: the activity is where it usually is, there is only more of it."
        )
    })
}

fn compression(row: &DetailRow, usual: Option<&Usual>) -> Option<String> {
    let local = row.factors().local.filter(|_| row.new_bytes >= WORD_MIN_BYTES)?;
    let before = usual.and_then(|usual| usual.local_factor);
    let worse = before.is_some_and(|before| local <= before * COMPRESSES_WORSE_SHARE);
    let instead =
        before.map(|before| format!(" instead of the usual {}", factor(before))).unwrap_or_default();
    if local < INCOMPRESSIBLE_FACTOR && (worse || before.is_none()) {
        return Some(format!(
            "The new data hardly compresses ({}{instead}): it is probably already encrypted or compressed, like \
             media files, archives and encrypted databases.",
            factor(local)
        ));
    }
    worse.then(|| format!("The new data compresses worse than usual: {}{instead}.", factor(local)))
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

fn nothing_unusual(usual: Option<&Usual>) -> String {
    match usual {
        Some(usual) => {
            let then = usual
                .total_factor
                .map(|f| format!(" and a total factor of {}", factor(f)))
                .unwrap_or_default();
            format!(
                "Nothing unusual: the median of the last {} runs is {} of new data{then}.",
                usual.rows,
                bytes(usual.new_bytes)
            )
        }
        None => "Nothing stands out. After a few more runs of this disk they can be compared.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::tests::{MIB, done};
    use super::*;

    const EXTENTS: Extents = Extents {
        total: 2560,
        changed: 800,
        changed_first_time: 700,
        newly_written: 10,
        compared_backups: 8,
    };

    fn said(row: &DetailRow, earlier: &[DetailRow], extents: Option<Extents>) -> String {
        explain(row, earlier.is_empty(), Usual::of(earlier).as_ref(), extents.as_ref()).join("\n")
    }

    #[track_caller]
    fn assert_says(text: &str, words: &[&str]) {
        for word in words {
            assert!(text.contains(word), "{word:?} in\n{text}");
        }
    }

    #[test]
    fn where_new_data_lies() {
        let earlier = [done(270), done(270), done(270)];
        let first_time = said(&done(3277), &earlier, Some(EXTENTS));
        assert_says(
            &first_time,
            &["12 × the usual", "800 of 2560", "700", "had not changed", "8 restore points"],
        );
        let filling = Extents { newly_written: 600, changed_first_time: 650, ..EXTENTS };
        assert_says(&said(&done(3277), &earlier, Some(filling)), &["filling up", "600"]);
        let always = Extents { changed_first_time: 100, ..EXTENTS };
        assert_says(&said(&done(3277), &earlier, Some(always)), &["where it usually is"]);
        let alone = Extents { compared_backups: 0, ..EXTENTS };
        assert!(!said(&done(3277), &earlier, Some(alone)).contains("extents"));
    }

    #[test]
    fn data_that_does_not_compress() {
        let earlier = [done(100), done(100), done(100)];
        let sealed = DetailRow { post_lc: 100 * MIB, ..done(100) };
        assert_says(
            &said(&sealed, &earlier, None),
            &["hardly compresses (1.0× instead of the usual 2.0×)", "encrypted"],
        );
        let worse = DetailRow { post_lc: 75 * MIB, ..done(100) };
        assert_says(&said(&worse, &earlier, None), &["compresses worse than usual: 1.3×"]);
        let always = vec![sealed.clone(); 3];
        assert!(!said(&sealed, &always, None).contains("compress"), "as ever");
    }

    #[test]
    fn reading_for_nothing() {
        let row = DetailRow { read_bytes: 10_240 * MIB, ..done(100) };
        assert_says(
            &said(&row, &[done(100), done(100), done(100)], None),
            &["read everything (10.0 GiB)", "over 99 %"],
        );
        assert!(!said(&row, &[], None).contains("read everything"), "a first run must");
    }

    #[test]
    fn first_failed_and_ordinary_runs() {
        let first = DetailRow { dup_bytes: 1024 * MIB, ..done(9216) };
        assert_says(
            &said(&first, &[], None),
            &["first run", "10.0 GiB", "10 % of its data was already known"],
        );
        let failed = DetailRow { status: RowStatus::Aborted.into(), error: "cut off.".into(), ..done(100) };
        assert_says(
            &said(&failed, &[done(1)], None),
            &["no restore point", "cut off. The next run will use the 50.0 MiB"],
        );
        assert_says(
            &said(&done(100), &[done(90), done(100), done(110)], None),
            &["Nothing unusual", "100 MiB"],
        );
        assert_says(&said(&done(100), &[done(100)], None), &["Nothing stands out"]);
    }
}
