//! The structure of the source itself: which crate and which module may use which others, or files and the network.
//! Read from the code with `syn`, not from a picture of it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: what they do not expect fails the test"
)]

#[cfg(test)]
mod crates;
#[cfg(test)]
mod graph;
#[cfg(test)]
mod io;
#[cfg(test)]
mod modules;
mod security;
#[cfg(test)]
mod source;
