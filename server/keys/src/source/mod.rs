//! Sources of secrets: a key file, one wrapped by a passphrase, or a command that prints one. (A passphrase is typed,
//! a recovery kit is read by [`crate::kit`].)

pub mod command;
pub mod key_file;
pub mod wrapped;
