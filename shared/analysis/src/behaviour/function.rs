//! Functions, which are compared between workers, and the units of their rates.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::capture::python_place;

/// Kinds of functions. If two run at the same time, the critical path goes through the kind listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// GEMMs, kernels, graphs.
    Compute,
    Communication,
    /// Copies and fills.
    Memory,
    /// A CUDA call that waits for the GPU.
    Runtime,
    /// Python functions, garbage collections, data loaders, spans of the program.
    Python,
}

impl Class {
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "comm",
            Self::Memory => "memory",
            Self::Runtime => "CUDA call",
            Self::Python => "Python",
        }
    }

    pub(super) fn is_on_gpu(self) -> bool {
        matches!(self, Self::Compute | Self::Communication | Self::Memory)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Tflops,
    /// Bus bandwidth of collectives, as nccl-tests reports it.
    GbytesPerS,
    /// Executions per second of their own time: the inverse of the mean duration, if the work is unknown.
    PerSecond,
}

impl Unit {
    /// The rate of an amount of work in a nanosecond.
    pub(super) fn of(self, amount_per_ns: f64) -> f64 {
        match self {
            Self::Tflops => amount_per_ns / 1e3,
            Self::GbytesPerS => amount_per_ns,
            Self::PerSecond => amount_per_ns * 1e9,
        }
    }
}

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

/// The identity of a function: two functions with equal keys are the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Named(Class, String, Option<Unit>),
    /// Communication whose time includes waits.
    Waits(String),
    /// Function and file of a sampled Python function, and of the one that called it.
    Sampled([String; 2], Option<[String; 2]>),
}

/// A function while its executions are collected.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub key: Key,
    /// Number of readings for each line of a sampled function and its calling line.
    pub lines: BTreeMap<(u32, u32), u64>,
}

impl Known {
    pub(super) fn class(&self) -> Class {
        match &self.key {
            Key::Named(class, ..) => *class,
            Key::Waits(_) => Class::Communication,
            Key::Sampled(..) => Class::Python,
        }
    }

    pub(super) fn unit(&self) -> Option<Unit> {
        match &self.key {
            Key::Named(_, _, unit) => *unit,
            Key::Waits(_) | Key::Sampled(..) => None,
        }
    }

    /// With the most frequent line.
    pub(super) fn finish(&self) -> Function {
        let (line, calling) =
            self.lines.iter().max_by_key(|(_, count)| **count).map_or((0, 0), |(&lines, _)| lines);
        let place = |[function, file]: &[String; 2], line| cut(&python_place(function, file, line));
        let (name, called_by, sampled) = match &self.key {
            Key::Named(_, name, _) | Key::Waits(name) => (name.clone(), None, false),
            Key::Sampled(function, caller) => {
                (place(function, line), caller.as_ref().map(|caller| place(caller, calling)), true)
            }
        };
        let waits = matches!(self.key, Key::Waits(_));
        Function { class: self.class(), name, called_by, unit: self.unit(), sampled, waits }
    }
}

/// Numbers of functions.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Key, usize>,
    pub known: Vec<Known>,
}

impl Names {
    pub(super) fn number(&mut self, key: Key) -> usize {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let number = self.known.len();
        self.numbers.insert(key.clone(), number);
        self.known.push(Known { key, lines: BTreeMap::new() });
        number
    }
}
