//! Trust in servers: the one with a pinned certificate, or those whose certificate a CA signed.
//!
//! Pinning only decides whether a certificate is the right one. The handshake's signature is always verified,
//! so presenting a certificate without having its key gains nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::address::ServerAddress;
use holdfast_proto::cert_fingerprint::CertFingerprint;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::ConnectError;

/// TCP connect and TLS handshake together take at most this long; a server at its limit may need some of it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Rule by which the server's certificate is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// A server with this certificate.
    Pinned(CertFingerprint),
    /// A CA in this PEM file signed it, for the host connected to.
    Ca(PathBuf),
    /// Any: only to show it to a person, who decides. Nothing secret may be sent.
    Inspect,
}

/// Looks at the certificate, remembers it, and judges it.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    ca: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    seen: Mutex<Option<CertFingerprint>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let got = CertFingerprint::of(end_entity);
        *self.seen.lock() = Some(got);
        match (&self.trust, &self.ca) {
            (Trust::Inspect, _) => Ok(ServerCertVerified::assertion()),
            (Trust::Pinned(expected), _) if *expected == got => Ok(ServerCertVerified::assertion()),
            (Trust::Ca(_), Some(ca)) => {
                ca.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            (Trust::Pinned(_) | Trust::Ca(_), _) => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes TLS connections to one server under one trust.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    server: ServerAddress,
    trust: Trust,
    ca: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    /// Duration of the fastest TCP handshake.
    rtt: Arc<Mutex<Option<Duration>>>,
}

impl Dialer {
    /// Reads the CA file, if there is one.
    pub(crate) fn new(server: ServerAddress, trust: Trust) -> Result<Self, ConnectError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let ca = match &trust {
            Trust::Ca(path) => Some(read_ca(path, &provider)?),
            Trust::Pinned(_) | Trust::Inspect => None,
        };
        Ok(Self { server, trust, ca, provider, rtt: Arc::default() })
    }

    /// Returns the server that it calls.
    pub(crate) const fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// A round trip to the server: what the fastest TCP handshake took, of all that this dialer and its clones made.
    /// `None` before the first.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        *self.rtt.lock()
    }

    /// Connects, makes the handshake and judges the certificate.
    pub(crate) async fn dial(&self) -> Result<(TlsStream<TcpStream>, CertFingerprint), ConnectError> {
        let server = self.server.to_string();
        tokio::time::timeout(HANDSHAKE_TIMEOUT, self.dial_slowly())
            .await
            .unwrap_or(Err(ConnectError::Timeout { server, seconds: HANDSHAKE_TIMEOUT.as_secs() }))
    }

    async fn dial_slowly(&self) -> Result<(TlsStream<TcpStream>, CertFingerprint), ConnectError> {
        let server = self.server.to_string();
        let tls = |reason: String| ConnectError::Tls { server: server.clone(), reason };
        let verifier = Arc::new(Verifier {
            trust: self.trust.clone(),
            ca: self.ca.clone(),
            provider: Arc::clone(&self.provider),
            seen: Mutex::new(None),
        });
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(self.server.host().to_owned()).map_err(|e| tls(e.to_string()))?;
        let unreachable = |source: std::io::Error| ConnectError::Unreachable {
            server: server.clone(),
            source: Arc::new(source),
        };
        let tcp = self.connect().await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        let seen = *verifier.seen.lock();
        match (handshake, seen) {
            (Ok(stream), Some(got)) => Ok((stream, got)),
            (Ok(_), None) => Err(tls("the server presented no certificate".to_owned())),
            (Err(error), got) => Err(self.judged(got, &error).unwrap_or_else(|| tls(error.to_string()))),
        }
    }

    /// A TCP connection to the first of the server's addresses that answers. Only the handshake is timed: looking up
    /// the name may take longer than any round trip.
    async fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in tokio::net::lookup_host((self.server.host(), self.server.port())).await? {
            let begun = Instant::now();
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    let took = begun.elapsed();
                    let mut rtt = self.rtt.lock();
                    *rtt = Some(rtt.map_or(took, |rtt| rtt.min(took)));
                    return Ok(tcp);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The error to report if the certificate ended the handshake.
    fn judged(&self, got: Option<CertFingerprint>, error: &std::io::Error) -> Option<ConnectError> {
        let server = self.server.to_string();
        let about_certificate =
            error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).is_some_and(|error| {
                matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::General(_))
            });
        match (&self.trust, got) {
            (Trust::Pinned(expected), Some(got)) if *expected != got => {
                Some(ConnectError::WrongCertificate { server, expected: *expected, got })
            }
            (Trust::Ca(path), Some(got)) if about_certificate => Some(ConnectError::Untrusted {
                server,
                ca: path.display().to_string(),
                got: got.to_string(),
                reason: error.to_string(),
            }),
            _ => None,
        }
    }
}

fn read_ca(
    path: &std::path::Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, ConnectError> {
    let wrong = |reason: String| ConnectError::CaFile { path: path.display().to_string(), reason };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it contains no certificate".to_owned()));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests;
