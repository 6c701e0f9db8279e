//! The catalog's rows as messages of the protocol: the only file of this crate that names both.

use holdfast_proto::v1;

use crate::rows::ChunkerParams;

impl From<v1::ChunkerParams> for ChunkerParams {
    fn from(params: v1::ChunkerParams) -> Self {
        let v1::ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } =
            params;
        Self { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes }
    }
}

impl From<ChunkerParams> for v1::ChunkerParams {
    fn from(params: ChunkerParams) -> Self {
        let ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } = params;
        Self { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunker_parameters_survive_both_ways() {
        let params = holdfast_proto::chunker::params();
        assert_eq!(v1::ChunkerParams::from(ChunkerParams::from(params.clone())), params);
    }
}
