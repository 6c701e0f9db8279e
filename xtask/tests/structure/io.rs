//! Access to files and the network: the crates and modules made for it, named here one by one.

use super::crates::CRATES;
use super::source::{modules, workspace};

/// A kind of I/O, its paths in code, and the prefixes of the files that may use it.
const RULES: &[(&str, &[&str], &[&str])] = &[
    ("files", &["std::fs", "tokio::fs"], FILES),
    ("HTTP", &["axum::", "utoipa_axum::"], &["server/src/http/"]),
    ("gRPC's transport", &["tonic::"], GRPC),
    ("the network", &["std::net::Tcp", "std::net::Udp", "std::os::unix::net", "tokio::net"], NETWORK),
];

const FILES: &[&str] = &[
    "server/volume/src/",
    // Ownership of files.
    "server/types/src/owner.rs",
    // Key files.
    "server/keys/src/source/key_file.rs",
    "server/s3/src/credentials.rs",
    // The database's own file: its mode, and whether it exists.
    "server/catalog/src/sqlite/",
    // Configuration, certificates, the admin token, the data folder's lock.
    "server/src/",
    // Disks to back up, files to restore to, the profile.
    "client/src/source/",
    "client/src/restore/target",
    // The map of data that could not be restored.
    "client/src/restore/bad_map.rs",
    "client/src/connect/",
    // The agent's settings, what it remembers, and files that its patterns mean.
    "client/src/service/",
    // This process in /proc.
    "client/src/stages.rs",
    "client/src/cli/signals.rs",
    // The socket that a server of disks listens at.
    "client/nbd/src/listen.rs",
    // What other programs find: a folder of ours, a machine's overlays, a guest's files.
    "client/src/child.rs",
    "client/src/cli/boot.rs",
    "client/src/cli/files.rs",
    "client/src/cli/guestfish.rs",
];

const GRPC: &[&str] = &["server/src/grpc/", "server/src/net/", "client/src/", "proto/src/"];

const NETWORK: &[&str] =
    &["server/src/", "client/src/connect/", "client/nbd/src/listen.rs", "client/nbd/src/stream.rs"];

#[test]
fn only_what_is_made_for_it_does_io() {
    let mut wrong = Vec::new();
    for (_, folder, _) in CRATES {
        for module in modules(&workspace().join(folder).join("src")).values() {
            let file = module.file.to_str().unwrap();
            let named = module.named.iter().chain(module.reexports.iter().map(|(_, target)| target));
            for path in named.map(|path| path.join("::")) {
                for (what, paths, allowed) in RULES {
                    let uses = paths.iter().any(|prefix| path.starts_with(prefix));
                    if uses && !allowed.iter().any(|prefix| file.starts_with(prefix)) {
                        wrong.push(format!("{file} uses {path}, but is not made to touch {what}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
