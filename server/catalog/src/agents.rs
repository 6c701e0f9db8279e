//! Agents that run as a service, as they last reported.

use holdfast_proto::api::{Agent, AgentReport};
use holdfast_types::ids::{NamespaceId, TokenId};

use crate::sqlite::{Catalog, agents};
use crate::{AGENTS_PER_TOKEN_MAX, Result, validate};

const _: () = assert!(AGENTS_PER_TOKEN_MAX > 0, "an agent's report is kept");

/// Across processes: each function is one transaction.
impl Catalog {
    /// Keeps what the agent of this token on this machine reports, in place of its report before and of those with tokens of
    /// the same owner that it used before: they are revoked, or for the very same namespaces and VMs. At
    /// [`AGENTS_PER_TOKEN_MAX`] machines of one token the one that was silent longest gives way. `NotFound`: no such token.
    /// `Invalid`: the machine has no name.
    pub fn report_agent(&self, token: TokenId, report: &AgentReport) -> Result<()> {
        validate::name("host", &report.host)?;
        let now_ms = self.clock.now_ms();
        self.write(|tx| agents::report(tx, now_ms, token, report))
    }

    /// Agents of tokens that can be used and are valid for these namespaces alone (`None`: of all tokens), by name of the token
    /// and machine.
    pub fn agents(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<Agent>> {
        validate::scope(namespaces)?;
        let now_ms = self.clock.now_ms();
        self.look_up(|c| agents::list(c, now_ms, namespaces))
    }
}
