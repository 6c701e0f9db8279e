//! The way to the server, as the profile says it now.

use super::LayersSource;
use crate::connect::Settings;
use crate::connect::layers::Layers;
use crate::end_to_end::Cipher;
use crate::error::ClientError;

/// The profile as it is now: joining again takes effect with the next attempt.
pub(super) struct Reached {
    pub(super) settings: Settings,
    pub(super) namespace: String,
    pub(super) cipher: Cipher,
}

impl Reached {
    /// Blocks: a command may give the namespace's key.
    pub(super) fn new(layers: &LayersSource) -> Result<Self, ClientError> {
        let layers = layers.load()?;
        Ok(Self { settings: layers.settings()?, namespace: layers.namespace(), cipher: cipher(&layers)? })
    }
}

fn cipher(layers: &Layers) -> Result<Cipher, ClientError> {
    let Some(source) = layers.namespace_key()? else { return Ok(Cipher::Plain) };
    source.cipher(&|| {
        layers.namespace_key_passphrase()?.ok_or_else(|| {
            let text = "the namespace's key is wrapped by a passphrase, which no one is there to type: set \
                        namespace_key_passphrase_file in the profile";
            ClientError::Key(text.to_owned())
        })
    })
}
