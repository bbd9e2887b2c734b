//! Folded lines for flame graphs: `rank 0;step 41;gemm;gemm 8192x8192x4096 microseconds`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use xpu_wire::{frame::CapturedSpan, text::is_steering};

use super::{python, words};
use crate::capture::{Capture, Kind, Seen, Single, Work};

/// Writes the folded lines. Times of the GPU and of the host are separate stacks, because they overlap.
pub fn write(capture: &Capture, out: &mut impl Write) -> io::Result<()> {
    for (rank, of) in &capture.ranks {
        for (step, from, to) in of.steps() {
            let when = if capture.window.is_some() { "window".to_owned() } else { format!("step {step}") };
            let mut sums: BTreeMap<(&str, String), u64> = BTreeMap::new();
            for single in of.between(from, to) {
                let Some((kind, took)) = kind(single, of.seen()) else { continue };
                let sum = sums.entry((kind, name(single))).or_default();
                *sum = sum.saturating_add(took);
            }
            for ((kind, name), took) in sums {
                let microseconds = took.div_ceil(1000);
                writeln!(out, "rank {rank};{when};{kind};{name} {microseconds}")?;
            }
        }
    }
    python::folded(capture, out)
}

fn kind(single: &Single, seen: Seen) -> Option<(&'static str, u64)> {
    if let CapturedSpan::Host { took } = single.span {
        return Some(("host", took.0));
    }
    let kind = match single.work(seen)? {
        Work::Compute if single.kind() == Kind::Gemm => "gemm",
        Work::Compute => "kernel",
        Work::Communication => "communication",
        Work::Memory => "memory",
    };
    Some((kind, single.took_on_gpu()?))
}

/// The name without characters that would end a frame or a line.
fn name(single: &Single) -> String {
    words::name(single)
        .chars()
        .map(|letter| if letter == ';' || is_steering(letter) { '_' } else { letter })
        .collect()
}
