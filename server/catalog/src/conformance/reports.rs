//! Questions about compression details against a plain model of them: the rows in a list.

mod overviews;
mod rows;
mod totals;
mod world;

use super::{Case, cases};

pub(super) const CASES: &[&[Case]] = &[overviews::CASES, rows::CASES, totals::CASES];
