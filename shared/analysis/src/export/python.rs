//! Sampled Python stacks as folded lines, as a flame graph, and as slices of a timeline.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use anyhow::Context as _;
use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};
use xpu_model::figure::runs;
use xpu_wire::{frame::StackFrame, id::Rank, text::is_steering, unit::Moment};

use crate::capture::{Capture, Sampled, python_place, role};

/// Names of ranks and threads in a flame graph's title line.
const TITLE: &str = "sampled Python stacks";

/// A stack counts as unchanged between two readings if they are at most this many periods apart.
const SAME: u64 = 3;

/// Number of samples in the recorded steps, or in the period, by rank, step and stack.
fn counts(capture: &Capture) -> BTreeMap<(Rank, String, Vec<String>), u64> {
    let mut counts = BTreeMap::new();
    for (&rank, of) in &capture.ranks {
        let Some(sampled) = capture.sampled.get(&rank) else { continue };
        for (step, from, to) in of.steps() {
            let when = if capture.window.is_some() { "window".to_owned() } else { format!("step {step}") };
            for (_, stack) in sampled.between(from, to) {
                let mut frames = vec![format!("thread {}", role(stack))];
                frames.extend(stack.frames.iter().map(|frame| name(frame)));
                *counts.entry((rank, when.clone(), frames)).or_default() += 1;
            }
        }
    }
    counts
}

/// The name without characters that would end a frame or a line.
fn name(frame: &StackFrame) -> String {
    let name = python_place(&frame.function, &frame.file, frame.line);
    name.chars().map(|letter| if letter == ';' || is_steering(letter) { '_' } else { letter }).collect()
}

/// `rank 0;step 41;python;thread main;main (train.py:90);train (train.py:12) microseconds`
pub(super) fn folded(capture: &Capture, out: &mut impl Write) -> io::Result<()> {
    for ((rank, when, frames), count) in counts(capture) {
        let period = capture.sampled.get(&rank).and_then(Sampled::period).unwrap_or(0);
        let microseconds = u64::saturating_mul(count, period).div_ceil(1000);
        writeln!(out, "rank {rank};{when};python;{} {microseconds}", frames.join(";"))?;
    }
    Ok(())
}

/// The stacks of all ranks as one flame graph. A frame's width is its share of the samples, and its title
/// names the ranks.
///
/// # Errors
/// Fails if nothing was sampled.
pub fn flame(capture: &Capture) -> anyhow::Result<Vec<u8>> {
    let mut lines: BTreeMap<Vec<String>, (u64, Vec<u64>)> = BTreeMap::new();
    for ((rank, _, frames), count) in counts(capture) {
        let (sum, ranks) = lines.entry(frames).or_default();
        *sum += count;
        if ranks.last() != Some(&rank.process().0.into()) {
            ranks.push(rank.process().0.into());
        }
    }
    anyhow::ensure!(!lines.is_empty(), "it has no sampled Python stacks: capture with --python");
    let all: Vec<_> = capture.sampled.keys().map(|rank| u64::from(rank.process().0)).collect();
    let mut text: Vec<_> = lines
        .into_iter()
        .map(|(frames, (count, mut ranks))| {
            ranks.dedup();
            // A stack of only some ranks is marked as such.
            let whose = if ranks.len() < all.len() {
                format!(";only on rank {}", runs(&ranks))
            } else {
                String::new()
            };
            format!("{}{whose} {count}", frames.join(";"))
        })
        .collect();
    text.sort();
    let job = capture.sheet.as_ref().map(|sheet| sheet.job.to_string()).unwrap_or_default();
    let mut options = Options::default();
    options.title = format!("{job}: {TITLE} of {} ranks", all.len());
    "samples".clone_into(&mut options.count_name);
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, text.iter().map(String::as_str), &mut svg)
        .context("cannot draw the flame graph")?;
    Ok(svg)
}

/// A function's uninterrupted time on the stacks of one thread.
pub(super) struct Call {
    pub begin: Moment,
    pub end: Moment,
    pub name: String,
    pub samples: u64,
}

