//! The calls that launch something, as CUPTI numbers them (`cupti_runtime_cbid.h`, `cupti_driver_cbid.h`): numbers are never given
//! again, and one that is too new for a CUPTI is refused. A record of each call of CUDA would be thousands a step.

use std::ops::RangeInclusive;

/// Copies and fills, kernels, graphs.
const RUNTIME: &[RangeInclusive<u32>] = &[
    31..=52,
    142..=145,
    160..=163,
    211..=211,
    214..=236,
    243..=246,
    249..=250,
    269..=270,
    311..=312,
    430..=431,
    482..=485,
    505..=506,
    509..=512,
];

const DRIVER: &[RangeInclusive<u32>] = &[
    216..=216,
    218..=218,
    220..=220,
    249..=251,
    276..=281,
    305..=307,
    319..=319,
    418..=418,
    421..=423,
    428..=430,
    442..=442,
    477..=478,
    514..=515,
    652..=653,
    776..=779,
    796..=799,
];

pub(super) fn runtime() -> impl Iterator<Item = u32> {
    RUNTIME.iter().cloned().flatten()
}

pub(super) fn driver() -> impl Iterator<Item = u32> {
    DRIVER.iter().cloned().flatten()
}
