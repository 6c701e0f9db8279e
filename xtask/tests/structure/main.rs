//! The structure of the source itself: which crate and which module may use which, and who may touch files or
//! the network. Read from the code with `syn`, not from a picture of it.

#[cfg(test)]
mod crates;
#[cfg(test)]
mod graph;
#[cfg(test)]
mod io;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod source;
