//! How long reading the stacks of ranks with many threads blocks any one of these threads.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
};

use xpu_tests::built;
use xpu_wire::{
    codec,
    frame::{Body, RankStacks},
};

use crate::table::{Row, Table};

const RANKS: usize = 8;
const ROUNDS: usize = 5;

/// A rank with a hundred waiting threads. Yama allows only ancestors to read a process, unless the process
/// allows others.
const RANK: &str = "
import ctypes, threading, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)
for _ in range(99):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
time.sleep(3600)";

struct Rank(Child);

impl Rank {
    fn start() -> Self {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", RANK]).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        Self(child)
    }

    /// Reads the rank's stacks, as for a hung job.
    fn read(&self) -> Child {
        let mut command = Command::new(built::artifact("xpu-collector"));
        command.args(["--read-stacks", &self.0.id().to_string(), "--native"]);
        command.stdout(Stdio::piped()).spawn().expect("the reader")
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads all ranks at once. Reports the least disturbed of some rounds.
pub(crate) fn cost(table: &mut Table) {
    let ranks: Vec<_> = (0..RANKS).map(|_| Rank::start()).collect();
    let round = || {
        let readers: Vec<_> = ranks.iter().map(Rank::read).collect();
        let stacks = readers.into_iter().map(answer).collect::<Option<Vec<_>>>()?;
        let threads: usize = stacks.iter().map(|stacks| stacks.threads.len()).sum();
        assert_eq!(threads, RANKS * 100, "not all threads were read");
        stacks.iter().map(|stacks| stacks.held_for_native).collect::<Option<Vec<_>>>()?.into_iter().max()
    };
    let what = "longest a thread is held, stacks of 8 ranks x 100 threads";
    match (0..ROUNDS).filter_map(|_| round()).min() {
        Some(held) => table.row(Row::new(what, held.milliseconds(), "ms")),
        None => println!("{what:<58}    refused: ptrace is not allowed here"),
    }
}

/// The last stacks that a reader prints.
fn answer(mut reader: Child) -> Option<RankStacks> {
    let mut bytes = Vec::new();
    reader.stdout.take()?.read_to_end(&mut bytes).ok()?;
    reader.wait().ok()?;
    let mut rest = &bytes[..];
    let mut last = None;
    while let Some(header) = rest.first_chunk::<{ codec::HEADER }>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let frame = rest.get(..codec::HEADER + length)?;
        if let Body::Stacks(stacks) = codec::decode(frame).ok()?.body {
            last = Some(stacks);
        }
        rest = &rest[frame.len()..];
    }
    last
}
