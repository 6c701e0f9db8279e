use std::os::unix::fs::PermissionsExt as _;

use rcgen::date_time_ymd;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

use super::*;

/// A self-signed certificate below `data_dir`.
fn source(data_dir: &Path) -> IdentitySource<'_> {
    IdentitySource { data_dir, provided: None, names: &[] }
}

/// Returns true if a client that trusts `identity` as a root accepts it under `name`.
fn accepted_as(identity: &Identity, name: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(identity.chain[0].clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server =
        ServerConnection::new(Certificate::of(identity).unwrap().server_config(&[b"h2"]).unwrap()).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        if server.process_new_packets().is_err() {
            return false;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        if client.process_new_packets().is_err() {
            return false;
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            return true;
        }
    }
    false
}

#[test]
fn made_once_with_a_private_key_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let first = Identity::load_or_create(&source, 2026).unwrap();
    assert!(first.created);
    let tls = folder.path().join("tls");
    let mode = |name: &str| fs::metadata(tls.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("key.pem"), 0o600);
    assert_eq!(mode("cert.pem"), 0o644);
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap(), format!("{}\n", first.fingerprint));

    let second = Identity::load_or_create(&source, 2027).unwrap();
    assert!(!second.created);
    assert_eq!(second.fingerprint, first.fingerprint);
}

#[test]
fn valid_for_this_machine_and_for_extra_names() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["backup.example.org".to_owned(), "192.0.2.7".to_owned()];
    let source = IdentitySource { names: &names, ..source(folder.path()) };
    let identity = Identity::load_or_create(&source, 2026).unwrap();
    for name in ["localhost", "127.0.0.1", "::1", "backup.example.org", "192.0.2.7"] {
        assert!(accepted_as(&identity, name), "{name}");
    }
    assert!(!accepted_as(&identity, "elsewhere.example.org"));
}

#[test]
fn a_provided_certificate_is_served_and_its_fingerprint_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = make_self_signed(&["mine.example.org".into()], 2026).unwrap();
    let (cert_path, key_path) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    fs::write(&cert_path, certificate).unwrap();
    fs::write(&key_path, key).unwrap();
    let source = IdentitySource { provided: Some((&cert_path, &key_path)), ..source(folder.path()) };
    let identity = Identity::load_or_create(&source, 2026).unwrap();
    assert!(accepted_as(&identity, "mine.example.org"));
    let tls = folder.path().join("tls");
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap().trim(), identity.fingerprint.to_string());
    assert!(!tls.join("key.pem").exists());

    // A key of another certificate is refused before a client connects.
    fs::write(&key_path, make_self_signed(&["x".into()], 2026).unwrap().1).unwrap();
    let identity = Identity::load_or_create(&source, 2026).unwrap();
    assert!(matches!(Certificate::of(&identity), Err(TlsError::Mismatch { .. })));
}

#[test]
fn leftovers_of_a_crash_and_lost_keys() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let tls = folder.path().join("tls");
    fs::create_dir_all(&tls).unwrap();
    // The key was written, the certificate not yet.
    fs::write(tls.join("key.pem"), "half a key").unwrap();
    let first = Identity::load_or_create(&source, 2026).unwrap();
    assert!(first.created);
    // The fingerprint was not written yet.
    fs::remove_file(tls.join("fingerprint")).unwrap();
    Identity::load_or_create(&source, 2026).unwrap();
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap().trim(), first.fingerprint.to_string());
    // A lost certificate must not silently change what agents pinned.
    let pem = fs::read(tls.join("cert.pem")).unwrap();
    fs::remove_file(tls.join("cert.pem")).unwrap();
    assert!(matches!(Identity::load_or_create(&source, 2026), Err(TlsError::CertificateMissing { .. })));
    fs::write(tls.join("cert.pem"), pem).unwrap();
    assert_eq!(Identity::load_or_create(&source, 2026).unwrap().fingerprint, first.fingerprint);
    // Nor must a lost key.
    fs::remove_file(tls.join("key.pem")).unwrap();
    assert!(matches!(Identity::load_or_create(&source, 2026), Err(TlsError::KeyMissing { .. })));
    // Garbage is named.
    fs::write(tls.join("key.pem"), "garbage").unwrap();
    let message = Identity::load_or_create(&source, 2026).unwrap_err().to_string();
    assert!(message.contains("key.pem"), "{message}");
}

/// (S14) From the next connection on, and never one that is no use.
#[test]
fn another_certificate_is_presented_once_its_file_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let first = Identity::load_or_create(&source, 2026).unwrap();
    let certificate = Certificate::of(&first).unwrap();
    let noted = || fs::read_to_string(folder.path().join(FINGERPRINT_FILE)).unwrap().trim().to_owned();
    certificate.reload(&source);
    assert_eq!(certificate.fingerprint(), first.fingerprint);
    let other = tempfile::tempdir().unwrap();
    let second = Identity::load_or_create(&self::source(other.path()), 2020).unwrap();
    let before = other.path().join("before.pem");
    fs::copy(folder.path().join(CERTIFICATE_FILE), &before).unwrap();
    // Half of a change: the key of the one before.
    fs::copy(other.path().join(CERTIFICATE_FILE), folder.path().join(CERTIFICATE_FILE)).unwrap();
    certificate.reload(&source);
    assert_eq!((certificate.fingerprint(), noted()), (first.fingerprint, first.fingerprint.to_string()));
    fs::copy(other.path().join(KEY_FILE), folder.path().join(KEY_FILE)).unwrap();
    certificate.reload(&source);
    assert_eq!((certificate.fingerprint(), noted()), (second.fingerprint, second.fingerprint.to_string()));
    assert_eq!(certificate.expires_ms(), second.expires_ms());
    assert_ne!(second.expires_ms(), first.expires_ms());
    // Another certificate that signed it: its own stays the same.
    let path = folder.path().join(CERTIFICATE_FILE);
    let chain = format!("{}{}", fs::read_to_string(&path).unwrap(), fs::read_to_string(&before).unwrap());
    fs::write(&path, chain).unwrap();
    certificate.reload(&source);
    assert_eq!(certificate.fingerprint(), second.fingerprint);
    assert_eq!(certificate.chain_len(), 2);
}

fn ending(year: i32) -> Vec<u8> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(1999, 1, 1);
    params.not_after = date_time_ymd(year, 6, 15);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[test]
fn both_ways_to_write_a_time() {
    assert_eq!(not_after_ms(&ending(2031)), Some(ms("2031-06-15T00:00:00Z")));
    assert_eq!(not_after_ms(&ending(2120)), Some(ms("2120-06-15T00:00:00Z")));
    assert_eq!(not_after_ms(&ending(2001)), Some(ms("2001-06-15T00:00:00Z")));
    assert_eq!(time_ms(UTC_TIME, "991231235959Z"), Some(ms("1999-12-31T23:59:59Z")));
}

#[test]
fn what_is_cut_or_spoilt_says_nothing_and_does_no_harm() {
    let whole = ending(2031);
    for length in 0..60 {
        assert_eq!(not_after_ms(&whole[..length]), None, "{length} bytes");
    }
    for place in 0..whole.len() {
        let mut spoilt = whole.clone();
        spoilt[place] ^= 0xff;
        let _any = not_after_ms(&spoilt);
    }
}
