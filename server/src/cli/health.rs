//! `holdfast-server health`: asks the server on this machine whether it is healthy, for container engines and service
//! managers, which then need neither a shell nor curl.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use holdfast_proto::ErrorCode;
use holdfast_proto::cert_fingerprint::CertFingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::fail::Failure;
use super::out;
use crate::config::{Given, address};
use crate::tls::FINGERPRINT_FILE;

/// Limit for each step: connecting, writing, each read. A server that takes longer is not healthy.
const TIMEOUT: Duration = Duration::from_secs(4);

/// An answer is a few hundred bytes.
const ANSWER_MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// Also check whether it accepts backups, not only whether it answers
    #[arg(long)]
    ready: bool,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the repository, with the certificate that is trusted
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address on which the server answers
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    http: Option<SocketAddr>,
    /// Certificate (PEM) to trust instead of the one in the data folder
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
}

impl HealthArgs {
    fn settings(&self) -> Result<Asked, Failure> {
        let given = Given::default().with("data_dir", self.data_dir.as_ref())?.with("http", self.http)?;
        let settings = super::settings(&given, self.config.as_deref())?.settings;
        let fingerprint = settings.data_dir.join(FINGERPRINT_FILE);
        let trusted = self.tls_cert.clone().map_or(Trusted::Fingerprint(fingerprint), Trusted::Certificate);
        Ok(Asked { http: settings.http, trusted })
    }
}

/// The server to ask, and the certificate to trust.
struct Asked {
    http: SocketAddr,
    trusted: Trusted,
}

/// The file that says what the server presents.
enum Trusted {
    Certificate(PathBuf),
    /// The server's note of the certificate that it presents; the certificate's file may be newer.
    Fingerprint(PathBuf),
}

impl Trusted {
    fn read(&self) -> Result<String, Unhealthy> {
        match self {
            Self::Certificate(path) => {
                let read = CertificateDer::from_pem_file(path);
                let read = read.map_err(|source| Unhealthy::Certificate { path: path.clone(), source })?;
                Ok(CertFingerprint::of(&read).to_string())
            }
            Self::Fingerprint(path) => {
                let read = std::fs::read_to_string(path);
                let read = read.map_err(|source| Unhealthy::Fingerprint { path: path.clone(), source })?;
                Ok(read.trim().to_owned())
            }
        }
    }
}

pub(super) fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let Asked { http, trusted } = args.settings()?;
    if http.port() == 0 {
        return Err(Failure::usage("the HTTPS port was picked when the server started; pass it with --http"));
    }
    let (path, address) = (if args.ready { "/readyz" } else { "/healthz" }, reachable(http));
    match ask(address, &trusted, path) {
        Ok(answer) => {
            out::say(answer);
            Ok(ExitCode::SUCCESS)
        }
        // Container engines know 0 and 1 only.
        Err(error) => {
            Err(Failure::new(ErrorCode::Internal, format!("the server at {address} is not healthy: {error}")))
        }
    }
}

/// The address to connect to: "any address" is one to listen on only.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Why the server is not healthy.
#[derive(Debug, thiserror::Error)]
enum Unhealthy {
    #[error("cannot read the certificate in {}: {source}", path.display())]
    Certificate { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("cannot read the fingerprint in {}: {source}", path.display())]
    Fingerprint { path: PathBuf, source: io::Error },
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it answered {0}")]
    Answer(String),
}

/// The body of a successful answer.
fn ask(address: SocketAddr, trusted: &Trusted, path: &str) -> Result<String, Unhealthy> {
    let pinned = trusted.read()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Pinned { fingerprint: pinned, algorithms: provider.signature_verification_algorithms };
    let config = client_config(provider, verifier)?;
    let name = ServerName::IpAddress(address.ip().into());
    let tcp = TcpStream::connect_timeout(&address, TIMEOUT)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, tcp);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer) {
        // Closed without TLS's closing message: the answer is what has arrived.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        read => drop(read?),
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        return Ok(body.trim().to_owned());
    }
    Err(Unhealthy::Answer(format!("{status:?} {}", body.trim())))
}

fn client_config(provider: Arc<CryptoProvider>, verifier: Pinned) -> Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Trusts one certificate, which is on this machine's disk, whatever names and times are in it.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if CertFingerprint::of(end_entity).to_string() == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(
            "it presented a different certificate from the one in the data folder".to_owned(),
        ))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_reached_on_this_machine() {
        for (from, to) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.1.2.3:4", "10.1.2.3:4")]
        {
            assert_eq!(reachable(from.parse().unwrap()), to.parse().unwrap());
        }
    }
}
