//! Decides which answers are substituted: functions of an interposed library, in a file with the library's
//! soname, for callers outside of NVIDIA's libraries.

use crate::interpose::symbol::{Object, Symbol, each, is_inner, is_own};

/// Name prefixes of NVIDIA's libraries. They look up driver functions too, but their calls belong to a GEMM
/// or a collective that is already counted.
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

/// The replacement of `answer`, if it is an interposed function; `None` if the answer stays. `caller` is the
/// address to which the lookup returns.
#[cold]
pub(super) fn replacement_for(
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
