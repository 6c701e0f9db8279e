//! The structure of the source itself: which crate and which module may use which, and who may touch files or
//! the network. Read from the code with `syn`, not from a picture of it.

mod crates;
mod graph;
mod io;
mod modules;
mod source;
