//! Requirements of a call. Each door has a table of its calls, and one check reads both.

use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;

use super::Caller;
use crate::error::ServiceError;

/// The requirement of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// A valid token.
    Any,
    /// A valid token whose role may do this; its scope narrows what is found.
    May(Action),
    /// The same for what concerns the repository as a whole, and therefore only for tokens that are valid for every
    /// namespace.
    Whole(Action),
    /// The same for what concerns VMs of every name, and therefore only for tokens without patterns.
    EveryVm(Action),
}

impl Access {
    /// Checks role, scope and patterns, as far as they are known before the call is read (H1).
    ///
    /// # Errors
    /// `Forbidden`, saying which.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), ServiceError> {
        let (action, every_vm) = match self {
            Self::Open | Self::Any => return Ok(()),
            Self::May(action) => return caller.check_role(action),
            Self::Whole(action) => (action, false),
            Self::EveryVm(action) => (action, true),
        };
        caller.check_role(action)?;
        let name = &caller.token.name;
        if caller.scope().is_some() {
            return Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!(
                    "this concerns the whole repository, but token {name:?} is valid for some namespaces only; use a \
                     token that is valid for all"
                ),
            ));
        }
        let patterns = &caller.token.vm_patterns;
        if every_vm && !patterns.is_empty() {
            return Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!(
                    "this concerns every VM, but token {name:?} is for the VMs {} only; use a token that is for all",
                    patterns.join(", ")
                ),
            ));
        }
        Ok(())
    }
}
