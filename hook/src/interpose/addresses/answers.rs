//! Which answers are substituted: functions of the interposed libraries, in a file with their soname, for
//! callers outside NVIDIA's libraries.

use crate::interpose::symbol::{Object, Symbol, each, is_inner, is_own};

/// Name prefixes of NVIDIA's libraries. These libraries look up driver functions too, but their calls belong
/// to a GEMM or a collective that is counted already.
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

/// The replacement of `answer` for the code that continues at `caller`, if it is one of the interposed
/// functions. `None` if the answer stays.
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
