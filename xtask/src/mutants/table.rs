//! The list of mutations, their rules, and checks that the two fit each other and the code.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell;

const LIST: &str = "xtask/mutants.toml";
const RULES: &str = "docs/ORDERING.md";
/// Document whose labels may have mutations, too.
const INVARIANTS: &str = "docs/ARCHITECTURE.md";
const FAILURES: &str = "### Failures and what they stop";

/// A change that removes a rule from the code.
#[derive(Debug, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    /// The label of a rule or an invariant, or the beginning of a row of the table of failures.
    pub(super) rule: String,
    /// Description of what the change removes.
    pub(super) without: String,
    /// Path below the repository's root.
    pub(super) file: PathBuf,
    /// The text to replace; it must occur exactly once in the file.
    pub(super) find: String,
    pub(super) replace: String,
    pub(super) test: Test,
}

/// A test that must fail.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    pub(super) package: String,
    /// The integration test it is in; none: the library's own tests.
    #[serde(rename = "in")]
    pub(super) binary: Option<String>,
    /// Full path of the test within it.
    pub(super) name: String,
}

/// The whole list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(rename = "mutation")]
    pub(super) mutations: Vec<Mutation>,
}

impl Mutation {
    /// Rule, mutation and test as one line.
    pub(super) fn line(&self) -> String {
        format!("{} → without {} → {}", self.rule, self.without, self.test.name)
    }

    /// Applies the mutation to the text of its file.
    ///
    /// # Errors
    /// When the text does not occur exactly once.
    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 if self.find != self.replace => Ok(text.replacen(&self.find, &self.replace, 1)),
            1 => Err("the mutation changes nothing".to_owned()),
            count => Err(format!(
                "the text to replace occurs {count} times in {}, not once:\n{}",
                self.file.display(),
                self.find
            )),
        }
    }

    /// Reads the file that it changes.
    pub(super) fn text(&self) -> Result<String> {
        read(self.file.to_str().context("a file's name is no text")?)
    }

    /// Returns why it cannot be made or tested; `None`: it can.
    pub(super) fn misfit(&self) -> Result<Option<String>> {
        if let Err(why) = self.apply(&self.text().unwrap_or_default()) {
            return Ok(Some(why));
        }
        Ok((!self.test.exists()?).then(|| "there is no such test".to_owned()))
    }
}

impl Table {
    pub(super) fn load() -> Result<Self> {
        toml::from_str(&read(LIST)?).with_context(|| format!("{LIST} is not a list of mutations"))
    }

    /// Rules without a mutation, and mutations without a rule, as messages.
    pub(super) fn uncovered(&self) -> Result<Vec<String>> {
        let mut known = rules(&read(RULES)?);
        let mut problems = Vec::new();
        for rule in &known {
            if !self.mutations.iter().any(|mutation| rule.is(&mutation.rule)) {
                problems.push(format!("{RULES} has the rule {}, and no mutation takes it out", rule.0));
            }
        }
        known.extend(rules(&read(INVARIANTS)?));
        for mutation in &self.mutations {
            if !known.iter().any(|rule| rule.is(&mutation.rule)) {
                problems.push(format!("{}: neither {RULES} nor {INVARIANTS} has it", mutation.line()));
            }
        }
        Ok(problems)
    }
}

/// A label, or a row of the table of failures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule(pub(super) String);

impl Rule {
    /// A label must be equal; a failure must begin with `named`.
    fn is(&self, named: &str) -> bool {
        let is_label = self.0.len() <= 3;
        if is_label { self.0 == named } else { named.len() > 3 && self.0.starts_with(named) }
    }
}

/// All rules of the document.
pub(super) fn rules(document: &str) -> Vec<Rule> {
    // Invariants have their label in bold.
    let cell = |line: &str| Some(line.strip_prefix("| ")?.split(" |").next()?.trim_matches('*').to_owned());
    let is_label = |cell: &String| {
        let mut letters = cell.chars();
        letters.next().is_some_and(|first| first.is_ascii_uppercase())
            && (1..=2).contains(&letters.as_str().len())
            && letters.all(|letter| letter.is_ascii_digit())
    };
    let labels = document.lines().filter_map(cell).filter(is_label);
    let section = document.split_once(FAILURES).map_or("", |(_, after)| after);
    let section = section.split("\n#").next().unwrap_or_default();
    // Rows after the table's head.
    let failures = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1).filter_map(cell);
    labels.chain(failures).map(Rule).collect()
}

impl Test {
    /// Returns true if the package has a function of that name.
    fn exists(&self) -> Result<bool> {
        let folder = folder_of(&self.package)?;
        let name = self.name.rsplit("::").next().unwrap_or_default();
        Ok(any_source(&folder, &|text| text.contains(&format!("fn {name}("))))
    }
}

fn folder_of(package: &str) -> Result<PathBuf> {
    let root = shell::root();
    let workspace: toml::Table = read("Cargo.toml")?.parse().context("Cargo.toml")?;
    let members = workspace.get("workspace").and_then(|table| table.get("members"));
    let members = members.and_then(toml::Value::as_array).context("Cargo.toml names no members")?;
    let named = format!("name = \"{package}\"");
    let folders = members.iter().filter_map(toml::Value::as_str).map(|member| root.join(member));
    let is_it = |folder: &PathBuf| {
        std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains(&named))
    };
    folders.into_iter().find(is_it).with_context(|| format!("no package is called {package:?}"))
}

/// Returns true if `has` holds for a source file below `folder`.
fn any_source(folder: &Path, has: &dyn Fn(&str) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return any_source(&path, has);
        }
        path.extension().is_some_and(|kind| kind == "rs")
            && std::fs::read_to_string(&path).is_ok_and(|text| has(&text))
    })
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(shell::root().join(file)).with_context(|| format!("cannot read {file}"))
}
