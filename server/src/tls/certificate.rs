//! The certificate that is presented, exchanged while the server runs.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{CertificateFingerprint, Identity, IdentitySource, TlsError};

#[derive(Debug)]
struct Presented {
    key: Arc<CertifiedKey>,
    fingerprint: CertificateFingerprint,
    expires_ms: Option<i64>,
}

/// The certificate that listeners present.
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

    /// Which agents pin.
    pub fn fingerprint(&self) -> CertificateFingerprint {
        self.0.read().fingerprint
    }

    #[cfg(test)]
    pub(super) fn chain_len(&self) -> usize {
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
