//! Checks that imports point one way, and that protocols stay in their own folders.

use std::path::{Path, PathBuf};

/// From the building blocks up to the command line. A module may use only modules of lines above its own.
const LAYERS: &[&[&str]] = &[
    &["error", "files", "insight", "net"],
    &["tls"],
    &["config"],
    &["process"],
    &["auth"],
    &["activity"],
    &["metrics"],
    &["app"],
    &["grpc", "http", "jobs"],
    &["server"],
    &["cli"],
];

/// Crates that only some modules may name. `net` gives connections to both protocols.
const PROTOCOLS: &[(&str, &[&str])] = &[
    ("axum", &["http"]),
    ("http_body", &["grpc", "http"]),
    ("tonic", &["grpc", "net"]),
    ("utoipa", &["http"]),
    ("clap", &["cli", "config"]),
];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// A file's code without comments and without items that only tests have.
fn code(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed == "#[cfg(test)]" {
            skip_item(&mut lines, line.len() - trimmed.len());
        } else if !trimmed.starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Skips one item, formatted as rustfmt does: it ends on its first line, or with a brace at its own indentation.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: usize) {
    for line in lines {
        let own = line.len() - line.trim_start().len() == indent;
        let text = line.trim();
        if own && !text.starts_with("#[") && (text.ends_with(';') || text.ends_with('}')) {
            return;
        }
    }
}

/// Words in `code` that follow `prefix`, where `prefix` is not part of a longer word.
fn following<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = code.match_indices(prefix).map(|(at, _)| at);
    starts
        .filter(|at| !code[..*at].ends_with(is_word))
        .map(|at| {
            let rest = &code[at + prefix.len()..];
            &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())]
        })
        .collect()
}

/// Names the code imports with `crate::NAME` or `crate::{NAME::…, …}`.
fn used(code: &str) -> Vec<String> {
    let mut names: Vec<String> = following(code, "crate::").into_iter().map(str::to_owned).collect();
    for group in code.split("crate::{").skip(1) {
        let (mut depth, mut name) = (0, String::new());
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(std::mem::take(&mut name)),
                c if depth == 0 => name.push(c),
                _ => {}
            }
        }
        names.push(name);
    }
    let first = |name: &String| name.trim().split("::").next().unwrap().to_owned();
    names.iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// Every file of the program with its module and its code; tests and the program's two roots are left out.
fn modules() -> Vec<(String, PathBuf, String)> {
    let (source, mut files) = (source(), Vec::new());
    rust_files(&source, &mut files);
    let described = files.into_iter().map(|file| {
        let path = file.strip_prefix(&source).unwrap().to_owned();
        let module = path.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned();
        (module, path, code(&std::fs::read_to_string(&file).unwrap()))
    });
    let is_test = |path: &Path| path.iter().any(|part| part == "tests" || part == "tests.rs");
    described
        .filter(|(module, path, _)| !is_test(path) && !["lib", "main", "layers"].contains(&module.as_str()))
        .collect()
}

#[test]
fn imports_point_one_way() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for (module, path, code) in modules() {
        let own = layer_of(&module).unwrap_or_else(|| panic!("{module} has no layer"));
        for name in used(&code).into_iter().filter(|name| *name != module) {
            let Some(other) = layer_of(&name) else { panic!("{} uses {name}", path.display()) };
            found += 1;
            if other >= own {
                wrong.push(format!("{} uses {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found > 100, "imports are found: {found}");
}

#[test]
fn protocols_stay_in_their_folders() {
    let mut wrong = Vec::new();
    for (module, path, code) in modules() {
        for (name, allowed) in PROTOCOLS {
            if !allowed.contains(&module.as_str()) && !following(&code, &format!("{name}::")).is_empty() {
                wrong.push(format!("{} uses {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_tests_and_comments_are_skipped() {
    let text = "use crate::a;\n// crate::b\n#[cfg(test)]\nmod tests;\nuse crate::{c::{d, e}, f};\n\
        #[cfg(test)]\nmod tests {\n    use crate::g;\n}\nfn h() { crate::i::j() }\n    #[cfg(test)]\n    fn k() {\n    \
        crate::l();\n    }\nmacro! { $crate::m }\n";
    let mut names = used(&code(text));
    names.sort();
    assert_eq!(names, ["a", "c", "f", "i", "m"]);
}
