//! Functions, which are compared between workers, and their numbers.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
pub use xpu_wire::frame::{FunctionClass as Class, FunctionUnit as Unit};
use xpu_wire::frame::{FunctionKey, FunctionTime, StackFrame};

use crate::capture::python_place;

/// A kernel, a GEMM shape, a direction of copies, a collective of a communicator, a call, a Python function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    pub class: Class,
    pub name: String,
    /// The program's function that called a sampled Python function.
    pub called_by: Option<String>,
    /// `null`: the capture has no rate for it.
    pub unit: Option<Unit>,
    /// Whether its time comes from readings of the main thread's stack.
    pub sampled: bool,
    /// Whether its time includes waits for other ranks; if so, workers are not compared by it.
    pub waits: bool,
}

/// The longest name.
const LONGEST: usize = 96;

pub(super) fn cut(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}

/// A function of some workers.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub key: FunctionKey,
    /// Number of readings for each line of a sampled function and its calling line.
    lines: BTreeMap<(u32, u32), u64>,
}

impl Known {
    /// With the most frequent line.
    pub(super) fn finish(&self) -> Function {
        let (line, calling) =
            self.lines.iter().max_by_key(|(_, count)| **count).map_or((0, 0), |(&lines, _)| lines);
        let place = |frame: &StackFrame, line| cut(&python_place(&frame.function, &frame.file, line));
        let (name, called_by, sampled) = match &self.key {
            FunctionKey::Named { name, .. } | FunctionKey::Waits(name) => (name.clone(), None, false),
            FunctionKey::Sampled { function, caller } => {
                (place(function, line), caller.as_ref().map(|caller| place(caller, calling)), true)
            }
        };
        let waits = matches!(self.key, FunctionKey::Waits(_));
        Function { class: self.key.class(), name, called_by, unit: self.key.unit(), sampled, waits }
    }
}

/// Numbers of one worker's functions.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<FunctionKey, usize>,
    pub keys: Vec<FunctionKey>,
}

impl Names {
    pub(super) fn number(&mut self, key: FunctionKey) -> usize {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let number = self.keys.len();
        self.numbers.insert(key.clone(), number);
        self.keys.push(key);
        number
    }
}

/// Numbers of all workers' functions.
#[derive(Default)]
pub(super) struct Numbered {
    names: Names,
    pub known: Vec<Known>,
}

impl Numbered {
    /// The number of a worker's function. Workers may have run other lines of a sampled function.
    pub(super) fn number(&mut self, time: &FunctionTime) -> usize {
        let (key, lines) = without_lines(&time.key);
        let number = self.names.number(key.clone());
        if number == self.known.len() {
            self.known.push(Known { key, lines: BTreeMap::new() });
        }
        if let Some(lines) = lines {
            *self.known[number].lines.entry(lines).or_default() += time.executions;
        }
        number
    }
}

fn without_lines(key: &FunctionKey) -> (FunctionKey, Option<(u32, u32)>) {
    let plain = |frame: &StackFrame| StackFrame { line: 0, ..frame.clone() };
    match key {
        FunctionKey::Sampled { function, caller } => {
            let lines = (function.line, caller.as_ref().map_or(0, |caller| caller.line));
            let (function, caller) = (plain(function), caller.as_ref().map(plain));
            (FunctionKey::Sampled { function, caller }, Some(lines))
        }
        other => (other.clone(), None),
    }
}
