//! Merges the stacks of ranks into one tree.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{RankStacks, StackFrame, ThreadStack},
    id::Rank,
};

use super::{
    Node, Ranks, Tree, call,
    role::{self, Order},
    word::{Class, Word},
};

/// A node while ranks are added to it.
#[derive(Default)]
struct Growing {
    here: Ranks,
    ends: Ranks,
    threads: usize,
    children: BTreeMap<Word, Growing>,
}

impl Growing {
    fn add(&mut self, rank: Rank, words: &[Word]) {
        self.here.insert(rank);
        self.threads += 1;
        match words {
            [] => self.ends.insert(rank),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().add(rank, rest),
        }
    }

    fn grown(self, word: Word, all: &Ranks) -> Node {
        let mut children: Vec<_> =
            self.children.into_iter().map(|(word, child)| child.grown(word, all)).collect();
        children.sort_by_key(|child| (child.here.len(), child.here.first()));
        let missing = all.without(&self.here);
        Node { word, here: self.here, missing, ends: self.ends, threads: self.threads, children }
    }
}

/// The stacks of these ranks as one tree. `all` are the expected ranks; others that answered are included
/// too.
pub fn merge<'a>(
    all: impl IntoIterator<Item = Rank>,
    stacks: impl IntoIterator<Item = &'a RankStacks>,
) -> Tree {
    let mut ranks: Ranks = all.into_iter().collect();
    let mut roots: BTreeMap<(Order, Word), Growing> = BTreeMap::new();
    for stack in stacks {
        ranks.insert(stack.rank);
        if let Some(state) = unusual_state(stack) {
            let root = (Order::Process, Word::bare(Class::Role, "process"));
            roots.entry(root).or_default().add(stack.rank, &[Word::bare(Class::State, state)]);
        }
        for thread in &stack.threads {
            roots.entry(role::of(thread)).or_default().add(stack.rank, &words(thread));
        }
    }
    let mut roots: Vec<_> =
        roots.into_iter().map(|((order, word), growing)| (order, growing.grown(word, &ranks))).collect();
    roots.sort_by_key(|(order, root)| (*order, root.here.len(), root.here.first()));
    Tree { ranks, roots: roots.into_iter().map(|(_, root)| root).collect() }
}

/// A problem of the process as a whole.
fn unusual_state(stack: &RankStacks) -> Option<&'static str> {
    match stack.state {
        Some('R' | 'S' | 'D' | 'I') => None,
        Some(letter) => Some(call::state(letter)),
        None => Some("not seen"),
    }
}

fn words(thread: &ThreadStack) -> Vec<Word> {
    let mut words = Vec::with_capacity(thread.frames.len() + 2);
    if thread.more_frames > 0 {
        words.push(Word::bare(Class::State, "outer frames left out"));
    }
    // The innermost Python call matters more than its native frames.
    let called = thread.frames.iter().rposition(StackFrame::is_python).map_or(0, |last| last + 1);
    let (python, native) = thread.frames.split_at(called);
    words.extend(python.iter().map(Word::frame));
    if let Some(inside) = &thread.inside {
        words.push(Word::bare(Class::Torch, format!("in {}", inside.call)));
    }
    words.extend(native.iter().map(Word::frame));
    // The frames of a Python thread already show this, and the kernel's state would separate ranks that do
    // the same.
    if let Some(task) = thread.task.as_ref().filter(|task| thread.frames.is_empty() || task.letter == 'D') {
        words.push(Word::bare(Class::State, call::words(task)));
    }
    words
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
