//! SQL that PostgreSQL understands as well: it is to become a second driver under the same queries.

use std::fs;
use std::path::{Path, PathBuf};

/// Files about SQLite itself: connections, its log, copies, repair; and the schema, which each database has its own of.
const OF_SQLITE: [&str; 6] = ["connection.rs", "heal.rs", "log.rs", "schema.rs", "snapshot.rs", "testing.rs"];

/// Constructs that only SQLite understands.
const WORDS: [&str; 19] = [
    "\"+\"",
    "INSERT OR ",
    "REPLACE INTO",
    "CROSS JOIN",
    "INDEXED BY",
    "LIMIT -1",
    "GLOB ",
    " IS ?",
    "IS NOT ?",
    "PRAGMA",
    "sqlite_",
    "temp.",
    "rowid",
    "iif(",
    "ifnull(",
    "group_concat(",
    "strftime(",
    "unixepoch(",
    "zeroblob(",
];

/// Finds the constructs in the text of a source file.
fn offences(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).collect();
    // Texts that go on in the next line end with a backslash.
    let code = code.join("\n").replace("\\\n", "");
    let words = WORDS.iter().filter(|word| code.contains(**word)).map(|word| (*word).to_owned());
    words.chain(hints(&code)).chain(extremes(&code)).collect()
}

/// Columns that a `+` hides from an index.
fn hints(code: &str) -> Vec<String> {
    let pieces = code.split('+').zip(code.split('+').skip(1));
    let hints = pieces.filter(|(before, after)| {
        before.ends_with([' ', '(', '"', ',']) && after.starts_with(|c: char| c.is_ascii_lowercase())
    });
    hints.map(|(_, after)| format!("+{}", after.split_whitespace().next().unwrap_or_default())).collect()
}

/// `min` and `max` of several arguments.
fn extremes(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["min(", "max("] {
        for (at, _) in code.match_indices(name) {
            // Rust's are methods or have a path.
            let is_sql = code[..at].ends_with([' ', '(', '"', ',', '=']);
            let mut depth = 0;
            let arguments = &code[at + name.len()..];
            let end = arguments.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth < 0 || (depth == 0 && c == ',')
            });
            if let Some(end) = end.filter(|end| is_sql && arguments[*end..].starts_with(',')) {
                found.push(format!("{name}{}, ...)", &arguments[..end]));
            }
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "testing"].contains(&name) {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" && !OF_SQLITE.contains(&name) {
            found.push(path);
        }
    }
}

#[test]
fn sql_is_of_every_database() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 50, "{files:?}");
    let found: Vec<String> = files
        .iter()
        .flat_map(|path| {
            let offences = offences(&fs::read_to_string(path).unwrap());
            offences.into_iter().map(move |offence| format!("{}: {offence}", path.display()))
        })
        .collect();
    assert!(found.is_empty(), "only SQLite understands:\n{}", found.join("\n"));
}

#[test]
fn what_is_sqlites_alone_is_found() {
    for (sql, found) in [
        ("\"SELECT max(a), min(b + c) FROM t\"", false),
        ("\"UPDATE t SET a = max(a, ?)\"", true),
        ("\"UPDATE t SET a = min(abs(a),\\\n    b)\"", true),
        ("let a = one.max(two).min(cmp::max(a, b));", false),
        ("\"WHERE +d.a = ?\"", true),
        ("\"WHERE a = b + c\"; format!(\"{a}+{b}\")", false),
        ("format!(\"{}d.a = ?\", if leads { \"\" } else { \"+\" })", true),
        ("\"ORDER BY rowid\"", true),
        ("// INSERT OR IGNORE is not allowed", false),
        ("\"INSERT OR IGNORE INTO t\"", true),
        ("\"JOIN t ON\"", false),
    ] {
        assert_eq!(!offences(sql).is_empty(), found, "{sql}: {:?}", offences(sql));
    }
}
