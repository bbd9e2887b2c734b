//! The samples that were not sent yet. Threads, frames and stacks are listed once, and the samples refer to
//! them.

use std::{collections::HashMap, hash::Hash};

use xpu_wire::{
    frame::{PythonSample, PythonSamples, SampledStack, SampledThread, StackFrame},
    unit::{Moment, Nanoseconds},
};

use super::super::native;

/// The name of the entry for frames that do not fit into the list.
const MORE: &str = "(more)";

/// Values in order of their first use, and the index of each.
#[derive(Debug)]
struct List<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> List<T> {
    fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    fn len(&self) -> usize {
        self.all.len()
    }
}

/// A stack as it was read, innermost frame first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Raw {
    thread: u32,
    /// Python's frames, and whether each was called from C.
    python: Vec<(u32, bool)>,
    /// Addresses of native frames. Their names are found later, all at once.
    native: Vec<u64>,
}

/// Finds the names of addresses, each only once.
pub(super) trait Names {
    fn names(&mut self, addresses: &[u64]) -> Vec<Option<StackFrame>>;
}

#[derive(Debug, Default)]
pub(super) struct Part {
    threads: List<SampledThread>,
    frames: List<StackFrame>,
    stacks: List<Raw>,
    samples: Vec<PythonSample>,
    since: Option<Moment>,
    last: Moment,
}

impl Part {
    pub(super) fn push(
        &mut self,
        at: Moment,
        thread: SampledThread,
        python: Vec<(StackFrame, bool)>,
        native: Vec<u64>,
    ) {
        let python = python.into_iter().map(|(frame, entry)| (self.frame(frame), entry)).collect();
        if self.threads.len() >= PythonSamples::THREADS && !self.threads.numbers.contains_key(&thread) {
            return;
        }
        let thread = self.threads.number(thread);
        let stack = self.stacks.number(Raw { thread, python, native });
        let since = *self.since.get_or_insert(at);
        // The clock may have been set back.
        let at = at.max(self.last).max(since);
        let before = if self.samples.is_empty() { since } else { self.last };
        self.samples.push(PythonSample { after: Nanoseconds(at.0 - before.0), stack });
        self.last = at;
    }

    fn frame(&mut self, frame: StackFrame) -> u32 {
        let is_full = self.frames.len() + 1 >= PythonSamples::FRAMES;
        let frame = match frame {
            frame if is_full && !self.frames.numbers.contains_key(&frame) => {
                StackFrame { function: MORE.to_owned(), file: String::new(), line: 0 }
            }
            frame => frame,
        };
        self.frames.number(frame)
    }

    /// Whether the part must be sent before the next reading, which may add some threads.
    pub(super) fn is_full(&self) -> bool {
        self.samples.len() + PythonSamples::THREADS > PythonSamples::SAMPLES
            || self.stacks.len() + PythonSamples::THREADS > PythonSamples::STACKS
            || self.frames.len() * 2 > PythonSamples::FRAMES
    }

    /// Takes the part, to be sent next.
    pub(super) fn take(&mut self, names: &mut impl Names) -> PythonSamples {
        let Self { threads, mut frames, stacks, samples, since, .. } = std::mem::take(self);
        let mut addresses: Vec<_> = stacks.all.iter().flat_map(|raw| &raw.native).copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let named: HashMap<u64, Option<StackFrame>> = if addresses.is_empty() {
            HashMap::new()
        } else {
            addresses.iter().copied().zip(names.names(&addresses)).collect()
        };
        // Frames that do not fit share one entry, as when the part was filled.
        let python = frames.all.clone();
        let mut part = Self { frames: std::mem::take(&mut frames), ..Self::default() };
        let stacks = stacks.all.into_iter().map(|raw| {
            let thread = raw.thread;
            let of_python: Vec<_> =
                raw.python.iter().map(|&(frame, entry)| (python[frame as usize].clone(), entry)).collect();
            let native: Vec<_> = raw.native.iter().filter_map(|at| named.get(at)?.clone()).collect();
            let (joined, _) = native::join(of_python, &native);
            SampledStack { thread, frames: joined.into_iter().map(|frame| part.frame(frame)).collect() }
        });
        let stacks = stacks.collect();
        PythonSamples {
            since: since.unwrap_or_default(),
            threads: threads.all,
            frames: part.frames.all,
            stacks,
            samples,
            ..PythonSamples::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoNames;

    impl Names for NoNames {
        fn names(&mut self, addresses: &[u64]) -> Vec<Option<StackFrame>> {
            addresses.iter().map(|at| Some(frame(&format!("native_{at}"), "/lib/libc.so.6"))).collect()
        }
    }

    fn frame(function: &str, file: &str) -> StackFrame {
        StackFrame { function: function.to_owned(), file: file.to_owned(), line: 1 }
    }

    fn thread(number: u32) -> SampledThread {
        SampledThread { number: Some(number), name: "t".to_owned(), main: number == 1 }
    }

    /// Python frames with these names, innermost first.
    fn python(names: &[&str]) -> Vec<(StackFrame, bool)> {
        names.iter().map(|name| (frame(name, "a.py"), false)).collect()
    }

    fn functions(part: &PythonSamples, sample: usize) -> Vec<&str> {
        let stack = &part.stacks[part.samples[sample].stack as usize];
        stack.frames.iter().map(|&frame| part.frames[frame as usize].function.as_str()).collect()
    }

    #[test]
    fn repeated_entries_are_listed_once_and_times_are_kept() {
        let mut part = Part::default();
        for at in [1000, 1100, 1050] {
            part.push(Moment(at), thread(1), python(&["work", "main"]), Vec::new());
        }
        part.push(Moment(1200), thread(2), python(&["wait"]), Vec::new());
        let sent = part.take(&mut NoNames);
        assert_eq!((sent.frames.len(), sent.stacks.len(), sent.threads.len()), (3, 2, 2));
        assert_eq!(sent.since, Moment(1000));
        let after: Vec<_> = sent.samples.iter().map(|sample| sample.after.0).collect();
        assert_eq!(after, [0, 100, 0, 100], "a clock that is set back goes on");
        assert_eq!(functions(&sent, 0), ["main", "work"]);
        assert_eq!(functions(&sent, 3), ["wait"]);
        assert!(part.take(&mut NoNames).samples.is_empty(), "it starts over");
    }

    #[test]
    fn native_frames_lie_beneath_the_python_that_called_them() {
        let mut part = Part::default();
        part.push(Moment(1), thread(1), python(&["work", "main"]), vec![7, 8]);
        let sent = part.take(&mut NoNames);
        assert_eq!(functions(&sent, 0), ["main", "work", "native_8", "native_7"]);
    }

    #[test]
    fn a_part_stays_within_its_bounds_whatever_is_read() {
        let mut part = Part::default();
        for at in 0..20_000_u64 {
            let deep: Vec<_> = (0..100).map(|depth| format!("f{at}_{depth}")).collect();
            let deep: Vec<_> = deep.iter().map(String::as_str).collect();
            part.push(Moment(at), thread(at as u32), python(&deep), Vec::new());
            if part.is_full() {
                break;
            }
        }
        let sent = part.take(&mut NoNames);
        assert!(sent.frames.len() <= PythonSamples::FRAMES, "{}", sent.frames.len());
        assert!(sent.stacks.len() <= PythonSamples::STACKS && sent.threads.len() <= PythonSamples::THREADS);
        assert!(!sent.samples.is_empty());
    }
}
