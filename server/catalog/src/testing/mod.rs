//! Conformance suite of every [`Catalog`], whatever database is behind it. An implementation's test calls
//! [`suite`] with a function that gives a new, empty catalog on the given clock. Other crates reach it with
//! the feature `testing`, as `holdfast_catalog::testing::suite`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a suite of tests, whichever crate runs it"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "small numbers of a test"
)]

mod access;
mod agents;
mod attribution;
mod backups;
mod containers;
mod details;
mod expiring;
pub mod fixture;
mod parity;
mod places;
mod points;
mod quotas;
mod refusals;
mod renames;
mod reports;
mod retention;
mod scrub;
mod sequences;
mod tasks;
mod trust;
mod verifications;

use std::sync::Arc;

use holdfast_types::clock::ManualClock;

pub use self::backups::move_to as move_to_namespace;
use self::fixture::Fixture;
use super::Catalog;
pub use super::sqlite::testing::InjectedFailure;

type Case = (&'static str, fn(&Fixture));

const CASES: &[&[Case]] = &[
    access::CASES,
    agents::CASES,
    attribution::CASES,
    backups::CASES,
    trust::CASES,
    containers::CASES,
    details::CASES,
    expiring::CASES,
    parity::CASES,
    places::CASES,
    points::CASES,
    quotas::CASES,
    refusals::CASES,
    renames::CASES,
    retention::CASES,
    scrub::CASES,
    tasks::CASES,
    verifications::CASES,
];

/// Runs every case on a catalog of its own, then random sequences of commits.
pub fn suite(open: impl Fn(Arc<ManualClock>) -> Arc<Catalog>) {
    for (name, case) in CASES.iter().chain(reports::CASES).copied().flatten() {
        let fixture = Fixture::new(&open);
        // Shown by the test harness when the case fails.
        println!("case {name}");
        case(&fixture);
        assert_eq!(fixture.catalog.integrity_check().unwrap(), Vec::<String>::new(), "after {name}");
    }
    sequences::run(&open);
}

/// Names the functions of a list of cases.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        pub(super) const CASES: &[$crate::testing::Case] =
            &[$((concat!(module_path!(), "::", stringify!($case)), $case)),*];
    };
}
use cases;
