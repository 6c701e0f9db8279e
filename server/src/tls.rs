//! The server's certificate: a self-signed one made at the first start, or one the administrator provides.
//!
//! `DIR/tls/key.pem` (mode 0600) is written before `cert.pem`, that before `fingerprint`. A crash between
//! leaves a key without a certificate, and the next start replaces both: no client can have pinned a
//! certificate that was never served. A certificate without its key is an error, because clients pin it, and so is a
//! fingerprint without a certificate.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use holdfast_proto::cert_fingerprint::CertFingerprint;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use parking_lot::RwLock;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::files;

/// Path of the server's own certificate, below the data folder.
pub const CERTIFICATE_FILE: &str = "tls/cert.pem";
/// The fingerprint of the certificate that is presented, whosever it is, below the data folder.
pub const FINGERPRINT_FILE: &str = "tls/fingerprint";
/// Path of the certificate's private key, below the data folder.
pub const KEY_FILE: &str = "tls/key.pem";

/// Years a self-signed certificate is valid: clients pin it, so it should outlive the hardware.
const VALID_YEARS: i32 = 10;

/// Largest PEM file read; a chain of ten certificates is under 32 KiB.
const PEM_MAX_BYTES: u64 = 1 << 20;

/// Source of a server's certificate.
#[derive(Debug, Clone, Copy)]
pub struct IdentitySource<'a> {
    /// Folder of the repository. A self-signed certificate is kept below it, and the fingerprint of either.
    pub data_dir: &'a Path,
    /// PEM files of the administrator's certificate chain and of its key; `None`: a self-signed one.
    pub provided: Option<(&'a Path, &'a Path)>,
    /// Names the self-signed certificate is valid for besides this machine's own.
    pub names: &'a [String],
}

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is not usable PEM: {message}", path.display())]
    Pem { path: PathBuf, message: String },
    #[error(
        "{} exists but its key {} does not; put the key back, or remove the certificate to get a new one (agents must then log in again)",
        certificate.display(), key.display()
    )]
    KeyMissing { certificate: PathBuf, key: PathBuf },
    #[error(
        "{} is missing, and agents trust the certificate that {} names: put it back, from a snapshot for example; or remove that \
         file as well to get a new certificate, with which all agents must log in again",
        certificate.display(), fingerprint.display()
    )]
    CertificateMissing { certificate: PathBuf, fingerprint: PathBuf },
    #[error("certificate {} and key {} cannot be used together: {source}", certificate.display(), key.display())]
    Mismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
    #[error("cannot make a certificate for {names:?}: {source}")]
    Generate { names: Vec<String>, source: rcgen::Error },
}

/// A certificate chain with its key.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    certificate_path: PathBuf,
    key_path: PathBuf,
    /// Fingerprint of the first certificate.
    pub fingerprint: CertFingerprint,
    /// Set if it was made by this start.
    pub created: bool,
}

impl Identity {
    /// Loads the certificate of `source`, making a self-signed one when there is none. `year` is the current
    /// one. Keeps `DIR/tls/fingerprint` up to date.
    ///
    /// # Errors
    /// [`TlsError`], naming the file.
    pub fn load_or_create(source: &IdentitySource<'_>, year: i32) -> Result<Self, TlsError> {
        let folder = source.data_dir.join("tls");
        files::create_private_folder(&folder)
            .map_err(|source| TlsError::Write { path: folder.clone(), source })?;
        let identity = match source.provided {
            Some((certificate, key)) => Self::read(certificate, key)?,
            None => Self::self_signed(&folder, source.names, year)?,
        };
        identity.note_fingerprint(source.data_dir)?;
        Ok(identity)
    }

    /// Reads the identity that `source` has now.
    fn find(source: &IdentitySource<'_>) -> Result<Self, TlsError> {
        match source.provided {
            Some((certificate, key)) => Self::read(certificate, key),
            None => Self::read(&source.data_dir.join(CERTIFICATE_FILE), &source.data_dir.join(KEY_FILE)),
        }
    }

    fn note_fingerprint(&self, data_dir: &Path) -> Result<(), TlsError> {
        let path = data_dir.join(FINGERPRINT_FILE);
        let line = format!("{}\n", self.fingerprint);
        if fs::read(&path).ok().as_deref() != Some(line.as_bytes()) {
            write(&path, line.as_bytes(), files::MODE_PUBLIC)?;
        }
        Ok(())
    }

    fn self_signed(folder: &Path, extra_names: &[String], year: i32) -> Result<Self, TlsError> {
        let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        if certificate.exists() {
            if !key.exists() {
                return Err(TlsError::KeyMissing { certificate, key });
            }
            return Self::read(&certificate, &key);
        }
        // It is written last: a crash of the first start leaves none.
        let fingerprint = folder.join("fingerprint");
        if fingerprint.exists() {
            return Err(TlsError::CertificateMissing { certificate, fingerprint });
        }
        let (certificate_pem, key_pem) = make_self_signed(&names(extra_names), year)?;
        write(&key, key_pem.as_bytes(), files::MODE_SECRET)?;
        write(&certificate, certificate_pem.as_bytes(), files::MODE_PUBLIC)?;
        Ok(Self { created: true, ..Self::read(&certificate, &key)? })
    }

    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let bad = |path: &Path, message: String| TlsError::Pem { path: path.to_path_buf(), message };
        let chain = CertificateDer::pem_slice_iter(&read_pem(certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad(certificate, error.to_string()))?;
        let first = chain.first().ok_or_else(|| bad(certificate, "it contains no certificate".into()))?;
        Ok(Self {
            fingerprint: CertFingerprint::of(first),
            key: PrivateKeyDer::from_pem_slice(&read_pem(key)?)
                .map_err(|error| bad(key, error.to_string()))?,
            chain,
            certificate_path: certificate.to_path_buf(),
            key_path: key.to_path_buf(),
            created: false,
        })
    }

