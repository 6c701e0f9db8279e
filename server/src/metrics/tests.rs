//! The text, read as strictly as its specification allows, and the names against documentation and dashboards.

mod deploy;

use std::collections::{BTreeMap, BTreeSet};

use super::counters::Counters;
use super::exposition::{Samples, render};
use super::names::Definition;
use super::*;

/// Lines between these are the table of [`names::ALL`].
const TABLE_BEGIN: &str = "<!-- metrics: begin -->";
const TABLE_END: &str = "<!-- metrics: end -->";

/// One metric family of an answer.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) kind: String,
    pub(crate) unit: Option<String>,
    pub(crate) help: String,
    /// Sample name and labels, as `name{a="b"}`, and value.
    pub(crate) samples: BTreeMap<String, f64>,
}

/// Reads OpenMetrics text line by line; panics at the first that is not right.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Parsed> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with its end mark");
    let mut families: BTreeMap<String, Parsed> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let (word, rest) = meta.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let (name, value) = rest.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            if word == "HELP" {
                assert!(!families.contains_key(name), "{name} twice");
                name.clone_into(&mut current);
            }
            assert_eq!(name, current, "{line:?}");
            let family = families.entry(name.to_owned()).or_default();
            match word {
                "HELP" => value.clone_into(&mut family.help),
                "TYPE" => value.clone_into(&mut family.kind),
                "UNIT" => family.unit = Some(value.to_owned()),
                _ => panic!("{line:?}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
        let name = check_series(series);
        assert!(name.starts_with(&current), "{line:?} within {current}");
        let family = families.get_mut(&current).unwrap();
        assert!(family.samples.insert(series.to_owned(), value).is_none(), "{line:?} twice");
    }
    families
}

/// Checks `name{label="value",…}` and returns the name.
fn check_series(series: &str) -> &str {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let Some((name, labels)) = series.split_once('{') else {
        assert!(is_name(series), "{series:?}");
        return series;
    };
    assert!(is_name(name), "{series:?}");
    let mut rest = labels.strip_suffix('}').unwrap_or_else(|| panic!("{series:?}"));
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{series:?}"));
        assert!(is_name(label), "{series:?}");
        let mut end = None;
        let mut escaped = false;
        for (at, c) in value.char_indices() {
            match c {
                '"' if !escaped => {
                    end = Some(at);
                    break;
                }
                _ if escaped => {
                    assert!(matches!(c, '\\' | '"' | 'n'), "{series:?}");
                    escaped = false;
                }
                _ => escaped = c == '\\',
            }
        }
        let end = end.unwrap_or_else(|| panic!("{series:?}"));
        rest = value[end + 1..].trim_start_matches(',');
    }
    name
}

#[test]
fn names_are_as_monitoring_systems_want_them() {
    let mut seen = BTreeSet::new();
    for definition in names::ALL {
        let Definition { name, kind, unit, help, .. } = definition;
        assert!(seen.insert(name), "{name} twice");
        assert!(name.starts_with("holdfast_") || name.starts_with("process_"), "{name}");
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help:?}");
        let suffix = match kind {
            names::Kind::Counter => "_total",
            names::Kind::Info => "_info",
            names::Kind::Gauge | names::Kind::Histogram => "",
        };
        let unit = match unit {
            names::Unit::Count => "",
            names::Unit::Bytes => "_bytes",
            names::Unit::Seconds => "_seconds",
        };
        assert!(name.ends_with(&format!("{unit}{suffix}")), "{name}");
        assert!(!name.ends_with("_total") || *kind == names::Kind::Counter, "{name}");
    }
}

#[test]
fn every_metric_has_help_type_and_unit_before_anything_happened() {
    let families = parse(&render(&Arc::new(Counters::new()), Samples::default()).unwrap());
    assert_eq!(families.len(), names::ALL.len());
    for definition in names::ALL {
        let name = definition.name.trim_end_matches("_total").trim_end_matches("_info");
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.help, format!("{}.", definition.help));
        assert_eq!(family.kind, definition.kind.word());
        let unit = match definition.unit {
            names::Unit::Count => None,
            names::Unit::Bytes => Some("bytes".to_owned()),
            names::Unit::Seconds => Some("seconds".to_owned()),
        };
        assert_eq!(family.unit, unit, "{name}");
    }
}

