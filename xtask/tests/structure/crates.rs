//! Allowed dependencies between crates.

use super::source::workspace;

/// Each crate, its folder, and the crates of this workspace it may depend on.
pub(crate) const CRATES: &[(&str, &str, &[&str])] = &[
    ("holdfast-proto", "proto", &[]),
    ("holdfast-types", "server/types", &[]),
    ("holdfast-keys", "server/keys", &["holdfast-types"]),
    ("holdfast-volume", "server/volume", &["holdfast-types"]),
    ("holdfast-sealing", "server/sealing", &["holdfast-types", "holdfast-keys", "holdfast-volume"]),
    ("holdfast-s3", "server/s3", &["holdfast-volume"]),
    ("holdfast-tiers", "server/tiers", &["holdfast-types", "holdfast-volume"]),
    ("holdfast-catalog", "server/catalog", &["holdfast-proto", "holdfast-types"]),
    ("holdfast-retention", "server/retention", &["holdfast-proto"]),
    (
        "holdfast-engine",
        "server/engine",
        &["holdfast-proto", "holdfast-types", "holdfast-volume", "holdfast-catalog"],
    ),
    (
        "holdfast-server",
        "server",
        &[
            "holdfast-proto",
            "holdfast-types",
            "holdfast-keys",
            "holdfast-volume",
            "holdfast-sealing",
            "holdfast-s3",
            "holdfast-tiers",
            "holdfast-catalog",
            "holdfast-retention",
            "holdfast-engine",
        ],
    ),
    ("holdfast-nbd", "client/nbd", &[]),
    // Of keys: reading key files, and the type of secrets.
    ("holdfast", "client", &["holdfast-proto", "holdfast-keys", "holdfast-nbd"]),
];

#[test]
fn crates_depend_one_way() {
    for (name, folder, allowed) in CRATES {
        let manifest = std::fs::read_to_string(workspace().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder} is not {name}");
        let dependencies =
            manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap();
        for line in dependencies.lines().filter(|line| line.starts_with("holdfast")) {
            let other = line.split(['.', ' ', '=']).next().unwrap();
            assert!(allowed.contains(&other), "{name} depends on {other}");
        }
    }
}
