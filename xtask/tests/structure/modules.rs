//! Within a crate: modules of one folder use each other one way.
//!
//! For every folder a graph of its modules is built, each standing for all below it. A name that a folder's own file
//! re-exports (`pub use`) counts for the module it comes from, so it cannot hide a cycle.

use std::path::Path;

use super::crates::CRATES;
use super::graph::{Graph, circle};
use super::source::{Modules, modules, workspace};

/// The module that a path of the crate leads to, through re-exports. Bounded, as `use` may be circular.
fn resolve(modules: &Modules, path: &[String]) -> Option<Vec<String>> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let names = path.strip_prefix(&["crate".to_owned()])?;
        let len = (0..=names.len()).rev().find(|&len| modules.contains_key(&names[..len]))?;
        let module = names[..len].to_vec();
        let Some(item) = names.get(len) else { return Some(module) };
        let handed_on = modules[&module].reexports.iter().find(|(alias, _)| alias == item);
        match handed_on {
            Some((_, target)) if target.first().is_some_and(|first| first == "crate") => {
                path = target.clone();
            }
            // `pub use child::Item` without `self`.
            Some((_, target)) => {
                let mut full = vec!["crate".to_owned()];
                full.extend(module);
                full.extend(target.iter().cloned());
                path = full;
            }
            None => return Some(module),
        }
    }
    None
}

/// The graph of the modules directly below `folder`.
fn siblings(modules: &Modules, folder: &[String]) -> Graph {
    let child_of =
        |path: &[String]| path.strip_prefix(folder).and_then(|rest| rest.first()).map(ToString::to_string);
    let mut graph = Graph::new();
    for (path, module) in modules {
        let Some(own) = child_of(path) else { continue };
        let targets = module.named.iter().chain(module.reexports.iter().map(|(_, target)| target));
        for target in targets.filter_map(|target| resolve(modules, target)) {
            if let Some(other) = child_of(&target).filter(|other| *other != own) {
                graph.entry(own.clone()).or_default().insert(other);
            }
        }
    }
    graph
}

#[test]
fn modules_use_each_other_one_way() {
    let mut circles = Vec::new();
    for (name, folder, _) in CRATES {
        let modules = modules(&workspace().join(folder).join("src"));
        for folder in modules.keys() {
            if let Some(circle) = circle(&siblings(&modules, folder)) {
                circles.push(format!("{name}::{}: {}", folder.join("::"), circle.join(" → ")));
            }
        }
    }
    assert!(circles.is_empty(), "modules that use each other in circles:\n{}", circles.join("\n"));
}

/// The layers of the engine, lowest first: a module uses only lines above its own. Modules of one line may use each
/// other, one way.
const ENGINE_LAYERS: &str = "server/engine/src/lib.rs";

#[test]
fn the_engine_lists_its_layers_in_order() {
    let modules = modules(&workspace().join(Path::new("server/engine/src")));
    let text = std::fs::read_to_string(workspace().join(ENGINE_LAYERS)).unwrap();
    let listed: Vec<Vec<String>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! - "))
        .map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect())
        .collect();
    let layer = |name: &str| listed.iter().position(|line| line.iter().any(|module| module == name));
    let mut wrong = Vec::new();
    for (own, others) in siblings(&modules, &[]) {
        let Some(at) = layer(&own) else {
            wrong.push(format!("{own} is in no layer"));
            continue;
        };
        wrong.extend(
            others
                .iter()
                .filter(|other| layer(other).is_none_or(|above| above > at))
                .map(|other| format!("{own} uses {other}, which is not in a layer above it")),
        );
    }
    assert!(!listed.is_empty() && wrong.is_empty(), "{}", wrong.join("\n"));
}
