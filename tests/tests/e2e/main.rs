//! End-to-end tests, one file a hazard. One test binary, so that everything is linked once and tests of all hazards
//! run in parallel.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod backup_restore;
#[cfg(test)]
mod bucket;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod concurrency;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod damage_matrix;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod end_to_end;
#[cfg(test)]
mod end_to_end_proofs;
#[cfg(test)]
mod export;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod front_door;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod health;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod images;
#[cfg(test)]
mod incremental;
#[cfg(test)]
mod io_errors;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod recover;
#[cfg(test)]
mod report;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod restore_connections;
mod retention;
#[cfg(test)]
mod runbooks;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod service;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod sources;
mod tasks;
#[cfg(test)]
mod version;
#[cfg(test)]
mod waiting;
