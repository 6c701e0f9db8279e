//! Questions about compression details against a plain model of them: the rows in a list.

mod model;
mod overviews;
mod rows;
mod totals;

use super::{Case, cases};

pub(super) const CASES: &[&[Case]] = &[overviews::CASES, rows::CASES, totals::CASES];
