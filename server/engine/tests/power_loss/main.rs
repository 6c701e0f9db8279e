//! The whole system loses power together: local volume, catalog and index on one disk that remembers what was flushed.
//!
//! Real engines work on a real folder and a real SQLite database, while this process records every change of a file
//! that it makes ([`interpose`], [`recorder`]). From a recording follows what a disk may hold after a power failure
//! at any moment ([`disk`]). A real engine is started from that, and must keep every promise made before ([`facts`],
//! [`verify`]); it may be interrupted again ([`campaign`]).
//!
//! `cargo test` tries a thousand seeds, `cargo xtask test --slow` 100,000, and `cargo xtask soak` more; it also tries single
//! ones again, by the environment variables in [`settings`]. Two containers are sealed at the same time, so two recordings of a life may
//! differ in their order: a seed is tried again with several recordings, and the folder that failed is kept.
//!
//! This is a test of the engine's crate and not one of the real programs: it needs the engine, the volume and the
//! catalog in a process that records itself, and nothing of the network.

#[cfg(test)]
#[path = "../../src/tests/agent.rs"]
#[allow(dead_code, reason = "the agent of the engine's own tests")]
mod agent;
#[cfg(test)]
mod campaign;
#[cfg(test)]
mod conversion;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod interpose;
#[cfg(test)]
mod life;
#[cfg(test)]
mod random;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod verify;

/// The agent names what it uses by the engine's own modules.
#[cfg(test)]
mod engine {
    pub(crate) use holdfast_engine::Engine;
}
#[cfg(test)]
mod error {
    pub(crate) use holdfast_engine::EngineError;
}
#[cfg(test)]
mod restore {
    pub(crate) use holdfast_engine::DiskReader;
}
#[cfg(test)]
mod ingest {
    pub(crate) use holdfast_engine::{Committed, DiskStream, StartBackup, Starter};
}

#[cfg(test)]
fn namespace(engine: &holdfast_engine::Engine) -> holdfast_engine::ids::NamespaceId {
    engine.catalog().namespace_by_name("default").unwrap().unwrap().id
}

#[cfg(test)]
mod tests {
    use super::{campaign, conversion, life, settings};

    /// (K2, K3) Also while all blobs are sealed anew.
    #[test]
    fn nothing_is_lost_while_everything_is_encrypted_anew() {
        conversion::run(settings::folder().path());
    }

    #[test]
    fn nothing_promised_is_lost_wherever_power_fails() {
        let folder = settings::folder();
        for plan in settings::plans() {
            let lives = life::record_all(folder.path());
            let outcome = campaign::run(&lives, folder.path(), plan);
            assert!(outcome.failures.is_empty(), "{}", outcome.failures.join("\n\n"));
            println!("{} crashes survived, {} of them distinct", outcome.crashes, outcome.distinct);
        }
    }
}
