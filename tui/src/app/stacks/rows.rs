//! The tree as lines of a list. A branch is a run of frames that the same threads share: its first line lists
//! its ranks.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use xpu_model::stack::{Class, MAIN_THREAD, Node, Ranks, Tree, Word};
use xpu_wire::frame::ThreadStack;

/// Largest number of frames shown of a run that all ranks share; a longer run is shown without its middle.
const SHARED: usize = 6;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Identifies the line, even after the stacks were read again.
    pub mark: u64,
    /// The number of branches around it.
    pub depth: usize,
    /// On a branch's first line: whether the branch is open.
    pub open: Option<bool>,
    pub shown: Shown,
    /// On a branch's first line: the ranks in it, and those not in it.
    pub here: Ranks,
    pub missing: Ranks,
    /// Number of threads here, of all ranks.
    pub threads: usize,
    /// Whether threads end here, so that this is their present position.
    pub is_end: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Frame(Word),
    /// A closed branch: the thread, if the branch is a whole thread; its innermost frame; and the number of
    /// lines that are not shown.
    Closed {
        thread: Option<Word>,
        innermost: Word,
        hidden: usize,
    },
    /// Frames in the middle of a run.
    Left(usize),
    /// Native frames below a Python frame: their number, and the innermost. The path of a call is rarely
    /// needed.
    Native {
        frames: usize,
        innermost: Word,
    },
    /// Some threads continue deeper; these stay here.
    NoDeeper,
}

impl Row {
    /// Whether few ranks are here and most are not.
    pub fn is_outlier(&self) -> bool {
        self.open.is_some() && !self.here.is_empty() && self.here.len() < self.missing.len()
    }
}

/// The lines of a tree. `natives`: whether native frames below those of Python have lines of their own.
pub(super) fn of(tree: &Tree, turned: &BTreeSet<u64>, natives: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for root in &tree.roots {
        Lines { turned, natives, rows: &mut rows }.branch(root, 0, 0, false);
    }
    rows
}

struct Lines<'a> {
    turned: &'a BTreeSet<u64>,
    natives: bool,
    rows: &'a mut Vec<Row>,
}

impl Lines<'_> {
    /// `below`: whether it is below a frame of Python.
    fn branch(&mut self, node: &Node, depth: usize, parent: u64, mut below: bool) {
        let mark = mark(parent, &node.word, 0);
        let run = run(node);
        let innermost = run[run.len() - 1];
        // Main threads matter most; the others are one line each until they are opened.
        let opens = depth > 0 || node.word.class != Class::Role || is_main(node);
        let open = opens != self.turned.contains(&mark);
        let row = |mark, shown| Row {
            mark,
            depth,
            open: None,
            shown,
            here: Ranks::default(),
            missing: Ranks::default(),
            threads: 0,
            is_end: false,
        };
        let hidden = run.len() - 1;
        let shown = if open || hidden == 0 {
            Shown::Frame(node.word.clone())
        } else {
            let thread = (node.word.class == Class::Role).then(|| node.word.clone());
            let hidden = hidden - usize::from(thread.is_some());
            Shown::Closed { thread, innermost: innermost.word.clone(), hidden }
        };
        self.rows.push(Row {
            open: Some(open),
            here: node.here.clone(),
            missing: node.missing.clone(),
            threads: node.threads,
            is_end: run.len() == 1 && innermost.children.is_empty(),
            ..row(mark, shown)
        });
        if !open {
            return;
        }
        let frames = &run[1..];
        let left = if node.missing.is_empty() { frames.len().saturating_sub(SHARED) } else { 0 };
        if left > 1 {
            self.rows.push(row(self::mark(mark, &node.word, usize::MAX), Shown::Left(left)));
        }
        let mut at = if left > 1 { left } else { 0 };
        below |= run[..=at].iter().any(|frame| frame.word.is_python());
        while let Some(frame) = frames.get(at) {
            let natives = frames[at..].iter().take_while(|frame| is_native(&frame.word)).count();
            let last = if self.natives || !below { at } else { at + natives.saturating_sub(1) };
            let innermost = frames[last];
            let shown = match last - at {
                0 => Shown::Frame(frame.word.clone()),
                folded => Shown::Native { frames: folded + 1, innermost: innermost.word.clone() },
            };
            let line = row(self::mark(mark, &frame.word, at + 1), shown);
            self.rows.push(Row { is_end: innermost.children.is_empty(), ..line });
            below |= frame.word.is_python();
            at = last + 1;
        }
        for child in &innermost.children {
            self.branch(child, depth + 1, mark, below);
        }
        if !innermost.ends.is_empty() && !innermost.children.is_empty() {
            let stay = row(self::mark(mark, &innermost.word, usize::MAX - 1), Shown::NoDeeper);
            self.rows.push(Row { depth: depth + 1, here: innermost.ends.clone(), ..stay });
        }
    }
}

/// Whether it is a compiled frame; entries of the kernel or the ledger have no file.
fn is_native(word: &Word) -> bool {
    matches!(word.class, Class::C | Class::Cpp | Class::Torch) && !word.file.is_empty() && !word.is_python()
}

fn is_main(root: &Node) -> bool {
    [MAIN_THREAD, ThreadStack::GPU, "process"].contains(&&*root.word.name)
}

/// The node and those below it, as long as all its threads follow the same path.
fn run(node: &Node) -> Vec<&Node> {
    let mut run = vec![node];
    let mut last = node;
    while let [child] = &last.children[..]
        && last.ends.is_empty()
        && child.threads == last.threads
    {
        run.push(child);
        last = child;
    }
    run
}

fn mark(parent: u64, word: &Word, index: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, &word.name, &word.file, word.line, index).hash(&mut hasher);
    hasher.finish()
}
