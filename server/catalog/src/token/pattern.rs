//! VM name patterns: `*` stands for any number of characters, `?` for one, everything else for itself.

/// Patterns one token may have.
pub const VM_PATTERNS_MAX: usize = 64;

/// Returns true if `pattern` matches all of `name`. Case counts. Takes at most their lengths multiplied.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // After the last `*`: where the pattern goes on, and where in the name that was tried last.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&next) = name.get(in_name) {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, in_name));
            }
            Some(&wanted) if wanted == '?' || wanted == next => {
                at += 1;
                in_name += 1;
            }
            _ => {
                // The last `*` takes one character more. Earlier ones need not be tried again.
                let Some((after, tried)) = star else { return false };
                star = Some((after, tried + 1));
                (at, in_name) = (after, tried + 1);
            }
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|&left| left == '*'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn stars_and_question_marks_match_and_nothing_else_is_special() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("*", "web", true),
            ("web-*", "web-1", true),
            ("web-*", "web-", true),
            ("web-*", "web", false),
            ("web-*", "my-web-1", false),
            ("*-db", "a-db-db", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("db-?", "db-1", true),
            ("db-?", "db-12", false),
            ("db-?", "db-", false),
            ("?", "ä", true),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
            ("Web", "web", false),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_does_not_take_for_ever() {
        assert!(!matches(&"*a".repeat(100), &"a".repeat(99)));
        assert!(!matches(&format!("{}b", "*a".repeat(60)), &"a".repeat(200)));
    }

    /// Matches by the rule, word for word, at any cost.
    fn model(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                model(rest, name) || name.split_first().is_some_and(|(_, name)| model(pattern, name))
            }
            (Some((wanted, rest)), Some((next, name))) => {
                (*wanted == '?' || wanted == next) && model(rest, name)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_the_rule_says(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &name), model(&chars(&pattern), &chars(&name)));
        }
    }
}
