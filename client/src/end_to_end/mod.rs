//! End-to-end encryption: the agent names and seals chunks with a key that the server never sees.
//!
//! [`NamespaceKey`] is that key, and `source` where it comes from; [`Cipher`] is what backing up and reading back do with
//! it, or without one. The format of sealed regions, as far as a server checks it, is `holdfast_proto::region::sealed`.

mod cipher;
mod key;
mod source;

pub use cipher::Cipher;
pub use key::NamespaceKey;
pub use source::{AskPassphrase, KeySource, create_key_file, create_wrapped_key_file};
