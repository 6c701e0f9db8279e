//! Agents that run as a service.

use holdfast_proto::api::{Agent, AgentReport, LATE_MS, Time};
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{NamespaceId, TokenId};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::token::{Role, new_token};
use crate::{AGENTS_PER_TOKEN_MAX, CatalogError, TokenSpec};

cases![
    an_agent_is_what_it_last_reported,
    an_agent_is_seen_by_those_who_have_all_its_namespaces,
    a_machine_that_joined_again_is_one_agent,
    agents_of_a_token_are_bounded,
];

fn token(f: &Fixture, name: &str, owner: &str, namespaces: &[NamespaceId]) -> TokenId {
    let (_, id, hash) = new_token(f.clock.as_ref()).unwrap();
    let spec = TokenSpec {
        id,
        name: name.into(),
        role: Role::Backup,
        namespaces: namespaces.to_vec(),
        owner: owner.into(),
        vm_patterns: Vec::new(),
        expires_ms: None,
    };
    f.create_token(&spec, &hash).unwrap();
    id
}

fn report(host: &str, next_ms: i64) -> AgentReport {
    let next_run = Some(Time::new(next_ms));
    AgentReport { host: host.into(), version: "1.0".into(), next_run, vms: 3, problem: String::new() }
}

fn hosts(agents: &[Agent]) -> Vec<&str> {
    agents.iter().map(|agent| agent.report.host.as_str()).collect()
}

fn an_agent_is_what_it_last_reported(f: &Fixture) {
    let token = token(f, "hv1", "default", &[]);
    f.report_agent(token, &report("hv1", START_MS + 1000)).unwrap();
    f.clock.advance_ms(500);
    let later = AgentReport { problem: "broken".into(), next_run: None, ..report("hv1", 0) };
    f.report_agent(token, &later).unwrap();
    let agents = f.agents(None).unwrap();
    let expected = Agent { token: "hv1".into(), seen: f.clock.now_ms(), late: false, report: later };
    assert_eq!(agents, [expected]);
    f.report_agent(token, &report("hv1", START_MS + 1000)).unwrap();
    f.clock.advance_ms(500 + LATE_MS);
    assert!(!f.agents(None).unwrap()[0].late);
    f.clock.advance_ms(1);
    assert!(f.agents(None).unwrap()[0].late);
    let stranger = f.report_agent(TokenId(Ulid(7)), &report("hv1", 0)).unwrap_err();
    assert!(matches!(stranger, CatalogError::NotFound { what: "token", .. }), "{stranger}");
    let nameless = f.report_agent(token, &report("", 0)).unwrap_err();
    assert!(matches!(nameless, CatalogError::Invalid { .. }), "{nameless}");
    f.revoke_token(token).unwrap();
    assert_eq!(f.agents(None).unwrap(), [], "it was told to go");
}

fn an_agent_is_seen_by_those_who_have_all_its_namespaces(f: &Fixture) {
    let [one, two] = ["one", "two"].map(|name| f.ensure_namespace(name).unwrap().id);
    for (name, namespaces) in [("all", &[][..]), ("both", &[one, two]), ("first", &[one])] {
        let token = token(f, name, "default", namespaces);
        f.report_agent(token, &report(name, 0)).unwrap();
    }
    assert_eq!(hosts(&f.agents(None).unwrap()), ["all", "both", "first"]);
    assert_eq!(hosts(&f.agents(Some(&[one])).unwrap()), ["first"]);
    assert_eq!(hosts(&f.agents(Some(&[one, two])).unwrap()), ["both", "first"]);
    assert_eq!(f.agents(Some(&[])).unwrap(), []);
}

fn a_machine_that_joined_again_is_one_agent(f: &Fixture) {
    let (first, again) = (token(f, "hv1", "default", &[]), token(f, "hv1-again", "default", &[]));
    let other = token(f, "other", "tenant", &[]);
    let narrower = token(f, "narrower", "default", &[f.ensure_namespace("one").unwrap().id]);
    for token in [first, other, again, narrower] {
        f.report_agent(token, &report("hv1", 0)).unwrap();
    }
    let agents = f.agents(None).unwrap();
    let names: Vec<_> = agents.iter().map(|agent| agent.token.as_str()).collect();
    assert_eq!(
        names,
        ["hv1-again", "narrower", "other"],
        "that of another owner or for other namespaces is not touched"
    );
}

fn agents_of_a_token_are_bounded(f: &Fixture) {
    let token = token(f, "fleet", "default", &[]);
    for number in 0..=AGENTS_PER_TOKEN_MAX {
        f.clock.advance_ms(1);
        f.report_agent(token, &report(&format!("hv{number:04}"), 0)).unwrap();
    }
    let agents = f.agents(None).unwrap();
    assert_eq!((agents.len() as u32, agents[0].report.host.as_str()), (AGENTS_PER_TOKEN_MAX, "hv0001"));
}