    /// End of the first certificate's validity, in milliseconds since the Unix epoch; `None` when it does not say in a
    /// way this build reads.
    pub fn expires_ms(&self) -> Option<i64> {
        self.chain.first().and_then(|certificate| not_after_ms(certificate))
    }
}

/// Names in a self-signed certificate: every usual name of this machine, and `extra`.
fn names(extra: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for name in std::iter::once(&host).chain(extra) {
        if !name.is_empty() && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn make_self_signed(names: &[String], year: i32) -> Result<(String, String), TlsError> {
    let make = || {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Holdfast backup server");
        // From the start of this year, so that agents whose clock is behind accept it.
        params.not_before = rcgen::date_time_ymd(year, 1, 1);
        params.not_after = rcgen::date_time_ymd(year.saturating_add(VALID_YEARS), 12, 31);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok((certificate.pem(), key.serialize_pem()))
    };
    make().map_err(|source| TlsError::Generate { names: names.to_vec(), source })
}

/// Returns true if a self-signed certificate can be valid for `name`.
pub fn is_certificate_name(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || rustls_pki_types::DnsName::try_from(name).is_ok()
}

fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = |source| TlsError::Read { path: path.to_path_buf(), source };
    if fs::metadata(path).map_err(read)?.len() > PEM_MAX_BYTES {
        return Err(TlsError::Pem {
            path: path.to_path_buf(),
            message: format!("it is larger than {PEM_MAX_BYTES} bytes"),
        });
    }
    fs::read(path).map_err(read)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
    files::write_durably(path, bytes, mode)
        .map_err(|source| TlsError::Write { path: path.to_path_buf(), source })
}

#[derive(Debug)]
struct Presented {
    key: Arc<CertifiedKey>,
    fingerprint: CertFingerprint,
    expires_ms: Option<i64>,
}

/// The certificate that listeners present, exchanged while the server runs.
#[derive(Debug)]
pub struct Certificate(RwLock<Presented>);

impl Certificate {
    /// Presents `identity`.
    ///
    /// # Errors
    /// [`TlsError::Mismatch`] when key and certificate do not belong together.
    pub fn of(identity: &Identity) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(presented(identity)?))))
    }

    /// Fingerprint that agents pin.
    pub fn fingerprint(&self) -> CertFingerprint {
        self.0.read().fingerprint
    }

    #[cfg(test)]
    fn chain_len(&self) -> usize {
        self.0.read().key.cert.len()
    }

    /// As [`Identity::expires_ms`].
    pub fn expires_ms(&self) -> Option<i64> {
        self.0.read().expires_ms
    }

    /// Presents what `source` has now, from the next connection on, and logs that it does. What cannot be used is logged,
    /// and the one before stays.
    pub fn reload(&self, source: &IdentitySource<'_>) {
        let exchange = || -> Result<(), TlsError> {
            let identity = Identity::find(source)?;
            // The whole chain: what signed a certificate may be renewed without it.
            if identity.chain == self.0.read().key.cert {
                return Ok(());
            }
            // (S14) Nothing half-changed is noted or presented.
            let presented = presented(&identity)?;
            identity.note_fingerprint(source.data_dir)?;
            *self.0.write() = presented;
            tracing::info!(fingerprint = %identity.fingerprint, "another certificate, or another chain of it, is presented from now on");
            Ok(())
        };
        if let Err(error) = exchange() {
            tracing::warn!(%error, "the certificate cannot be exchanged; the one before is presented");
        }
    }

    /// A TLS 1.2 and 1.3 server offering `alpn`.
    ///
    /// # Errors
    /// [`TlsError::Setup`].
    pub fn server_config(self: &Arc<Self>, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder.map_err(TlsError::Setup)?.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}

fn presented(identity: &Identity) -> Result<Presented, TlsError> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = CertifiedKey::from_der(identity.chain.clone(), identity.key.clone_key(), &provider);
    let key = key.map_err(|source| TlsError::Mismatch {
        certificate: identity.certificate_path.clone(),
        key: identity.key_path.clone(),
        source,
    })?;
    let (fingerprint, expires_ms) = (identity.fingerprint, identity.expires_ms());
    Ok(Presented { key: Arc::new(key), fingerprint, expires_ms })
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate in DER, in milliseconds since the Unix epoch: the one field of it that the server itself must
/// know (RFC 5280, section 4.1).
fn not_after_ms(certificate: &[u8]) -> Option<i64> {
    let (_, outer, _) = element(certificate)?;
    let (_, mut fields, _) = element(outer)?;
    let (tag, _, after_version) = element(fields)?;
    if tag == VERSION {
        fields = after_version;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (tag, validity, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    time_ms(tag, std::str::from_utf8(text).ok()?)
}

/// Tag and contents of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // A length of up to four bytes: certificates are kilobytes.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time_ms(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let digits = match (tag, digits.len()) {
        // Years 50 to 99 are of the twentieth century.
        (UTC_TIME, 12) if digits >= "50" => format!("19{digits}"),
        (UTC_TIME, 12) => format!("20{digits}"),
        (GENERALIZED_TIME, 14) => digits.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<i8>().ok();
    let year: i16 = digits.get(..4)?.parse().ok()?;
    let (month, day) = (part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}
