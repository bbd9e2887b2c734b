//! Decides whether a period's GEMMs are only a forward pass, as in an inference server. Then the period is a
//! token or a batch, not a training step.
//!
//! A forward pass multiplies weights by activations: the tokens of a batch are an outer extent of each GEMM,
//! and no GEMM sums over the tokens. Training does sum over the tokens, for the gradients of weights: both
//! outer extents of such a GEMM are features, over which other GEMMs sum.

use std::collections::HashSet;

use crate::observe::launches::{Kind, Launch};

/// Fewer different GEMMs than this are never called a forward pass.
const FEWEST: usize = 3;

/// Whether these launches train; `None` if their GEMMs do not show this.
pub(super) fn trains<'a>(launches: impl Iterator<Item = &'a Launch>) -> Option<bool> {
    let gemms: HashSet<[u32; 3]> = launches
        .filter(|launch| launch.kind == Kind::Gemm && launch.extents != Launch::UNKNOWN)
        .map(|launch| launch.extents)
        .collect();
    let summed: HashSet<u32> = gemms.iter().map(|&[_, _, k]| k).collect();
    let trains = gemms.iter().any(|[m, n, _]| summed.contains(m) && summed.contains(n));
    (trains && gemms.len() > 1 || gemms.len() >= FEWEST).then_some(trains)
}

/// Whether these launches are only parts of a backward pass. Then they sum over the tokens for gradients of
/// weights, and none of these weights is multiplied in both orientations. With a forward and a backward pass,
/// each weight is.
pub(super) fn is_backward_alone<'a>(launches: impl Iterator<Item = &'a Launch>) -> bool {
    let gemms: HashSet<([u32; 3], u32)> = launches
        .filter(|launch| launch.kind == Kind::Gemm && launch.extents != Launch::UNKNOWN)
        .map(|launch| (launch.extents, launch.form))
        .collect();
    // The GEMM with one side of a weight and the tokens as outer extents, and the weight's other side as the
    // inner one. It is transposed in one pass and not in the other.
    let forms = |side: u32, other: u32, tokens: u32| {
        let is_pass = move |[m, n, k]: [u32; 3]| k == other && [[m, n], [n, m]].contains(&[side, tokens]);
        gemms.iter().filter(move |(extents, _)| is_pass(*extents)).map(|(_, form)| *form)
    };
    let summed: HashSet<u32> = gemms.iter().map(|&([_, _, k], _)| k).collect();
    // The tokens are an extent of every GEMM.
    summed.into_iter().filter(|tokens| gemms.iter().all(|(extents, _)| extents.contains(tokens))).any(
        |tokens| {
            gemms.iter().filter(|([_, _, k], _)| *k == tokens).all(|&([m, n, _], _)| {
                forms(m, n, tokens).chain(forms(n, m, tokens)).collect::<HashSet<_>>().len() == 1
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trains_with(gemms: &[[u32; 3]]) -> Option<bool> {
        let gemm =
            |&extents: &[u32; 3]| Launch { kind: Kind::Gemm, extents, ..Launch::kernel(1, [1; 3], [1; 3]) };
        let launches: Vec<_> = gemms.iter().map(gemm).collect();
        trains(launches.iter())
    }

    /// Weights of a transformer as (out, in).
    const WEIGHTS: [[u32; 2]; 4] = [[2304, 768], [768, 768], [3072, 768], [768, 3072]];

    #[test]
    fn inference_is_distinguished_from_training() {
        for tokens in [1, 16, 513, 4096] {
            let forward = WEIGHTS.map(|[out, inner]| [out, tokens, inner]);
            let activations = WEIGHTS.map(|[out, inner]| [inner, tokens, out]);
            let weights = WEIGHTS.map(|[out, inner]| [inner, out, tokens]);
            assert_eq!(trains_with(&forward), Some(false));
            assert_eq!(trains_with(&[forward, activations, weights].concat()), Some(true));
            // Only the last token of each prompt is multiplied by the vocabulary.
            assert_eq!(trains_with(&[&forward[..], &[[50_257, 3, 768]]].concat()), Some(false));
        }
    }

    #[test]
    fn a_backward_pass_alone_is_distinguished_from_a_step() {
        let gemm = |&(extents, form): &([u32; 3], u32)| Launch {
            kind: Kind::Gemm,
            extents,
            form,
            ..Launch::kernel(1, [1; 3], [1; 3])
        };
        let is_backward_alone = |gemms: &[([u32; 3], u32)]| {
            let launches: Vec<_> = gemms.iter().map(gemm).collect();
            super::is_backward_alone(launches.iter())
        };
        let forward = WEIGHTS.map(|[out, inner]| ([out, 4096, inner], 1));
        let activations = WEIGHTS.map(|[out, inner]| ([inner, 4096, out], 2));
        let weights = WEIGHTS.map(|[out, inner]| ([inner, out, 4096], 3));
        assert!(!is_backward_alone(&[forward, activations, weights].concat()));
        assert!(is_backward_alone(&[activations, weights].concat()));
        assert!(!is_backward_alone(&forward));
    }

    #[test]
    fn square_layers_are_recognized_as_training() {
        for tokens in [64, 512] {
            assert_ne!(
                trains_with(&[[512, tokens, 512], [512, tokens, 512], [512, 512, tokens]]),
                Some(false)
            );
        }
        assert_eq!(trains_with(&[[64, 8192, 4096], [64, 4096, 8192]]), None, "two GEMMs say nothing");
        assert_eq!(trains_with(&[[512, 512, 512]]), None);
        assert_eq!(trains_with(&[]), None);
    }
}
