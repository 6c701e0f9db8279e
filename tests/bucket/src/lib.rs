//! An object store in the test's own process: one bucket in memory behind `s3s`, which speaks S3's protocol and checks
//! signatures, with the failures of real ones.
//!
//! | file | what it holds |
//! |---|---|
//! | `store.rs` | the bucket: implements the requests of `s3s` |
//! | `faults.rs` | planned failures |
//! | `link.rs` | transfer rate and traffic |
//! | `versions.rs` | versions of objects and their retention, if the bucket has Object Lock |
//! | `server.rs` | [`TestBucket`]: listens, and lets requests fail as planned |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "only tests use it: what they do not expect fails the test"
)]

mod faults;
mod link;
mod server;
mod store;
mod versions;

pub use faults::{Fault, Op};
pub use link::{Traffic, folder_of};
pub use server::{ACCESS_KEY, BUCKET, SECRET_KEY, TestBucket};
pub use store::{Object, ObjectThaw};
pub use versions::Retention;
