use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

struct Server {
    address: ServerAddress,
    fingerprint: CertFingerprint,
    ca_pem: String,
}

/// A TLS server on a free port whose certificate, for `localhost`, is signed by a CA of its own. With
/// `stolen` it shows the certificate but signs with another key.
async fn serve(stolen: bool) -> Server {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let signing = if stolen { KeyPair::generate().unwrap() } else { key };
    let der = provider.key_provider.load_private_key(signing.serialize_der().try_into().unwrap()).unwrap();
    let certified = Arc::new(rustls::sign::CertifiedKey::new(vec![leaf.der().clone()], der));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(tcp).await });
        }
    });
    Server {
        address: format!("localhost:{port}").parse().unwrap(),
        fingerprint: CertFingerprint::of(leaf.der()),
        ca_pem: ca.pem(),
    }
}

async fn dial(server: &ServerAddress, trust: Trust) -> Result<CertFingerprint, ConnectError> {
    Dialer::new(server.clone(), trust)?.dial().await.map(|(_, fingerprint)| fingerprint)
}

#[tokio::test]
async fn the_pinned_certificate_is_accepted_and_shown() {
    let server = serve(false).await;
    let pinned = Trust::Pinned(server.fingerprint);
    assert_eq!(dial(&server.address, pinned).await.unwrap(), server.fingerprint);
    assert_eq!(dial(&server.address, Trust::Inspect).await.unwrap(), server.fingerprint);
}

#[tokio::test]
async fn a_wrong_certificate_names_both_fingerprints() {
    let server = serve(false).await;
    let expected = CertFingerprint::of(b"another");
    let error = dial(&server.address, Trust::Pinned(expected)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&expected.to_string()) && text.contains(&server.fingerprint.to_string()), "{text}");
    assert_eq!((error.exit_code(), error.is_unreachable()), (4, false));
}

#[tokio::test]
async fn presenting_a_certificate_without_its_key_gains_nothing() {
    let server = serve(true).await;
    let error = dial(&server.address, Trust::Pinned(server.fingerprint)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
}

#[tokio::test]
async fn a_ca_vouches_for_its_own_only() {
    let (server, other) = (serve(false).await, serve(false).await);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Trust::Ca(path)
    };
    let right = write("right.pem", &server.ca_pem);
    let wrong = write("wrong.pem", &other.ca_pem);
    let empty = write("empty.pem", "nothing here");
    assert_eq!(dial(&server.address, right).await.unwrap(), server.fingerprint);
    let error = dial(&server.address, wrong).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted { .. }), "{error}");
    assert!(error.to_string().contains(&server.fingerprint.to_string()), "{error}");
    assert!(matches!(dial(&server.address, empty).await, Err(ConnectError::CaFile { .. })));
}

#[tokio::test]
async fn a_closed_port_is_not_a_wrong_certificate() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let address: ServerAddress = free.to_string().parse().unwrap();
    let error = dial(&address, Trust::Inspect).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    assert_eq!(error.exit_code(), 9);
}

#[tokio::test]
async fn a_server_without_tls_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: ServerAddress = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = dial(&address, Trust::Inspect).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
}
