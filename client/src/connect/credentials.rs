//! What every call carries.

use holdfast_proto::request::REQUEST_METADATA;
use holdfast_proto::version::PROTOCOL_METADATA;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::Settings;
use crate::error::ClientError;

/// Puts the token, the request id and the protocol version on every call.
#[derive(Debug, Clone)]
pub struct Credentials {
    bearer: MetadataValue<Ascii>,
    request: Option<MetadataValue<Ascii>>,
    protocol: Option<MetadataValue<Ascii>>,
}

impl Credentials {
    /// The token and request id of `settings`; the protocol version once it is negotiated.
    pub(super) fn new(settings: &Settings, protocol: Option<u32>) -> Result<Self, ClientError> {
        let mut bearer: MetadataValue<Ascii> = format!("Bearer {}", settings.token.reveal())
            .parse()
            .map_err(|_| ClientError::Usage("the token has characters that no token can have".to_owned()))?;
        bearer.set_sensitive(true);
        // An id that cannot be sent is not worth failing for.
        let request = settings.request.as_str().parse().ok();
        Ok(Self { bearer, request, protocol: protocol.map(MetadataValue::from) })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        request.metadata_mut().insert("authorization", self.bearer.clone());
        if let Some(id) = &self.request {
            request.metadata_mut().insert(REQUEST_METADATA, id.clone());
        }
        if let Some(protocol) = &self.protocol {
            request.metadata_mut().insert(PROTOCOL_METADATA, protocol.clone());
        }
        Ok(request)
    }
}

/// A channel whose calls carry credentials.
pub type AuthedChannel = InterceptedService<Channel, Credentials>;
