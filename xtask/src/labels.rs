//! Holds the labels of rules and invariants in the documents against the code that keeps them.
//!
//! A rule of docs/ORDERING.md or an invariant of docs/ARCHITECTURE.md is a table row that begins with its label: `W3`,
//! or `A1` in bold. The code quotes it in a comment where it keeps it, in parentheses and nothing else in them:
//! `(W3)`, or `(W3, R5)`. Tests do not count: the program does not keep a rule that only tests mention.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::shell;

/// Documents that define rules.
const DEFINING: [&str; 2] = ["docs/ORDERING.md", "docs/ARCHITECTURE.md"];

/// Folders that keep them: every `src` folder below these.
const KEEPING: [&str; 3] = ["proto", "server", "client"];

/// Files and folders of tests.
const TESTS: [&str; 5] = ["tests", "tests.rs", "conformance", "conformance.rs", "layers.rs"];

/// `W3` and the like.
fn is_label(text: &str) -> bool {
    let mut characters = text.chars();
    let letter = characters.next().is_some_and(|first| first.is_ascii_uppercase());
    let number = characters.as_str();
    letter && (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The label that a line of a table begins with.
fn defined(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?.trim();
    let label = cell.strip_prefix("**").and_then(|rest| rest.strip_suffix("**")).unwrap_or(cell);
    is_label(label).then_some(label)
}

/// The labels quoted in a text: everything between a pair of parentheses is a label, or several with commas.
fn quoted(text: &str) -> Vec<&str> {
    let groups = text.split('(').skip(1).filter_map(|rest| rest.split_once(')').map(|(group, _)| group));
    let all = groups.filter(|group| group.split(", ").all(is_label));
    all.flat_map(|group| group.split(", ")).collect()
}

/// The comment of a line of Rust.
fn comment(line: &str) -> &str {
    line.split_once("//").map_or("", |(_, comment)| comment)
}

/// The lines of a source file before its tests.
fn kept(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).take_while(|(_, line)| line.trim() != "mod tests {")
}

/// Every `.rs` file of the program below `folder`.
fn sources(folder: &Path, in_src: bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if TESTS.contains(&name.as_str()) || (name == "target" && !in_src) {
            continue;
        }
        if path.is_dir() {
            sources(&path, in_src || name == "src", found);
        } else if in_src && name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(shell::root()).unwrap_or(path).display().to_string()
}

/// Every label in the documents, with its place.
fn rules() -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    for document in DEFINING {
        let text = std::fs::read_to_string(shell::root().join(document)).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let Some(label) = defined(line) else { continue };
            let place = format!("{document}:{number}");
            if let Some(other) = rules.insert(label.to_owned(), place.clone()) {
                panic!("{label} is laid down twice, in {other} and {place}");
            }
        }
    }
    rules
}

/// Labels quoted in code with their places, in order.
fn quotes() -> Vec<(String, String)> {
    let mut files = Vec::new();
    KEEPING.iter().for_each(|folder| sources(&shell::root().join(folder), false, &mut files));
    files.sort();
    let mut quotes = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in kept(&text) {
            let place = format!("{}:{number}", relative(&file));
            quotes.extend(quoted(comment(line)).iter().map(|label| ((*label).to_owned(), place.clone())));
        }
    }
    quotes
}

#[test]
fn every_label_is_quoted_where_it_is_kept() {
    let quoted: BTreeSet<String> = quotes().into_iter().map(|(label, _)| label).collect();
    let rules = rules();
    assert!(rules.len() > 20, "the documents have rules: {rules:?}");
    let forgotten: Vec<String> = rules
        .iter()
        .filter(|(label, _)| !quoted.contains(*label))
        .map(|(label, place)| format!("{label} ({place})"))
        .collect();
    assert!(
        forgotten.is_empty(),
        "no comment in the code says that it keeps these; quote each there, as in `(W3)`:\n{}",
        forgotten.join("\n")
    );
}

#[test]
fn every_quoted_label_is_laid_down() {
    let rules = rules();
    // Other letters with numbers, such as S3, are not labels.
    let letters: BTreeSet<char> = rules.keys().filter_map(|label| label.chars().next()).collect();
    let unknown: Vec<String> = quotes()
        .into_iter()
        .filter(|(label, _)| label.starts_with(|c| letters.contains(&c)) && !rules.contains_key(label))
        .map(|(label, place)| format!("{place}: {label}"))
        .collect();
    assert!(
        unknown.is_empty(),
        "these are quoted and neither in {} nor in {}:\n{}",
        DEFINING[0],
        DEFINING[1],
        unknown.join("\n")
    );
}

#[test]
fn labels_are_found_in_the_forms_described() {
    assert_eq!(defined("| W10 | should | A full disk … |"), Some("W10"));
    assert_eq!(defined("| **A1** | Only a catalog transaction … |"), Some("A1"));
    for line in ["| rule | must |", "| **backup** | yes (W3) |", "W1 is a rule.", "|---|---|", "| H264 | x |"]
    {
        assert_eq!(defined(line), None, "{line}");
    }
    assert_eq!(quoted("Sealed first (W2), then published (W3, A4)."), ["W2", "W3", "A4"]);
    assert_eq!(quoted("see W3: not a quote (W), (W3 of ORDERING), (3), W3) or (W3"), Vec::<&str>::new());
    assert_eq!(comment("    let a = b(W1); // after (W2)"), " after (W2)");
    assert_eq!(comment("let a = (W1);"), "");
    let text = "//! (W1)\n#[cfg(test)]\nmod tests {\n// (W2)\n}";
    assert_eq!(kept(text).map(|(_, line)| line).collect::<Vec<_>>(), ["//! (W1)", "#[cfg(test)]"]);
}
