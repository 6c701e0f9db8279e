//! `cargo xtask fix`: repairs the complaints of `cargo xtask test` that a program can repair.

use anyhow::Result;

use crate::shell::{self, cargo};
use crate::web;

/// Lints first: their changes may have to be formatted.
pub(crate) fn run() -> Result<()> {
    let lints = ["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"];
    shown(cargo().args(lints))?;
    shown(cargo().args(["fmt", "--all"]))?;
    match web::obstacle() {
        Some(obstacle) => println!("left the web interface as it is: {obstacle}"),
        None if !web::is_installed() => {
            println!("left the web interface as it is: its packages are not installed (npm ci in web/)");
        }
        None => shown(&mut web::npm(&["run", "--if-present", "lint:fix"]))?,
    }
    Ok(())
}

fn shown(command: &mut std::process::Command) -> Result<()> {
    println!("$ {}", shell::line(command));
    shell::run(command)
}
