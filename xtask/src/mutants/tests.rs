use super::table::{Rule, Table, rules};

/// The quick half of `cargo xtask mutants`: whoever changes a rule or its code must change the list, too.
#[test]
fn every_rule_has_a_mutation_that_fits_the_code() {
    let table = Table::load().unwrap();
    let mut problems = table.uncovered().unwrap();
    for mutation in &table.mutations {
        let why = mutation.misfit().unwrap();
        problems.extend(why.map(|why| format!("{}: {why}", mutation.line())));
    }
    assert!(problems.is_empty(), "see CONTRIBUTING, \"A rule\":\n{}", problems.join("\n"));
}

#[test]
fn rules_are_labels_and_failures() {
    let document = "| rule | must |\n|---|---|\n| W1 | must | x |\n| W10 | y |\n| **A1** | z |\n\n### Failures and what they stop\n\ntext\n\n| failure | writing |\n|---|---|\n| no room, on any | fails |\n\n## The index\n\n| I1 | must |\n| other | x |\n";
    let names = ["W1", "W10", "A1", "I1", "no room, on any"];
    assert_eq!(rules(document), names.map(|name| Rule(name.to_owned())));
}

#[test]
fn a_text_must_be_there_once() {
    let table: Table = toml::from_str(
        "[[mutation]]\nrule = \"W1\"\nwithout = \"a\"\nfile = \"x\"\nfind = \"b\"\nreplace = \"c\"\ntest = { package = \"p\", name = \"t\" }",
    )
    .unwrap();
    let mutation = &table.mutations[0];
    assert_eq!(mutation.apply("abd"), Ok("acd".to_owned()));
    assert!(mutation.apply("abdb").unwrap_err().contains("2 times"));
    assert!(mutation.apply("ad").unwrap_err().contains("0 times"));
}
