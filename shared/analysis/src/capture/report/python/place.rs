//! Where a program is: functions, and the innermost place that most of the given stacks share.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use xpu_wire::frame::StackFrame;

use crate::capture::Stack;

/// Smallest share of a frame's samples with which a frame below it is the place instead.
const DEEPER: f64 = 0.75;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub function: String,
    pub file: String,
    /// The most frequent line of the samples; 0 if it is unknown.
    pub line: u32,
    /// The calls that led there, outermost first.
    pub path: Vec<String>,
}

/// A function, whatever its line.
pub(super) type Key<'a> = (&'a str, &'a str);

pub(super) fn key(frame: &StackFrame) -> Key<'_> {
    (&frame.function, &frame.file)
}

/// `collate_fn (data.py:40)`
pub fn shown(function: &str, file: &str, line: u32) -> String {
    let short = short(file);
    match (short.is_empty(), line) {
        (true, _) => function.to_owned(),
        (false, 0) => format!("{function} ({short})"),
        (false, line) => format!("{function} ({short}:{line})"),
    }
}

/// The path from the package on, or the file's name.
fn short(file: &str) -> &str {
    for root in ["/site-packages/", "/dist-packages/"] {
        if let Some(at) = file.rfind(root) {
            return &file[at + root.len()..];
        }
    }
    file.rsplit('/').next().unwrap_or(file)
}

/// The innermost place that most of the stacks share, and the number of stacks in it. Descends from the
/// outermost frame while most of the remaining stacks share the next one.
pub(super) fn common(stacks: &[&Stack]) -> Option<(Place, usize)> {
    let mut here: Vec<&Stack> = stacks.iter().copied().filter(|stack| !stack.frames.is_empty()).collect();
    let (mut depth, mut place) = (0, None);
    loop {
        let mut below: BTreeMap<Key<'_>, Vec<&Stack>> = BTreeMap::new();
        for stack in &here {
            if let Some(frame) = stack.frames.get(depth) {
                below.entry(key(frame)).or_default().push(stack);
            }
        }
        let Some((_, most)) = below.into_iter().max_by_key(|(_, stacks)| stacks.len()) else { break };
        // Every stack has an outermost frame. The most frequent one is taken, even if it is no majority.
        if depth > 0 && (most.len() as f64) < here.len() as f64 * DEEPER {
            break;
        }
        let Some(first) = most.first() else { break };
        let frame = &first.frames[depth];
        // Native frames show how a program waits, not where it is.
        if frame.is_python() || place.is_none() {
            let line = line(most.iter().map(|stack| stack.frames[depth].line));
            place = Some((frame, line, depth, most.len(), *first));
        }
        here = most;
        depth += 1;
    }
    let (frame, line, depth, count, stack) = place?;
    let path = stack.frames[..depth].iter().map(|frame| shown(&frame.function, &frame.file, frame.line));
    let place =
        Place { function: frame.function.clone(), file: frame.file.clone(), line, path: path.collect() };
    Some((place, count))
}

/// The most frequent one.
pub(super) fn line(lines: impl Iterator<Item = u32>) -> u32 {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    lines.for_each(|line| *counts.entry(line).or_default() += 1);
    counts.into_iter().max_by_key(|&(line, count)| (count, Reverse(line))).map_or(0, |(line, _)| line)
}
