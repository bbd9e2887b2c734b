//! Whether a period's GEMMs are a forward pass alone, as where a model answers requests: then it is a token or a batch,
//! and no step of training.
//!
//! A forward pass multiplies weights by activations, so all its GEMMs have the number of tokens as one of their
//! outer extents. Training also sums over the tokens: for the gradients of the weights.

use std::collections::HashSet;

use crate::launches::{Kind, Launch};

/// Fewer different GEMMs say nothing.
const FEWEST: usize = 3;

/// Of all launches of a period.
pub(super) fn is_forward_only<'a>(launches: impl Iterator<Item = &'a Launch>) -> bool {
    let gemms: HashSet<[u32; 3]> = launches
        .filter(|launch| launch.kind == Kind::Gemm && launch.extents != Launch::UNKNOWN)
        .map(|launch| launch.extents)
        .collect();
    let Some(&[m, n, _]) = gemms.iter().next() else { return false };
    let is_tokens = |extent: u32| gemms.iter().all(|&[m, n, k]| (m == extent || n == extent) && k != extent);
    gemms.len() >= FEWEST && (is_tokens(m) || is_tokens(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_forward_only_of(gemms: &[[u32; 3]]) -> bool {
        let gemm =
            |&extents: &[u32; 3]| Launch { kind: Kind::Gemm, extents, ..Launch::kernel(1, [1; 3], [1; 3]) };
        let launches: Vec<_> = gemms.iter().map(gemm).collect();
        is_forward_only(launches.iter())
    }

    /// Weights of a transformer, (out, in).
    const WEIGHTS: [[u32; 2]; 4] = [[2304, 768], [768, 768], [3072, 768], [768, 3072]];

    #[test]
    fn a_model_that_answers_is_told_from_one_that_trains() {
        for tokens in [1, 16, 513, 4096] {
            let forward = WEIGHTS.map(|[out, inner]| [out, tokens, inner]);
            let activations = WEIGHTS.map(|[out, inner]| [inner, tokens, out]);
            let weights = WEIGHTS.map(|[out, inner]| [inner, out, tokens]);
            assert!(is_forward_only_of(&forward));
            assert!(!is_forward_only_of(&[forward, activations, weights].concat()));
            // A backbone that is frozen, under a head that trains on one token of each of 8 rows.
            let head = [[10, 8, 768], [768, 10, 8]];
            assert!(!is_forward_only_of(&[&forward[..], &head].concat()));
        }
    }

    #[test]
    fn layers_that_are_as_wide_as_deep_train() {
        for tokens in [64, 512] {
            assert!(!is_forward_only_of(&[[512, tokens, 512], [512, tokens, 512], [512, 512, tokens]]));
        }
        assert!(!is_forward_only_of(&[[64, 8192, 4096], [64, 4096, 8192]]), "two GEMMs say nothing");
        assert!(!is_forward_only_of(&[]));
    }
}
