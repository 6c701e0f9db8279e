use std::os::unix::fs::PermissionsExt as _;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

use super::*;
use crate::config::{Layer, resolve};

fn settings(folder: &Path, change: impl FnOnce(&mut Layer)) -> Settings {
    let mut layer = Layer { data_dir: Some(folder.join("data")), ..Layer::default() };
    change(&mut layer);
    resolve(&layer, None, &|_| None).unwrap().settings
}

/// Whether a client that trusts `identity` as a root accepts it under `name`.
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
    let mut server = ServerConnection::new(identity.server_config(&[b"h2"]).unwrap()).unwrap();
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
    let settings = settings(folder.path(), |_| {});
    let first = Identity::load_or_create(&settings, 2026).unwrap();
    assert!(first.created);
    let tls = settings.data_dir.join("tls");
    let mode = |name: &str| fs::metadata(tls.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("key.pem"), 0o600);
    assert_eq!(mode("cert.pem"), 0o644);
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap(), format!("{}\n", first.fingerprint));

    let second = Identity::load_or_create(&settings, 2027).unwrap();
    assert!(!second.created);
    assert_eq!(second.fingerprint, first.fingerprint);
}

#[test]
fn answers_to_this_machine_and_to_extra_names() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), |layer| {
        layer.tls_names = Some(vec!["backup.example.org".into(), "192.0.2.7".into()]);
    });
    let identity = Identity::load_or_create(&settings, 2026).unwrap();
    for name in ["localhost", "127.0.0.1", "::1", "backup.example.org", "192.0.2.7"] {
        assert!(accepted_as(&identity, name), "{name}");
    }
    assert!(!accepted_as(&identity, "elsewhere.example.org"));
}

#[test]
fn own_certificate_is_served_and_its_fingerprint_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(&["mine.example.org".into()], 2026).unwrap();
    let (cert_path, key_path) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    fs::write(&cert_path, certificate).unwrap();
    fs::write(&key_path, key).unwrap();
    let settings = settings(folder.path(), |layer| {
        layer.tls_cert = Some(cert_path.clone());
        layer.tls_key = Some(key_path.clone());
    });
    let identity = Identity::load_or_create(&settings, 2026).unwrap();
    assert!(accepted_as(&identity, "mine.example.org"));
    let tls = settings.data_dir.join("tls");
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap().trim(), identity.fingerprint.to_string());
    assert!(!tls.join("key.pem").exists());

    // A key of another certificate is refused before anybody connects.
    fs::write(&key_path, self_signed(&["x".into()], 2026).unwrap().1).unwrap();
    let identity = Identity::load_or_create(&settings, 2026).unwrap();
    assert!(matches!(identity.server_config(&[]), Err(TlsError::Mismatch { .. })));
}

#[test]
fn leftovers_of_a_crash_and_lost_keys() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), |_| {});
    let tls = settings.data_dir.join("tls");
    fs::create_dir_all(&tls).unwrap();
    // The key was written, the certificate not yet.
    fs::write(tls.join("key.pem"), "half a key").unwrap();
    let first = Identity::load_or_create(&settings, 2026).unwrap();
    assert!(first.created);
    // The fingerprint was not written yet.
    fs::remove_file(tls.join("fingerprint")).unwrap();
    Identity::load_or_create(&settings, 2026).unwrap();
    assert_eq!(fs::read_to_string(tls.join("fingerprint")).unwrap().trim(), first.fingerprint.to_string());
    // A lost key must not silently change what agents pinned.
    fs::remove_file(tls.join("key.pem")).unwrap();
    assert!(matches!(Identity::load_or_create(&settings, 2026), Err(TlsError::KeyMissing { .. })));
    // Garbage is named.
    fs::write(tls.join("key.pem"), "garbage").unwrap();
    let message = Identity::load_or_create(&settings, 2026).unwrap_err().to_string();
    assert!(message.contains("key.pem"), "{message}");
}
