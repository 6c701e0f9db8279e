//! TLS: whose certificate is believed.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::address::Tls;
use crate::error::NbdError;
use crate::stream::{Stream, Timed};

/// Files of a folder of certificates, named as QEMU, nbdkit and libnbd name them.
const CA: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// Wraps a connection whose server has agreed to TLS. The handshake is made with the first bytes that follow.
pub(crate) fn start(plain: Timed, tls: &Tls) -> Result<Stream, NbdError> {
    let wrong = |error: &dyn std::fmt::Display| NbdError::Tls(error.to_string());
    let name = ServerName::try_from(tls.hostname.clone()).map_err(|error| wrong(&error))?;
    let config = Arc::new(config(&tls.certificates)?);
    let mut tls =
        StreamOwned::new(ClientConnection::new(config, name).map_err(|error| wrong(&error))?, plain);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).map_err(|error| wrong(&error))?;
    }
    Ok(Stream::Tls(Box::new(tls)))
}

/// Believes what the folder's CA signed. Presents the folder's own certificate, where it has one.
fn config(folder: &Path) -> Result<ClientConfig, NbdError> {
    let file = |name: &str| folder.join(name);
    let wrong = |name: &str, error: &dyn std::fmt::Display| {
        NbdError::Tls(format!("{}: {error}", file(name).display()))
    };
    let read = |name: &str| -> Result<Vec<CertificateDer<'static>>, NbdError> {
        let certificates = CertificateDer::pem_file_iter(file(name)).map_err(|error| wrong(name, &error))?;
        certificates.collect::<Result<_, _>>().map_err(|error| wrong(name, &error))
    };
    let mut roots = RootCertStore::empty();
    for certificate in read(CA)? {
        roots.add(certificate).map_err(|error| wrong(CA, &error))?;
    }
    if roots.is_empty() {
        return Err(wrong(CA, &"it contains no certificate"));
    }
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| NbdError::Tls(error.to_string()))?
            .with_root_certificates(roots);
    if !file(CERTIFICATE).exists() {
        return Ok(builder.with_no_client_auth());
    }
    let key = PrivateKeyDer::from_pem_file(file(KEY)).map_err(|error| wrong(KEY, &error))?;
    builder.with_client_auth_cert(read(CERTIFICATE)?, key).map_err(|error| wrong(CERTIFICATE, &error))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use tempfile::TempDir;

    use super::*;
    use crate::address::Address;
    use crate::testing::{Model, PATIENCE, disk};

    /// A CA, and a folder with its certificate, and one of a client.
    struct Pki {
        ca: CertifiedIssuer<'static, KeyPair>,
        folder: TempDir,
    }

    impl Pki {
        fn new() -> Self {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let ca = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(CA), ca.pem()).unwrap();
            Self { ca, folder }
        }

        fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
            let key = KeyPair::generate().unwrap();
            let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (parameters.signed_by(&key, &self.ca).unwrap(), key)
        }

        fn certify_client(&self) {
            let (certificate, key) = self.sign("client");
            std::fs::write(self.folder.path().join(CERTIFICATE), certificate.pem()).unwrap();
            std::fs::write(self.folder.path().join(KEY), key.serialize_pem()).unwrap();
        }

        /// A server called `model`; it asks for certificates of clients or not.
        fn server(&self, asks: bool) -> Model {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let builder = match asks {
                true => builder.with_client_cert_verifier(verifier.build().unwrap()),
                false => builder.with_no_client_auth(),
            };
            let (certificate, key) = self.sign("model");
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
            Model { tls: Some(Arc::new(config)), ..Model::of(disk(5000, 0xF0)) }
        }

        fn address(&self, hostname: &str) -> Address {
            let folder = self.folder.path().display();
            let text = format!("nbds+unix:///?socket=s&tls-certificates={folder}&tls-hostname={hostname}");
            text.parse().unwrap()
        }
    }

    #[test]
    fn a_server_is_read_over_tls_if_its_certificate_is_the_right_one() {
        let (pki, other) = (Pki::new(), Pki::new());
        let server = pki.server(false);
        let read = |address: &Address, server: &Model| {
            let mut buffer = vec![0; 5000];
            server.connect(address, PATIENCE)?.read(0, &mut buffer).map(|()| buffer)
        };
        assert_eq!(read(&pki.address("model"), &server).unwrap(), server.disk);
        assert!(matches!(read(&pki.address("other"), &server), Err(NbdError::Tls(_))), "another name");
        assert!(matches!(read(&other.address("model"), &server), Err(NbdError::Tls(_))), "another CA");
        let plain = read(&"nbd+unix:///?socket=s".parse().unwrap(), &server).unwrap_err().to_string();
        assert!(plain.contains("requires TLS; write nbds://"), "{plain}");
        let without = Model { tls: None, ..server };
        assert!(
            matches!(read(&pki.address("model"), &without), Err(NbdError::Refused { .. })),
            "no way back"
        );
        let asks = pki.server(true);
        assert!(read(&pki.address("model"), &asks).is_err(), "without a certificate");
        pki.certify_client();
        assert_eq!(read(&pki.address("model"), &asks).unwrap(), asks.disk);
    }
}
