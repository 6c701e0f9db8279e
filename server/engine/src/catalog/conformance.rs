//! What every [`Catalog`] must do, whichever database is behind it. An implementation's test calls [`suite`]
//! with a function that gives a new, empty catalog on the given clock.

mod access;
mod backups;
mod containers;
mod details;
pub(super) mod fixture;
mod refusals;
mod reports;
mod sequences;
mod web;

use std::sync::Arc;

pub(super) use self::backups::move_to as move_to_namespace;
use self::fixture::Fixture;
use super::Catalog;
use crate::clock::ManualClock;

type Case = (&'static str, fn(&Fixture));

const CASES: &[&[Case]] =
    &[access::CASES, backups::CASES, containers::CASES, details::CASES, refusals::CASES, web::CASES];

/// Runs every case on a catalog of its own, then random sequences of commits.
pub(super) fn suite(open: impl Fn(Arc<ManualClock>) -> Arc<dyn Catalog>) {
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
        pub(super) const CASES: &[$crate::catalog::conformance::Case] =
            &[$((concat!(module_path!(), "::", stringify!($case)), $case)),*];
    };
}
use cases;
