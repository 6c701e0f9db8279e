//! Reading a blob, by ranges.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ChecksumMode;
use holdfast_volume::{Blob, BlobName, VolumeError};

use crate::client::{RequestKind, S3Client};
use crate::error::{Answer, Call, Intent, answer_of, classify, refused};

/// Defects of the body of an answer.
#[derive(Debug)]
enum Broken {
    /// It ended early, or its checksum is wrong.
    Stream(String),
    /// It is longer than the requested range.
    TooLong,
}

/// Reads ranges of an object (see [`Blob`]).
#[derive(Debug)]
pub(crate) struct S3Blob {
    pub(crate) client: Arc<S3Client>,
    pub(crate) name: BlobName,
    pub(crate) key: String,
    pub(crate) len: u64,
    /// Entity tag: only this object is read, and no other of its name.
    pub(crate) tag: Option<String>,
    /// Storage class of the object, for messages.
    pub(crate) class: Option<String>,
}

impl S3Blob {
    fn fetch(&self, offset: u64, wanted: u64) -> Result<Vec<u8>, VolumeError> {
        let mut call = self.client.call("read", &self.name, Intent::Read);
        call.class.clone_from(&self.class);
        let mut request = self
            .client
            .sdk
            .get_object()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .set_if_match(self.tag.clone());
        if wanted == self.len {
            // The service's checksum covers the whole object, so it can be compared only here.
            request = request.checksum_mode(ChecksumMode::Enabled);
        } else {
            request = request.range(format!("bytes={offset}-{}", offset + (wanted - 1)));
        }
        let length =
            usize::try_from(wanted).map_err(|_| out_of_range(&self.name, self.len, offset, wanted))?;
        let got = self.client.wait(RequestKind::Get, &call, wanted, async move {
            match request.send().await {
                Ok(output) => Ok(collect(output.body, length).await),
                Err(error) => Err(Box::new(error)),
            }
        })?;
        let got = got.map_err(|error| {
            self.client.counts.failed_one();
            match answer_of(error.as_ref()) {
                Answer::Refused { status: 416, .. } => out_of_range(&self.name, self.len, offset, wanted),
                _ => refused(&call, *error),
            }
        })?;
        match got {
            Ok(bytes) => {
                self.client.counts.received(wanted);
                Ok(bytes)
            }
            Err(broken) => Err(self.broken(&call, broken, wanted)),
        }
    }

    fn broken(&self, call: &Call, broken: Broken, wanted: u64) -> VolumeError {
        match broken {
            Broken::Stream(why) => classify(call, &Answer::None, None, why.into()),
            Broken::TooLong => VolumeError::BadAnswer {
                action: call.action,
                name: self.name.to_string(),
                found: format!("more than the {wanted} bytes that were asked for"),
            },
        }
    }
}

fn out_of_range(name: &BlobName, len: u64, offset: u64, wanted: u64) -> VolumeError {
    VolumeError::OutOfRange { name: name.clone(), len, offset, wanted }
}

/// Collects exactly `wanted` bytes, using no more memory than that.
async fn collect(mut body: ByteStream, wanted: usize) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::with_capacity(wanted);
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| Broken::Stream(error.to_string()))?;
        if bytes.len() + piece.len() > wanted {
            return Err(Broken::TooLong);
        }
        bytes.extend_from_slice(&piece);
    }
    if bytes.len() < wanted {
        return Err(Broken::Stream(format!("it ended after {} of {wanted} bytes", bytes.len())));
    }
    Ok(bytes)
}

impl Blob for S3Blob {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(out_of_range(&self.name, self.len, offset, wanted));
        }
        if wanted > 0 {
            buffer.copy_from_slice(&self.fetch(offset, wanted)?);
        }
        Ok(())
    }
}
