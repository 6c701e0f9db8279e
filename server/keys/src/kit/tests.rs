use holdfast_types::ids::RepositoryId;
use proptest::prelude::*;

use super::*;
use crate::id::RepositoryKeyId;

const WORDS_OF_COUNTING: &str = "babab daboz basah hadiv bimat lafat bohak pafuj bubaz tagoh busip bahig damib gajaf \
    dihin kajup dobif nakon dosik salim dumiz zidoj tujub nigoj";

fn counting() -> Secret {
    Secret::from_bytes(&std::array::from_fn(|place| u8::try_from(place).unwrap()))
}

fn page(secret: &Secret) -> String {
    let page = KitPage {
        repository: RepositoryId::from_bytes([1; 16]),
        key: RepositoryKeyId([0xAB; 16]),
        made_ms: 1_935_619_200_000,
        volumes: &["/srv/blobs".to_owned(), "s3://bucket/prefix".to_owned()],
        commands: &["holdfast-server recover --from s3://bucket/prefix --data-dir NEW --kit FILE".to_owned()],
    };
    String::from_utf8(page.text(secret).expose().to_vec()).unwrap()
}

fn words(secret: &Secret) -> Vec<String> {
    let page = page(secret);
    let (_, rest) = page.split_once(BEGIN).unwrap();
    let (words, _) = rest.split_once(END).unwrap();
    words
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn parse_words(words: &[String]) -> Result<Kit, KitError> {
    Kit::parse(&words.join(" "))
}

/// The words were computed by another implementation.
#[test]
fn golden_words() {
    assert_eq!(words(&counting()).join(" "), WORDS_OF_COUNTING);
    assert_eq!(Kit::parse(WORDS_OF_COUNTING).unwrap().secret, counting());
}

#[test]
fn a_page_says_all_that_is_needed_and_is_read_back() {
    let text = page(&counting());
    for part in [
        "Repository:     01040G2",
        "Repository key: abababab",
        "Made:           2031-05-04T",
        "\n    /srv/blobs\n    s3://bucket/prefix\n",
        "\n    holdfast-server recover --from s3://bucket/prefix",
        "\n   1 babab      2 daboz      3 basah      4 hadiv\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let expected = Kit { secret: counting(), repository: Some(RepositoryId::from_bytes([1; 16])) };
    assert_eq!(Kit::parse(&text).unwrap(), expected);
    assert_eq!(Kit::parse(&text.replace('\n', "\r\n")).unwrap(), expected);
}

#[test]
fn words_are_read_however_they_are_typed() {
    let words = words(&counting());
    let numbered: Vec<_> = (1..).zip(&words).map(|(number, word)| format!("{number}. {word}")).collect();
    for text in [
        words.join("\n"),
        words.join("").to_uppercase(),
        words.join(" - "),
        numbered.join(",\t"),
        words.join("").chars().map(|letter| format!("{letter} ")).collect(),
    ] {
        assert_eq!(Kit::parse(&text), Ok(Kit { secret: counting(), repository: None }), "{text}");
    }
}

#[test]
fn a_wrong_letter_names_its_word() {
    let words = words(&counting());
    for place in 0..WORDS {
        for letter in 0..WORD_LETTERS {
            for wrong in ["a", "b", "x", "z", "", "bb"] {
                let mut typed = words.clone();
                typed[place].replace_range(letter..=letter, wrong);
                if typed != words {
                    assert_eq!(parse_words(&typed), Err(KitError::Word { number: place + 1 }), "{typed:?}");
                }
            }
        }
    }
}

#[test]
fn missing_doubled_and_exchanged_words_are_found() {
    let words = words(&counting());
    for place in 0..WORDS {
        let mut typed = words.clone();
        typed.remove(place);
        assert_eq!(parse_words(&typed), Err(KitError::Count { found: WORDS - 1 }));
        typed.insert(place, words[place].clone());
        typed.insert(place, words[place].clone());
        assert_eq!(parse_words(&typed), Err(KitError::Count { found: WORDS + 1 }));
        for other in 0..place {
            let mut typed = words.clone();
            typed.swap(place, other);
            assert_eq!(parse_words(&typed), Err(KitError::Checksum), "{place} and {other}");
        }
    }
    assert_eq!(Kit::parse(""), Err(KitError::Count { found: 0 }));
    assert_eq!(Kit::parse(&" ".repeat(PAGE_MAX_BYTES + 1)), Err(KitError::TooLong));
}

#[test]
fn errors_and_debug_have_no_words() {
    let mut typed = words(&counting());
    typed[3] = "hadik".to_owned();
    let error = parse_words(&typed).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("had"));
    assert!(!format!("{:?}", Kit::parse(&page(&counting())).unwrap()).contains("babab"));
}

#[test]
fn a_misspelt_repository_is_an_error() {
    let text = page(&counting()).replace("Repository:     01040G2", "Repository:     0104u");
    assert_eq!(Kit::parse(&text), Err(KitError::Repository));
}

proptest! {
    #[test]
    fn every_secret_comes_back(bits in any::<[u8; 32]>()) {
        let secret = Secret::from_bytes(&bits);
        prop_assert_eq!(&Kit::parse(&page(&secret)).unwrap().secret, &secret);
        prop_assert_eq!(parse_words(&words(&secret)).unwrap().secret, secret);
    }

    #[test]
    fn any_text_is_refused_or_read(text in ".{0,400}") {
        let _ = Kit::parse(&text);
        let _ = Kit::parse(&format!("{REPOSITORY} {text}\n{BEGIN}\n{text}"));
    }
}

fn all() -> Vec<[u8; WORD_LETTERS]> {
    (0..1 << WORD_BITS).map(word).collect()
}

#[test]
fn every_word_is_one_value_and_differs_early() {
    let words = all();
    for (value, word) in words.iter().enumerate() {
        assert_eq!(bits(*word), u16::try_from(value).ok());
        assert_eq!(bits(word.map(|letter| letter.to_ascii_uppercase())), u16::try_from(value).ok());
    }
    let beginnings: std::collections::BTreeSet<_> = words.iter().map(|word| &word[..4]).collect();
    assert_eq!(beginnings.len(), words.len());
}

#[test]
fn any_one_wrong_letter_shows_in_the_word() {
    for word in all() {
        for place in 0..WORD_LETTERS {
            for letter in b'a'..=b'z' {
                let mut wrong = word;
                wrong[place] = letter;
                assert!(letter == word[place] || bits(wrong).is_none(), "{wrong:?} passes for {word:?}");
            }
        }
    }
}
