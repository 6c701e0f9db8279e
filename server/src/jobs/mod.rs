//! Background work of a running server.

mod housekeeping;

pub(crate) use housekeeping::run as housekeeping;
