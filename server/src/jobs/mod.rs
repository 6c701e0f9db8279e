//! Background work of a running server.

mod audit;
mod housekeeping;

pub(crate) use audit::run as audit;
pub(crate) use housekeeping::run as housekeeping;
