//! Results of reading restore points back, as agents report them.

use serde::{Deserialize, Serialize};

use crate::Fingerprint;
use crate::region::sealed::Commitment;

/// The result of reading a restore point back
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VerificationReport {
    /// Every byte was read and matched its fingerprint
    pub ok: bool,
    /// Which disk, and what is wrong with it; at most 2000 bytes
    #[serde(default)]
    pub detail: String,
    /// Read and found sound, without zeros
    pub bytes: u64,
    /// Extents whose recorded digest is not that of their bytes: at most 256. The server reads them itself before it believes it
    #[serde(default)]
    pub false_digests: Vec<FalseDigest>,
}

/// An extent whose recorded digest is not that of its bytes
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FalseDigest {
    pub disk: String,
    pub extent: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConfirmedDigests {
    /// Of false_digests: these digests are not used again
    pub confirmed: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FalseChunks {
    /// At most 128
    pub chunks: Vec<FalseChunk>,
}

/// A chunk of a restore point that is not what its fingerprint says
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FalseChunk {
    pub disk: String,
    /// An extent that has it
    pub extent: u64,
    /// 64 hexadecimal digits
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub fingerprint: Fingerprint,
    /// Commitment of the region it came in: 64 hexadecimal digits
    #[serde(with = "commitment")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub commitment: Commitment,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RegionsSentAgain {
    /// Regions that are to be sent again because of the report, and were not before
    pub regions: u32,
}

/// A commitment in JSON: as long as a fingerprint, and written like one.
mod commitment {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::{Commitment, Fingerprint};

    pub(super) fn serialize<S: Serializer>(
        commitment: &Commitment,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Fingerprint::from_bytes(*commitment).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Commitment, D::Error> {
        Fingerprint::deserialize(deserializer).map(|fingerprint| *fingerprint.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_hexadecimal_digits() {
        let chunk = FalseChunk {
            disk: "a".into(),
            extent: 3,
            fingerprint: Fingerprint::of(b""),
            commitment: [7; 32],
        };
        let json = serde_json::to_value(&chunk).unwrap();
        assert_eq!(json["fingerprint"], Fingerprint::of(b"").to_string());
        assert_eq!(json["commitment"], "07".repeat(32));
        assert_eq!(serde_json::from_value::<FalseChunk>(json.clone()).unwrap(), chunk);
        let mut short = json;
        short["commitment"] = "07".into();
        assert!(serde_json::from_value::<FalseChunk>(short).is_err());
    }
}