/// The calls of each thread. A call is a frame that consecutive samples share, with all frames outside of it.
/// It lasts from the first of these samples to the sample after the last.
pub(super) fn calls(sampled: &Sampled) -> BTreeMap<(bool, String), Vec<Call>> {
    let period = sampled.period().unwrap_or(1_000_000);
    let mut threads: BTreeMap<(bool, String), Vec<Reading<'_>>> = BTreeMap::new();
    for &(at, stack) in &sampled.samples {
        let Some(stack) = sampled.stacks.get(stack) else { continue };
        let number = stack.thread.number.map_or_else(String::new, |number| format!(" ({number})"));
        let name =
            if stack.thread.main { "main".to_owned() } else { format!("{}{number}", stack.thread.name) };
        threads.entry((!stack.thread.main, name)).or_default().push((at, &stack.frames));
    }
    threads.into_iter().map(|(thread, samples)| (thread, of_thread(&samples, period))).collect()
}

/// A thread's frames at one moment, outermost first.
type Reading<'a> = (Moment, &'a [Arc<StackFrame>]);

fn of_thread(samples: &[Reading<'_>], period: u64) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    // Indices into the calls, and their frames, outermost first.
    let mut open: Vec<(usize, &StackFrame)> = Vec::new();
    let mut last: Option<Moment> = None;
    let is_same = |a: &StackFrame, b: &StackFrame| (&a.function, &a.file) == (&b.function, &b.file);
    for &(at, frames) in samples {
        let goes_on = last.is_some_and(|last| at.0.saturating_sub(last.0) <= SAME * period);
        let kept = if goes_on {
            open.iter().zip(frames).take_while(|((_, known), frame)| is_same(known, frame)).count()
        } else {
            0
        };
        // Open calls end here; after a pause, one period after their last sample.
        let end =
            if goes_on { at } else { last.map_or(at, |last| Moment(last.0.saturating_add(period)).min(at)) };
        for (call, _) in open.drain(kept..) {
            calls[call].end = end;
        }
        for frame in &frames[kept..] {
            open.push((calls.len(), frame));
            calls.push(Call { begin: at, end: at, name: name(frame), samples: 0 });
        }
        for (call, _) in &open {
            calls[*call].samples += 1;
        }
        last = Some(at);
    }
    let end = last.map_or(Moment(0), |last| Moment(last.0.saturating_add(period)));
    for (call, _) in open {
        calls[call].end = end;
    }
    calls.sort_by_key(|call| (call.begin, Reverse(call.end)));
    calls
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::{
        Body, Frame,
        example::capture::{BEGIN, MS, part, samples, sheet},
    };

    use super::*;

    fn capture() -> Capture {
        let mut capture = Capture::default();
        let other = xpu_wire::frame::PythonSamples { rank: Rank(1), ..samples(1) };
        for body in [
            Body::CaptureSheet(sheet(&[0, 1])),
            Body::CapturePart(part(0, 0)),
            Body::CapturePart(part(1, 0)),
            Body::PythonSamples(samples(0)),
            Body::PythonSamples(other),
        ] {
            capture.take(&Frame { host: "a".into(), number: 0, now: Moment(BEGIN), lost: 0, body });
        }
        capture
    }

    #[test]
    fn folded_lines_have_all_the_time_that_was_sampled() {
        let mut out = Vec::new();
        folded(&capture(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = "rank 1;step 41;python;thread main;main (train.py:90);train (train.py:12);collate_fn (data.py:40) ";
        assert!(text.contains(line), "{text}");
        let of_main = text.lines().filter(|line| line.starts_with("rank 0;") && line.contains("thread main"));
        let sum: u64 = of_main.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
        assert_eq!(sum, 40_000, "{text}");
    }

    #[test]
    fn a_flame_graph_has_the_stacks_and_says_so_where_there_are_none() {
        let svg = String::from_utf8(flame(&capture()).unwrap()).unwrap();
        assert!(svg.contains("collate_fn (data.py:40)") && svg.contains("of 2 ranks"), "{svg}");
        assert!(flame(&Capture::default()).unwrap_err().to_string().contains("--python"));
    }

    #[test]
    fn the_common_frames_of_samples_are_one_call() {
        let sampled = &capture().sampled[&Rank(0)];
        let calls = calls(sampled);
        let main = &calls[&(false, "main".to_owned())];
        let named = |name: &str| main.iter().filter(|call| call.name.starts_with(name)).collect::<Vec<_>>();
        let (outer, inner) = (named("main"), named("collate_fn"));
        assert_eq!((outer.len(), outer[0].samples), (1, 40));
        assert_eq!(outer[0].end.0 - outer[0].begin.0, 40 * MS);
        // From 17 to 21 ms and from 37 to the end.
        assert_eq!(inner.iter().map(|call| (call.end.0 - call.begin.0) / MS).collect::<Vec<_>>(), [4, 3]);
    }
}
