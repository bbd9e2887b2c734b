//! Finds the code at a fatal signal: a separate process of this program unwinds the registers and the stack
//! that the signal's handler copied.

use std::{
    io::{self, Read, Write},
    path::Path,
    process::Command,
    time::Instant,
};

use xpu_wire::{
    frame::RankExit,
    ledger::{FaultReading, REGISTERS},
    unit::Moment,
};

use super::child_task::ChildTask;
use crate::stacks::{CrashFrame, crashed, end_with_the_collector};

/// Largest input. The ledger page has less.
const MOST: u64 = 1 << 20;

/// A process that finds where the signal struck. `None`, and so no frames, if it cannot be started.
pub(super) fn task(program: &Path, fault: &FaultReading, deadline: Instant) -> Option<ChildTask> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    command.arg0("xpu-collector").arg("--read-crash");
    ChildTask::start(&mut command, &packed(fault), deadline)
        .inspect_err(|error| tracing::warn!("cannot start a process to read a crash: {error}"))
        .ok()
}

/// Implements `--read-crash`: writes the frames of the note on standard input as JSON, outermost first.
pub fn read(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    end_with_the_collector(super::READ_LIMIT);
    let mut bytes = Vec::new();
    from.take(MOST).read_to_end(&mut bytes)?;
    let fault = unpacked(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let frames = crashed(&fault);
    let innermost = &frames[frames.len().saturating_sub(RankExit::FRAMES)..];
    Ok(serde_json::to_writer(to, innermost)?)
}

/// The frames in the process's output, if there are any.
pub(super) fn frames(said: &[u8]) -> Vec<CrashFrame> {
    serde_json::from_slice(said).unwrap_or_default()
}

/// The note as numbers of eight bytes (the registers, the stack's address and length), then the stack and the
/// modules.
fn packed(fault: &FaultReading) -> Vec<u8> {
    let numbers = fault.registers.into_iter().chain([fault.stack_from, fault.stack.len() as u64]);
    let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    bytes.extend(&fault.stack);
    bytes.extend(&fault.modules);
    bytes
}

fn unpacked(bytes: &[u8]) -> Option<FaultReading> {
    let (numbers, rest) = bytes.split_at_checked((REGISTERS + 2) * 8)?;
    let mut numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut registers = [0; REGISTERS];
    for register in &mut registers {
        *register = numbers.next()?;
    }
    let (stack_from, length) = (numbers.next()?, numbers.next()?);
    let (stack, modules) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(FaultReading {
        is_final: true,
        at: Moment(0),
        number: 0,
        code: 0,
        address: 0,
        thread: 0,
        name: String::new(),
        registers,
        stack_from,
        stack: stack.to_vec(),
        modules: modules.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_crash_is_unpacked_and_a_truncated_one_is_none() {
        let bytes: Vec<u8> = (0..100).collect();
        assert_eq!(unpacked(&bytes), None);
        let whole = [&[0; 72][..], &3_u64.to_le_bytes(), b"abc", b"maps"].concat();
        let fault = unpacked(&whole).unwrap();
        assert_eq!((&fault.stack[..], &fault.modules[..]), (&b"abc"[..], &b"maps"[..]));
        assert_eq!(packed(&fault), whole);
        assert_eq!(frames(b"Segmentation fault"), []);
    }
}
