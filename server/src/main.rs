//! The `holdfast-server` command.

fn main() {}
