//! Spans that the program names (`Tracer.span`). They are always counted; during a capture, each one is
//! recorded.

use std::{
    ffi::CStr,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use xpu_wire::{
    frame::{CapturedLabel, FunctionKind, SpanTotals},
    unit::Nanoseconds,
};

use crate::{
    capture,
    observe::{
        lane::Lane,
        record::{HostCall, Record},
    },
    process::clock::monotonic,
};

/// Maximum number of distinct names. Further ones share one number and one label.
const NAMES: usize = 64;
const NONE: u16 = NAMES as u16;

/// Maximum number of characters of a name that are kept.
const LONGEST: usize = 64;

#[derive(Debug)]
struct Named {
    name: String,
    count: AtomicU64,
    /// Nanoseconds.
    took: AtomicU64,
}

/// The known names in order of appearance. They are leaked, so they live as long as the process.
static KNOWN: [AtomicPtr<Named>; NAMES] = [const { AtomicPtr::new(ptr::null_mut()) }; NAMES];

/// Counts and records a span that began at `begun` and ends now.
pub(crate) fn ended(lane: &Lane, name: &CStr, begun: u64) {
    let (number, until) = (number(name), monotonic());
    if let Some(named) = KNOWN.get(usize::from(number)).and_then(known) {
        named.count.fetch_add(1, Relaxed);
        named.took.fetch_add(until.saturating_sub(begun), Relaxed);
    }
    if capture::is_on() {
        lane.push_if_roomy(Record::Host { call: HostCall::Span(number), bytes: 0, at: begun, until });
    }
}

/// Totals of the spans that ended at least once; at most [`NAMES`].
pub(crate) fn totals() -> Vec<SpanTotals> {
    let all = KNOWN.iter().map_while(known).map(|named| SpanTotals {
        name: named.name.clone(),
        count: named.count.load(Relaxed),
        took: Nanoseconds(named.took.load(Relaxed)),
    });
    all.filter(|totals| totals.count > 0).collect()
}

pub(crate) fn label(number: u16) -> CapturedLabel {
    let name = KNOWN.get(usize::from(number)).and_then(known);
    let name = name.map_or_else(|| format!("(more than {NAMES} names)"), |named| named.name.clone());
    CapturedLabel::Function { kind: FunctionKind::Span, name }
}

fn number(name: &CStr) -> u16 {
    let name = name.to_string_lossy();
    let name: String = xpu_wire::text::clean(&name).chars().take(LONGEST).collect();
    for (number, place) in KNOWN.iter().enumerate() {
        if known(place).is_none() {
            let named = Named { name: name.clone(), count: AtomicU64::new(0), took: AtomicU64::new(0) };
            let new = Box::into_raw(Box::new(named));
            if place.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire).is_ok() {
                return number as u16;
            }
            // SAFETY: it was just made, and nobody else has it.
            drop(unsafe { Box::from_raw(new) });
        }
        if known(place).is_some_and(|named| named.name == name) {
            return number as u16;
        }
    }
    NONE
}

fn known(place: &AtomicPtr<Named>) -> Option<&'static Named> {
    let named = place.load(Acquire);
    // SAFETY: null, or an entry that was leaked.
    unsafe { named.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_names_have_numbers_and_surplus_ones_share_the_last() {
        let named = |number| match label(number) {
            CapturedLabel::Function { kind: FunctionKind::Span, name } => name,
            other => panic!("{other:?}"),
        };
        assert_eq!([c"data", c"loss", c"data"].map(number), [0, 1, 0]);
        assert_eq!([0, 1].map(named), ["data", "loss"]);
        assert_eq!(named(number(c"a\x1b[2Jb")), "a [2Jb");
        assert_eq!(
            named(number(CStr::from_bytes_with_nul(&[&[b'x'; 300][..], b"\0"].concat()).unwrap())).len(),
            LONGEST
        );
        let more: Vec<_> =
            (0..100).map(|n| number(&std::ffi::CString::new(format!("n{n}")).unwrap())).collect();
        assert_eq!((more[0], more[99]), (4, NONE));
        assert_eq!(named(NONE), "(more than 64 names)");
    }
}
