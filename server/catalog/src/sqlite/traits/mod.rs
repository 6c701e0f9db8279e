//! The traits of the catalog on SQLite, one a file: each function checks what it is given, chooses the pool it
//! reads from and opens the transaction it writes in.

mod access;
mod attribution;
mod audit;
mod backups;
mod containers;
mod leases;
mod parity;
mod places;
mod points;
mod quotas;
mod reports;
mod retention;
mod scrub;
mod tasks;
mod trust;
mod upkeep;
