//! The names of launched functions, for reports of the work that blocks a stream. CUDA is queried once for
//! each function.

use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use xpu_wire::ledger::KERNEL_NAME;

use super::{
    Function,
    names::{Name, name},
};

/// Maximum number of functions that are kept, a power of two; further ones have no name.
const PLACES: usize = 1024;
const FARTHEST: usize = 8;
const WORDS: usize = KERNEL_NAME / 8;

static FUNCTIONS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static STATES: [AtomicU8; PLACES] = [const { AtomicU8::new(UNASKED) }; PLACES];
static NAMES: [[AtomicU64; WORDS]; PLACES] = [const { [const { AtomicU64::new(0) }; WORDS] }; PLACES];

const UNASKED: u8 = 0;
const ASKING: u8 = 1;
const KNOWN: u8 = 2;

/// Queries a function's name. Called after a launch, because a launched function is loaded and has a name.
#[inline]
pub(super) fn launched(function: Function) {
    let address = function.address();
    match find(address) {
        Some(place) if STATES[place].load(Relaxed) != UNASKED => {}
        Some(place) => ask(place, function),
        None => add(address, function),
    }
}

/// The function's name, padded with zeros; only zeros if it is unknown.
pub(crate) fn known_name(address: usize) -> [u8; KERNEL_NAME] {
    let mut text = [0; KERNEL_NAME];
    let known = find(address).filter(|&place| STATES[place].load(Acquire) == KNOWN);
    if let Some(place) = known {
        for (bytes, word) in text.as_chunks_mut().0.iter_mut().zip(&NAMES[place]) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
    }
    text
}

/// Forgets all names. Called before a library of kernels is unloaded, because its addresses may be reused.
#[cold]
pub(super) fn forget() {
    for state in &STATES {
        let _ = state.compare_exchange(KNOWN, UNASKED, AcqRel, Relaxed);
    }
}

#[inline]
fn find(address: usize) -> Option<usize> {
    for place in places(address) {
        match FUNCTIONS[place].load(Relaxed) {
            0 => return None,
            found if found == address => return Some(place),
            _ => {}
        }
    }
    None
}

#[cold]
fn add(address: usize, function: Function) {
    let taken = places(address).find(|&place| {
        let taken = FUNCTIONS[place].compare_exchange(0, address, AcqRel, Relaxed);
        taken.is_ok() || taken == Err(address)
    });
    if let Some(place) = taken {
        ask(place, function);
    }
}

#[cold]
fn ask(place: usize, function: Function) {
    if STATES[place].compare_exchange(UNASKED, ASKING, Acquire, Relaxed).is_err() {
        return;
    }
    let mut text = [0; KERNEL_NAME];
    let state = match name(function) {
        Name::Is(name) => {
            plain(name.to_bytes(), &mut text);
            KNOWN
        }
        Name::Refused => KNOWN,
        // The program has an unread error. The next launch queries again.
        Name::NotNow => UNASKED,
    };
    for (word, bytes) in NAMES[place].iter().zip(text.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    STATES[place].store(state, Release);
}

fn places(address: usize) -> impl Iterator<Item = usize> {
    let first = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2());
    (0..FARTHEST).map(move |next| (first as usize + next) % PLACES)
}

/// The name without template arguments and parameters: `at::native::vectorized_elementwise_kernel`. A name
/// that is not a mangled C++ name is kept unchanged. A name that does not fit is cut.
fn plain(mangled: &[u8], to: &mut [u8; KERNEL_NAME]) {
    let mut written = 0;
    let mut write = |bytes: &[u8]| {
        let rest = &mut to[written..];
        let fits = bytes.len().min(rest.len());
        rest[..fits].copy_from_slice(&bytes[..fits]);
        written += fits;
    };
    let Some(mut rest) = mangled.strip_prefix(b"_Z") else { return write(mangled) };
    rest = rest.strip_prefix(b"L").unwrap_or(rest);
    rest = rest.strip_prefix(b"N").unwrap_or(rest);
    let mut first = true;
    while let Some((part, after)) = identifier(rest) {
        if !first {
            write(b"::");
        }
        // The mangled name of an unnamed namespace.
        write(if part.starts_with(b"_GLOBAL__N_") { b"(anonymous)" } else { part });
        (first, rest) = (false, after);
    }
    if first {
        write(mangled);
    }
}

/// Splits off the first part of a mangled name, which begins with its length. Returns the part and the rest.
fn identifier(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let length: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let part = rest.get(digits..digits.checked_add(length)?)?;
    Some((part, &rest[digits + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let cases = [
            ("_Z11spin_kernell", "spin_kernel"),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE",
                "at::native::vectorized_elementwise_kernel",
            ),
            ("_ZN2at4cuda23_GLOBAL__N__b1_sleep_cu11spin_kernelEl", "at::cuda::(anonymous)::spin_kernel"),
            ("_ZN12_GLOBAL__N_17my_loopEPf", "(anonymous)::my_loop"),
            ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("_ZSt4moveIiE", "_ZSt4moveIiE"),
            ("_Z99cut", "_Z99cut"),
            ("", ""),
        ];
        for (mangled, short) in cases {
            let mut text = [0; KERNEL_NAME];
            plain(mangled.as_bytes(), &mut text);
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(KERNEL_NAME);
            assert!(String::from_utf8_lossy(&text[..end]).starts_with(short), "{mangled}: {text:?}");
        }
        let mut text = [0; KERNEL_NAME];
        plain(&[b'k'; 200], &mut text);
        assert_eq!(text, [b'k'; KERNEL_NAME]);
    }

    #[test]
    fn a_function_that_was_not_launched_has_no_name() {
        assert_eq!(known_name(0x1234_5670), [0; KERNEL_NAME]);
    }
}