#[test]
fn with_any_names_the_text_stays_valid_and_short() {
    let metrics = Metrics::new(None);
    let evil = "a\"b\\c{}= ,\u{201d}\n";
    for number in 0..5000u32 {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let session = SessionId::from_bytes(id);
        let (namespace, job) = (format!("{evil}{}", number % 100), format!("{evil}{number}"));
        metrics.backup_started(session, &namespace, &job);
        let row = DetailRow { namespace, job, bytes: 10, new_bytes: 5, ..DetailRow::default() };
        metrics.backup_done(session, &[row]);
    }
    let families = parse(&render(&metrics.counters, Samples::default()).unwrap());
    let bytes = &families["holdfast_backup_pre_comp_bytes"].samples;
    assert!(bytes.len() <= super::NAMESPACES_MAX * (super::JOBS_MAX + 1) + 1, "{}", bytes.len());
    assert_eq!(bytes.values().sum::<f64>(), 50_000.0, "folding loses nothing");
    let ended = &families["holdfast_backups"].samples;
    assert_eq!(
        ended.iter().filter(|(series, _)| series.contains("\"done\"")).map(|(_, n)| n).sum::<f64>(),
        5000.0
    );
}

/// The table as docs/operations/watching.md has it.
fn documentation() -> String {
    let mut table = String::from("| metric | kind | labels | |\n|---|---|---|---|\n");
    for Definition { name, kind, labels, help, .. } in names::ALL {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        table += &format!("| `{name}` | {} | {} | {help} |\n", kind.word(), labels.join(", "));
    }
    table
}

#[test]
fn the_manual_has_every_metric() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/watching.md");
    let manual = std::fs::read_to_string(file).unwrap();
    let (_, rest) = manual.split_once(TABLE_BEGIN).expect("the manual marks where the table begins");
    let (table, _) = rest.split_once(TABLE_END).expect("and where it ends");
    let wanted = documentation();
    assert!(table.trim() == wanted.trim(), "put this table into docs/operations/watching.md:\n\n{wanted}");
}

#[test]
fn thousands_of_names_make_a_bounded_number_of_labels() {
    let table = LabelTable::default();
    let mut seen = HashSet::new();
    for namespace in 0..1000 {
        for job in 0..100 {
            seen.insert(table.job(&format!("n{namespace}"), &format!("j{job}")));
        }
    }
    assert_eq!(seen.len(), NAMESPACES_MAX * (JOBS_MAX + 1) + 1);
    assert!(seen.contains(&JobLabels { namespace: "n0".into(), backup_job: OTHER.into() }));
    assert!(seen.contains(&JobLabels { namespace: OTHER.into(), backup_job: OTHER.into() }));
}

#[test]
fn a_label_once_given_is_kept() {
    let table = LabelTable::default();
    assert_eq!(table.namespace("first"), "first");
    for number in 0..2 * NAMESPACES_MAX {
        table.namespace(&number.to_string());
    }
    assert_eq!(table.namespace("first"), "first");
    assert_eq!(table.namespace("late"), OTHER);
    assert_eq!(table.job("first", "nightly").backup_job, "nightly");
}

#[test]
fn a_program_may_be_called_anything() {
    let stat = "7 (a ) b) S 1 1 1 0 -1 4194560 1 0 0 0 100 50 0 0 20 0 9 0 3000 4096000 12 0";
    let read = super::parse(stat, "40.00 70.00\n", 1_000_000.0);
    let ticks = clock_ticks_per_second() as f64;
    assert_eq!(read.cpu_seconds, 150.0 / ticks);
    assert_eq!((read.threads, read.virtual_bytes), (9, 4_096_000));
    assert_eq!(read.resident_bytes, 12 * page_size() as u64);
    assert_eq!(read.started_seconds, 1_000_000.0 - 40.0 + 3000.0 / ticks);
    assert_eq!(super::parse("", "", 1.0), ProcessStats { started_seconds: 1.0, ..ProcessStats::default() });
}

#[test]
fn this_process_has_figures() {
    let read = read();
    assert!(read.resident_bytes > 1 << 20 && read.virtual_bytes >= read.resident_bytes, "{read:?}");
    assert!(read.open_fds >= 3 && read.max_fds >= read.open_fds && read.threads >= 1, "{read:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(read.started_seconds > 0.0 && read.started_seconds <= now + 1.0, "{read:?}");
}
