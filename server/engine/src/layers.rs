//! Checks that imports point one way: a module uses only layers above its own.

use std::path::{Path, PathBuf};

/// From the vocabulary down to the façade; modules of one line may use each other.
const LAYERS: &[&[&str]] = &[
    &["progress"],
    &["format"],
    &["container", "index"],
    &["error", "health", "lock"],
    &["task"],
    &["recipe"],
    &["store"],
    &["core"],
    &["recovery"],
    &["ingest", "restore", "check", "extent_history", "statistics"],
    &["engine"],
];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
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

/// Modules a text names as `crate::NAME`.
fn used(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn imports_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(&source).unwrap();
        let is_test = path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
        let module = path.components().next().unwrap().as_os_str().to_string_lossy().replace(".rs", "");
        let (false, Some(own)) = (is_test, layer_of(&module)) else { continue };
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for name in used(code) {
            if layer_of(name).is_some_and(|other| other > own) {
                wrong.push(format!("{} uses {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_module_has_a_layer() {
    let library = include_str!("lib.rs");
    let declared = library.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
    let missing: Vec<&str> = declared
        .map(|rest| rest.trim_end_matches(';'))
        .filter(|module| !["tests", "layers"].contains(module) && layer_of(module).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
