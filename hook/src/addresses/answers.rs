//! Which answers are substituted: a function of one of the libraries, in a file that is called as they are, for a caller that is none of
//! NVIDIA's own.

use crate::symbol::{Object, Symbol, each, is_inner, is_own};

/// How the names of NVIDIA's libraries begin. These ask for the driver's functions too; what they call belongs to a GEMM or a collective
/// that is counted already.
const NVIDIAS: [&str; 22] = [
    "libcuda",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnpp",
    "libnvfatbin",
    "libnvidia-",
    "libnvinfer",
    "libnvJitLink",
    "libnvjpeg",
    "libnvperf",
    "libnvrtc",
    "libnvshmem",
    "libnvToolsExt",
    "libnvvm",
];

fn is_nvidias(object: &Object) -> bool {
    let name = object.file_name();
    NVIDIAS.iter().any(|begin| name.starts_with(begin.as_bytes()))
}

/// What is handed out in the place of `answer` to who goes on at `caller`, if it is one of these functions. `None` where the answer stays.
#[cold]
pub(super) fn stand_in_for(
    answer: usize,
    caller: usize,
    symbols: impl Iterator<Item = &'static Symbol> + Clone,
) -> Option<usize> {
    let (mut meant, mut may_have, mut calls_from_within) = (None, true, false);
    each(|object| {
        if object.span.contains(caller) {
            may_have = !is_own(object) && !is_nvidias(object);
            calls_from_within = is_inner(object);
        }
        if object.span.contains(answer) {
            let is_it = |symbol: &&Symbol| {
                symbol.library().is_in(object) && object.find(symbol.looked_up()) == Some(answer)
            };
            meant = symbols.clone().find(is_it);
        }
        !may_have
    });
    meant.filter(|_| may_have)?.hand_out(answer, calls_from_within)
}
