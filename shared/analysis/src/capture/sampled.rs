//! Python's stacks of one rank, sampled during a capture.

use std::{collections::BTreeSet, sync::Arc};

use xpu_wire::{
    frame::{PythonSamples, SampleAccount, SampledThread, StackFrame},
    unit::Moment,
};

/// The samples of a rank.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// `None` if its last part did not arrive.
    pub account: Option<SampleAccount>,
    pub stacks: Vec<Stack>,
    /// In order of time, by the host's clock. The second value is an index into the stacks.
    pub samples: Vec<(Moment, usize)>,
    came: BTreeSet<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    pub thread: Arc<SampledThread>,
    /// Outermost first.
    pub frames: Vec<Arc<StackFrame>>,
}

impl Stack {
    /// The function that runs, and the line in it.
    pub fn innermost(&self) -> Option<&StackFrame> {
        self.frames.last().map(AsRef::as_ref)
    }
}

impl Sampled {
    pub(super) fn take(&mut self, part: &PythonSamples) {
        if !self.came.insert(part.part) {
            return;
        }
        if let Some(account) = &part.account {
            self.account = Some(account.clone());
        }
        let threads: Vec<_> = part.threads.iter().cloned().map(Arc::new).collect();
        let frames: Vec<_> = part.frames.iter().cloned().map(Arc::new).collect();
        let first = self.stacks.len();
        // Indices come from the wire, so invalid ones are left out.
        self.stacks.extend(part.stacks.iter().map(|stack| Stack {
            thread: threads.get(stack.thread as usize).cloned().unwrap_or_default(),
            frames: stack.frames.iter().filter_map(|&at| frames.get(at as usize).cloned()).collect(),
        }));
        let mut at = part.since;
        for sample in &part.samples {
            at = Moment(at.0.saturating_add(sample.after.0));
            let stack = first.saturating_add(sample.stack as usize);
            if stack < self.stacks.len() {
                self.samples.push((at, stack));
            }
        }
        self.samples.sort_by_key(|(at, _)| *at);
    }

    /// Samples between two times.
    pub fn between(&self, from: Moment, to: Moment) -> impl Iterator<Item = (Moment, &Stack)> {
        let begin = self.samples.partition_point(|(at, _)| *at < from);
        let end = self.samples.partition_point(|(at, _)| *at < to);
        let samples = self.samples.get(begin..end).unwrap_or_default();
        samples.iter().filter_map(|&(at, stack)| Some((at, self.stacks.get(stack)?)))
    }

    /// The usual time between two readings.
    pub fn period(&self) -> Option<u64> {
        let rate = self.account.as_ref().map(|account| account.rate).filter(|&rate| rate > 0)?;
        Some(1_000_000_000 / u64::from(rate))
    }
}
