//! Background work of a running server.

mod housekeeping;

pub use housekeeping::INTERVAL as HOUSEKEEPING_INTERVAL;
pub(crate) use housekeeping::run as housekeeping;
