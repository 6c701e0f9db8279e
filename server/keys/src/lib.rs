//! Encryption at rest: keys, the secrets that open them, and how blobs are sealed with them. `docs/FORMAT.md` (*Keys*)
//! has the byte layouts, `docs/SECURITY.md` (*Keys*) the threats each part protects against.
//!
//! ```text
//! key file · passphrase · command · recovery kit        what people keep: `source`, `kit`
//!        └─ opens a slot ─→ repository key              `slots`
//!                             └─ wraps ─→ data keys     `table`: one or more an owner (a namespace, or the repository)
//!                                           └─ HKDF ─→ blob keys     `blob`: one a written blob, by its salt
//!                                                        └─ AES-256-GCM ─→ pages
//! ```
//!
//! AWS-LC implements the cryptography, and RustCrypto Argon2id; this crate has only layouts and rules.
//!
//! - Secrets are wiped when dropped, compared in constant time, and never shown by `Debug` or in errors.
//! - A wrong secret, an unknown key and damage are different errors; the first two name the key that is wanted.
//! - Nothing here retries, logs or prints. Functions that write document what a crash leaves.
//!
//! Layers, from the bottom: `secret` → `crypto`, `layout`, `id` → `blob` → `data_key` →
//! `slots` → `table`; `source` (which wraps a key file with the key derivation of `slots`) and `kit` know only secrets and
//! ids.

mod blob;
mod crypto;
mod data_key;
mod id;
pub mod kit;
mod layout;
mod secret;
pub mod slots;
pub mod source;
mod table;

pub use blob::{BlobKey, BlobSealer, DamagedPage, SealError};
pub use crypto::{CryptoError, SALT_BYTES, TAG_BYTES};
pub use data_key::DataKey;
pub use id::{DataKeyId, KeyNumber, Owner, RepositoryKeyId};
pub use layout::DecodeError;
pub use secret::{KEY_BYTES, RandomError, Secret, SecretBytes, SecretRandom, SystemRandom};
pub use table::{
    DATA_KEYS_MAX, DataKeyInfo, DataKeyState, KEY_TABLE_MAX_BYTES, KeyError, KeyTable, OpenKeys, UnknownKey,
};
