use holdfast_types::clock::ManualClock;
use ulid::Ulid;

use super::*;

#[test]
fn a_new_token_is_recognised_and_no_other() {
    let clock = ManualClock::new(1_763_700_000_000);
    let (text, id, hash) = new_token(&clock).unwrap();
    assert_eq!(text.as_str().len(), TEXT_BYTES);
    let presented: PresentedToken = text.as_str().parse().unwrap();
    assert_eq!(presented.id(), id);
    assert!(presented.matches(&hash));

    let (other_text, _, other_hash) = new_token(&clock).unwrap();
    assert_ne!(text, other_text);
    assert!(!presented.matches(&other_hash));
    let renamed = PresentedToken { id: TokenId(Ulid(7)), secret: presented.secret };
    assert!(!renamed.matches(&hash), "a hash must be bound to its token's name");
}

/// Hashes are kept on disk: if this fails, every token in use has just stopped working.
#[test]
fn the_hash_is_golden() {
    let token = PresentedToken { id: TokenId(Ulid(1)), secret: [2; 32] };
    assert_eq!(
        blake3::Hash::from_bytes(token.hash()).to_hex().as_str(),
        "919a2406639b3b35a90492e41e27606cb29aa5e249c362191355ef7519d20a32"
    );
}

#[test]
fn texts_that_are_no_token_are_refused() {
    let (text, ..) = new_token(&ManualClock::new(0)).unwrap();
    let text = text.as_str();
    let flipped = text.replacen("hf_", "hx_", 1);
    let bad_secret = format!("{}g", &text[..text.len() - 1]);
    let bad_id = text.replacen("hf_0", "hf_U", 1);
    let moved = format!("hf_{}", text[3..].replacen('_', "0", 1));
    let too_late = format!("hf_8{}", &text[4..]);
    for bad in ["", "hf_", &text[1..], &format!("{text} "), &flipped, &bad_secret, &bad_id, &moved, &too_late]
    {
        assert!(bad.parse::<PresentedToken>().is_err(), "{bad}");
    }
}

#[test]
fn secrets_do_not_leak_into_logs() {
    let (text, ..) = new_token(&ManualClock::new(0)).unwrap();
    let secret = text.as_str().rsplit('_').next().unwrap();
    let presented: PresentedToken = text.as_str().parse().unwrap();
    for shown in [format!("{text:?}"), format!("{presented:?}"), format!("{presented:#?}")] {
        assert!(!shown.contains(&secret[..8]), "{shown}");
    }
}

/// The whole matrix, spelled out: a change here is a change of what tokens in the field may do.
#[test]
fn roles_may_exactly_this() {
    #[rustfmt::skip]
    let matrix = [
        //                       backup readback restore catalog report tokens operate retain takeover
        (Role::Backup,          [true,  true,    false,  true,   true,  false, false, false, false]),
        (Role::Restore,         [false, true,    true,   true,   true,  false, false, false, false]),
        (Role::Operator,        [true,  true,    true,   true,   true,  false, true,  false, true]),
        (Role::Admin,           [true,  true,    true,   true,   true,  true,  true,  true,  true]),
    ];
    assert_eq!(matrix.len(), Role::ALL.len());
    for (role, row) in matrix {
        assert_eq!(Action::ALL.map(|action| role.may(action)), row, "{role}");
        assert_eq!(role.to_string().parse(), Ok(role));
    }
    assert!("Admin".parse::<Role>().is_err());
}

#[test]
fn scope_and_validity() {
    let (mine, other) = (NamespaceId(Ulid(1)), NamespaceId(Ulid(2)));
    let mut token = TokenRecord {
        id: TokenId(Ulid(3)),
        name: "hv-1".into(),
        role: Role::Backup,
        namespaces: vec![mine],
        owner: "hv-1".into(),
        vm_patterns: Vec::new(),
        created_ms: 0,
        expires_ms: Some(100),
        revoked_ms: None,
        disabled_ms: None,
        last_used_ms: None,
        join_until_ms: None,
        joined_ms: None,
    };
    assert!(token.may(Action::Backup, mine));
    assert!(!token.may(Action::Backup, other));
    assert!(!token.may(Action::Operate, mine));
    assert!(token.is_usable(99));
    assert!(!token.is_usable(100));
    assert!(token.covers_vm("any"));
    token.vm_patterns = vec!["web-*".into(), "db".into()];
    assert!(token.covers_vm("web-1") && token.covers_vm("db") && !token.covers_vm("db-1"));
    token.namespaces.clear();
    assert!(token.may(Action::Backup, other));
    token.revoked_ms = Some(1);
    assert!(!token.is_usable(50));
}
