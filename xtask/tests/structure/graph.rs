//! Dependency graphs, and their cycles.

use std::collections::{BTreeMap, BTreeSet};

/// Edges by name.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns a cycle, as names that each use the next and the last the first; `None` if there is none.
pub(crate) fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| walk(graph, start, &mut Vec::new(), &mut done))
}

fn walk(graph: &Graph, at: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(place) = path.iter().position(|name| name == at) {
        return Some(path[place..].to_vec());
    }
    if done.contains(at) {
        return None;
    }
    path.push(at.to_owned());
    let found = graph.get(at).into_iter().flatten().find_map(|next| walk(graph, next, path, done));
    path.pop();
    done.insert(at.to_owned());
    found
}

#[test]
fn circles_are_found() {
    let edge = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(ToString::to_string).collect());
    let tree: Graph = [edge("a", &["b", "c"]), edge("b", &["c"])].into();
    assert_eq!(circle(&tree), None);
    let round: Graph = [edge("a", &["b"]), edge("b", &["c"]), edge("c", &["b"])].into();
    assert_eq!(circle(&round).unwrap(), ["b", "c"]);
}
