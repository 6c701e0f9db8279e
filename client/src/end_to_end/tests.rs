use std::collections::HashSet;

use holdfast_keys::RandomError;
use holdfast_proto::region::Encoder;
use holdfast_proto::region::sealed::check_sealed;

use super::*;

/// The same bits, over and over.
#[derive(Debug)]
struct Stuck;

impl SecretRandom for Stuck {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        bytes.fill(5);
        Ok(())
    }
}

fn key(byte: u8) -> Arc<NamespaceKey> {
    Arc::new(NamespaceKey::new(&Secret::from_bytes(&[byte; 32])))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Two chunks, their region and their names.
fn region(cipher: &Cipher, text: &[u8]) -> (EncodedRegion, Vec<Fingerprint>, Vec<u32>) {
    let (one, two) = text.split_at(text.len() / 2);
    let names = vec![cipher.fingerprint(one), cipher.fingerprint(two)];
    let lengths = [one, two].map(|chunk| u32::try_from(chunk.len()).unwrap()).to_vec();
    (Encoder::new(2).unwrap().encode(text).unwrap(), names, lengths)
}

fn decode(cipher: &Cipher, sealed: &EncodedRegion) -> Result<Vec<u8>, RegionError> {
    let (mut plain, mut opened) = (Vec::new(), Vec::new());
    let region = (sealed.codec, sealed.payload.as_slice(), sealed.plain_bytes);
    cipher.decode_into(&mut Decoder::new().unwrap(), region, &mut plain, &mut opened).map(|()| plain)
}

#[test]
fn keys_and_names_are_these() {
    let key = key(7);
    assert_eq!(key.id().to_string(), "nk-ba2c5cf90edc517b");
    let cipher = Cipher::Sealed(key);
    assert_eq!(
        cipher.fingerprint(b"chunk").to_string(),
        "86272ce555d65b3e19a7af664d7f09922e6b3507be6d485e6135bfc9c6db45c8"
    );
    assert_eq!(
        cipher.digest(b"extent").to_string(),
        "20f52e1da89f4ea1f9c6a6828a28042ab1e12c5b2c572f77946304d83dfcc89b"
    );
    assert_ne!(cipher.fingerprint(b"chunk"), Cipher::Plain.fingerprint(b"chunk"));
    assert_ne!(cipher.fingerprint(b"x"), cipher.digest(b"x"));
}

#[test]
fn a_sealed_region_is_these_bytes() {
    let key = key(7);
    let cipher = Cipher::Sealed(Arc::clone(&key));
    let plain = EncodedRegion { codec: Codec::Stored, plain_bytes: 5, payload: b"hello".to_vec() };
    let names = [cipher.fingerprint(b"hello")];
    let sealed = seal(&key, &plain, (&names, &[5]), &Stuck).unwrap();
    assert_eq!(
        hex(&sealed.payload),
        "5a4d6adcee83fda3d52debe7af987043107638958bdcee791c8f1f7cdcc51093140e94b3b83cea185505ab8e59a85fa6a2037a7f08384dc1c4406683cca7dc989b002ed199ec12534a533fabc6b97563e5946eb6972678a88f7805d040521b552a3a2847aefa40d046ba629a1c3861cd3418218e5637"
    );
    assert_eq!(decode(&cipher, &sealed).unwrap(), b"hello");
}

#[test]
fn what_is_sealed_comes_back_with_its_key_only() {
    for text in [&b"compressible ".repeat(900)[..], &blake3::hash(b"noise").as_bytes()[..]] {
        let cipher = Cipher::Sealed(key(1));
        let (encoded, names, lengths) = region(&cipher, text);
        let sealed = cipher.seal(encoded, &names, &lengths).unwrap();
        assert_eq!(sealed.codec, Codec::Sealed);
        assert_eq!(check_sealed(&sealed.payload, &names, &lengths, sealed.plain_bytes), Ok(()));
        assert_eq!(decode(&cipher, &sealed).unwrap(), text);
        assert_eq!(decode(&Cipher::Sealed(key(2)), &sealed), Err(RegionError::Opening));
        assert_eq!(decode(&Cipher::Plain, &sealed), Err(RegionError::Sealed));
        let found = |text: &[u8]| sealed.payload.windows(text.len()).any(|window| window == text);
        assert!(!found(&text[..12]), "the text is in what is sent");
    }
}

#[test]
fn what_is_not_sealed_is_refused_where_there_is_a_key() {
    let cipher = Cipher::Sealed(key(1));
    let (encoded, ..) = region(&cipher, &b"plain ".repeat(100));
    assert_eq!(decode(&cipher, &encoded), Err(RegionError::Opening));
}

#[test]
fn every_changed_byte_is_found_by_the_agent() {
    let cipher = Cipher::Sealed(key(1));
    let (encoded, names, lengths) = region(&cipher, b"some text");
    let sealed = cipher.seal(encoded, &names, &lengths).unwrap();
    // The commitment at the end is the server's to check.
    for at in 0..sealed.payload.len() - 32 {
        let mut changed = sealed.clone();
        changed.payload[at] ^= 0x40;
        assert_eq!(decode(&cipher, &changed), Err(RegionError::Opening), "byte {at}");
    }
}

#[test]
fn no_key_is_used_twice_for_different_bytes() {
    let key = key(1);
    let cipher = Cipher::Sealed(Arc::clone(&key));
    let salt = |sealed: &EncodedRegion| sealed.payload[..SALT_BYTES].to_vec();
    let mut salts = HashSet::new();
    for _ in 0..200 {
        let (encoded, names, lengths) = region(&cipher, b"the same text again and again");
        assert!(salts.insert(salt(&cipher.seal(encoded, &names, &lengths).unwrap())), "a salt came twice");
    }
    // Even when the random numbers are the same: other bytes, another way to encode them, or another table.
    let mut seen = HashSet::new();
    let text: Vec<u8> = (0..50).flat_map(|n| format!("text {n} ").into_bytes()).collect();
    let (encoded, names, lengths) = region(&cipher, &text);
    let first = seal(&key, &encoded, (&names, &lengths), &Stuck).unwrap();
    assert_eq!(first, seal(&key, &encoded, (&names, &lengths), &Stuck).unwrap());
    assert!(seen.insert(salt(&first)));
    let stored = EncodedRegion { codec: Codec::Stored, payload: text.clone(), ..encoded.clone() };
    let swapped = [names[1], names[0]];
    let (other, other_names, other_lengths) = region(&cipher, &b"tent ".repeat(50));
    for again in [
        seal(&key, &stored, (&names, &lengths), &Stuck),
        seal(&key, &encoded, (&swapped, &lengths), &Stuck),
        seal(&key, &other, (&other_names, &other_lengths), &Stuck),
    ] {
        assert!(seen.insert(salt(&again.unwrap())), "one salt for different bytes");
    }
}

#[test]
fn a_key_that_does_not_fit_is_named() {
    let (ours, other) = (Cipher::Sealed(key(1)), key(2).id().to_string());
    let mine = ours.key_id().unwrap().to_string();
    assert!(ours.check(&mine, "disk a").is_ok() && Cipher::Plain.check("", "disk a").is_ok());
    for (cipher, field, words) in [
        (&ours, other.as_str(), vec![&*mine, &*other]),
        (&Cipher::Plain, &*other, vec![&*other]),
        (&ours, "", vec![&*mine]),
    ] {
        let error = cipher.check(field, "disk a").unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Key(_)) && text.contains("disk a"), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    assert!(matches!(ours.check("nonsense", "x"), Err(ClientError::Protocol(_))));
    assert_eq!(format!("{ours:?}"), format!("Sealed(NamespaceKey {{ id: KeyId({mine}), .. }})"));
}

fn no_passphrase() -> Result<SecretBytes, ClientError> {
    panic!("no key is wrapped")
}

#[test]
fn a_key_comes_from_its_file_or_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vault.key");
    let made = create_key_file(&path).unwrap();
    assert_eq!(KeySource::File(path.clone()).cipher(&no_passphrase).unwrap().key_id(), Some(made.id()));
    let cat = KeySource::Command(format!("cat '{}'", path.display()));
    assert_eq!(cat.cipher(&no_passphrase).unwrap().key_id(), Some(made.id()));
    let again = create_key_file(&path).unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
    assert_eq!(
        KeySource::File(path).cipher(&no_passphrase).unwrap().key_id(),
        Some(made.id()),
        "it is as it was"
    );
    for (source, word) in [
        (KeySource::File(folder.path().join("none")), "there is no key file"),
        (KeySource::Command("echo secret-words".to_owned()), "is not the line of a key file"),
        (KeySource::Command("echo no key for you >&2; exit 3".to_owned()), "no key for you"),
    ] {
        let error = source.cipher(&no_passphrase).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Key(_)) && text.contains(word), "{text}");
        assert!(!text.contains("secret-words"), "{text}");
    }
}

#[test]
fn a_wrapped_key_is_opened_by_its_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, wrapped) = (folder.path().join("plain.key"), folder.path().join("wrapped.key"));
    let made = create_key_file(&plain).unwrap();
    let phrase = || Ok(SecretBytes::new(b"a long passphrase".to_vec()));
    let from = KeySource::File(plain);
    let same = create_wrapped_key_file(&wrapped, Some((&from, &no_passphrase)), &phrase().unwrap()).unwrap();
    assert_eq!(same.id(), made.id());
    let cat = KeySource::Command(format!("cat '{}'", wrapped.display()));
    for source in [KeySource::File(wrapped.clone()), cat] {
        assert_eq!(source.cipher(&phrase).unwrap().key_id(), Some(made.id()));
        let wrong = source.cipher(&|| Ok(SecretBytes::new(b"another passphrase".to_vec()))).unwrap_err();
        assert!(wrong.to_string().contains("does not open"), "{wrong}");
    }
    let again = create_wrapped_key_file(&wrapped, None, &phrase().unwrap()).unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
    let fresh = folder.path().join("fresh.key");
    let fresh = create_wrapped_key_file(&fresh, None, &phrase().unwrap()).unwrap();
    assert_ne!(fresh.id(), made.id());
}
