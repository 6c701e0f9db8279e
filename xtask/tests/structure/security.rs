//! Checks the claims of `docs/SECURITY.md`: its tests exist, and its figures are those of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::workspace;

const DOCUMENT: &str = "docs/SECURITY.md";

const LIMITS: &str = "server/src/limits.rs";

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap()
}

/// Words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_test_name(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Settings and similar words that are not tests.
const NOT_TESTS: [&str; 1] = ["max_connections"];

/// Functions that a `#[test]` or `#[tokio::test]` stands above, in all sources.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            tests_below(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let function = line.trim_start_matches("async ").strip_prefix("fn ");
                match function {
                    Some(rest) if is_test => found.extend(rest.split('(').next().map(str::to_owned)),
                    _ => {}
                }
                is_test = line.starts_with("#[test]")
                    || line.starts_with("#[tokio::test")
                    || is_test && (line.starts_with("#[") || line.starts_with("//"));
            }
        }
    }
}

#[test]
fn tests_named_in_the_threat_model_exist() {
    let mut tests = BTreeSet::new();
    tests_below(workspace(), &mut tests);
    let text = read(DOCUMENT);
    let named: BTreeSet<&str> =
        quoted(&text).filter(|word| is_test_name(word) && !NOT_TESTS.contains(word)).collect();
    assert!(named.len() > 40, "{DOCUMENT} names tests: {named:?}");
    let missing: Vec<_> = named.into_iter().filter(|name| !tests.contains(*name)).collect();
    assert!(missing.is_empty(), "{DOCUMENT} names tests that do not exist: {missing:#?}");
}

/// Each constant as `NAME` and its value, as written in the document.
fn constants() -> BTreeMap<String, String> {
    let text = read(LIMITS);
    let lines = text.lines().filter_map(|line| line.strip_prefix("pub(crate) const "));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(':').unwrap();
            let value = rest.split_once('=').unwrap().1.trim().trim_end_matches(';');
            (name.to_owned(), figure(value))
        })
        .collect()
}

fn figure(value: &str) -> String {
    let seconds = value.strip_prefix("Duration::from_secs(").and_then(|rest| rest.strip_suffix(')'));
    match (seconds, value.strip_suffix(" << 10")) {
        (Some(seconds), _) => format!("{seconds} s"),
        (_, Some(kib)) => format!("{kib} KiB"),
        _ => value.to_owned(),
    }
}

#[test]
fn figures_in_the_threat_model_are_those_of_the_code() {
    let text = read(DOCUMENT);
    let mut documented = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, _, figure, constant, _, _] = cells.as_slice()
            && let Some(name) = quoted(constant).next()
        {
            documented.insert(name.to_owned(), (*figure).to_owned());
        }
    }
    assert_eq!(documented, constants(), "{DOCUMENT} (left) and {LIMITS} (right)");
}
