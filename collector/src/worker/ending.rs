//! Determines how a rank ended, from the note in its ledger page, else from what can be observed from
//! outside.

use std::{fs, time::Duration};

use xpu_wire::{
    frame::{
        ApiError, Ending, FatalSignal, Life, PythonException, RankExit, RefusedMemory, StopRequest, TERM,
    },
    id::Pid,
    ledger::{FaultReading, LastReading},
    text,
    unit::Moment,
};

use super::Worker;
use crate::exits::{Departure, ExitStatus};

/// An exception counts as the cause of an end at most this long after it: Python's shutdown may take a while.
const AFTER_EXCEPTION: Duration = Duration::from_mins(1);

/// The same limit for an exception in a thread other than the main thread, which does not end the process by
/// itself.
const AFTER_THREADS: Duration = Duration::from_secs(10);

/// The same limit for a SIGTERM that an older hook noted: it ends a process without a handler at once.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The two notes of one failed call are written within this time.
const AT_THE_SAME_CALL: Duration = Duration::from_millis(100);

/// `cudaErrorMemoryAllocation`
const NO_MEMORY: i32 = 2;

/// A `SIGABRT` has no address.
const ABORT: i32 = 6;

/// A `SIGKILL` does not show its reason.
const KILL: i32 = 9;

impl Worker {
    /// How the rank ended, once its process is gone. Returned only once. `None` also if it did not fail.
    pub(crate) fn departs(&mut self, now: Moment) -> Option<Departure> {
        if self.is_there() || self.departed || self.process.lives() == Some(true) {
            return None;
        }
        self.departed = true;
        self.read_ledger(now);
        self.status = self.status.or_else(|| self.watch.status());
        let last = self.ledger.as_ref().map(|page| page.ledger().last.read()).unwrap_or_default();
        let gone = self.gone.unwrap_or(now);
        let killed = || self.memory.killed(self.info.pid, now);
        let Some((ending, at)) = verdict(&last, self.status, self.life, gone, killed) else {
            // The process survived an exception of its GPU.
            if let Some(file) = &self.context.gpu_core {
                let _ = fs::remove_file(file);
            }
            return None;
        };
        let asked = last.asked.clone().map(|(by, name, at)| StopRequest {
            by: Pid(by),
            name: text::clean(&name).into_owned(),
            at,
        });
        let error = error(&last, at);
        let memory = error.as_ref().and_then(|error| self.refused(&last, error));
        let report = RankExit {
            job: self.info.job.clone(),
            rank: self.info.rank,
            pid: self.info.pid,
            at,
            step: self.step.map(|(step, _)| step),
            exception: exception(&last, at),
            error,
            kernel: None,
            memory,
            asked: asked.filter(|asked| asked.at <= at),
            ending,
        };
        let is_signal = matches!(&report.ending, Ending::Signal(signal) if signal.number != TERM);
        let fault = last.fault.filter(|fault| is_signal && !fault.stack.is_empty());
        Some(Departure { report, fault, frames: Vec::new(), context: self.context.clone() })
    }
}

impl Worker {
    /// The memory whose allocation failed with this error.
    fn refused(&self, last: &LastReading, error: &ApiError) -> Option<RefusedMemory> {
        let is_of_this_call = |at: Moment| at >= error.at && at.since(error.at) < AT_THE_SAME_CALL;
        let refused = last.refused.filter(|refused| is_of_this_call(refused.at))?;
        let used = self.device.as_ref().and_then(|device| device.memory_used.zip(device.memory_total));
        let sites = self.ledger.as_ref().map(|page| self.held_memory.sites(page.ledger()));
        (error.function.starts_with("cudaMalloc") && error.code == NO_MEMORY).then(|| RefusedMemory {
            requested: refused.bytes,
            held: refused.held,
            held_at: self.held_memory.first(),
            used,
            free: refused.free,
            nccl: self.latest.memory.nccl,
            sites: sites.unwrap_or_default(),
        })
    }

    /// Whether the process exited with code 0.
    pub(super) fn exited_well(&self) -> bool {
        let last = self.ledger.as_ref().map(|page| page.ledger().last.read()).unwrap_or_default();
        // The parent sees only the lowest eight bits.
        let said = last.exit.is_some_and(|(code, _)| code as u8 == 0);
        let well = self.status.map_or(said, |status| status == ExitStatus::Code(0));
        well && last.fault.is_none_or(|fault| !fault.is_final)
    }
}

/// The cause and time of an end; `None` if the rank did not fail.
fn verdict(
    last: &LastReading,
    status: Option<ExitStatus>,
    life: Life,
    gone: Moment,
    killed: impl FnOnce() -> Option<(bool, String)>,
) -> Option<(Ending, Moment)> {
    let exit = last.exit.map(|(code, at)| (ExitStatus::Code(code & 0xff), at));
    // The kernel's status, else the process's own note. The note also counts for a process that sent a
    // goodbye and was then killed during shutdown.
    let leaving = exit.is_some() && life == Life::Ended;
    let status = status.filter(|&status| !(leaving && is_ended_by_launcher(status)));
    let (how, at) = match (status, exit) {
        (Some(status), exit) => (Some(status), exit.map_or(gone, |(_, at)| at)),
        (None, Some((code, at))) => (Some(code), at),
        (None, None) => (None, gone),
    };
    let fault = last.fault.as_ref().filter(|fault| match how {
        // The handler of a fatal signal may itself end the process by `abort()` or an exit, which is then
        // noted as the end.
        Some(ExitStatus::Signal(number)) => number == fault.number || (fault.is_final && number == ABORT),
        Some(ExitStatus::Code(_)) => fault.is_final || (status.is_none() && fault.at > at),
        None => true,
    });
    if let Some(fault) = fault {
        let noted = if fault.at == Moment(0) { gone } else { fault.at };
        let certain = fault.is_final || status == Some(ExitStatus::Signal(fault.number));
        return Some((Ending::Signal(FatalSignal { certain, ..signal(fault) }), noted));
    }
    match how {
        Some(ExitStatus::Code(0)) => return None,
        Some(ExitStatus::Code(code)) => return Some((Ending::Code(code), at)),
        // The signal's sender and reason are unknown; lack of memory is one possible reason.
        Some(ExitStatus::Signal(number)) if number != KILL => {
            return Some((Ending::Signal(bare(number, asked_by(last, gone))), gone));
        }
        Some(ExitStatus::Signal(_)) => {}
        None if asked_by(last, gone).is_some() => {
            let at = last.asked.as_ref().map_or(gone, |(_, _, at)| *at);
            return Some((Ending::Signal(bare(TERM, asked_by(last, gone))), at));
        }
        None if life == Life::Ended => return None,
        None => {}
    }
    let killed = if last.exception.is_none() { killed() } else { None };
    Some(match killed {
        Some((certain, source)) => (Ending::OutOfMemory { certain, source }, gone),
        None => (Ending::Unnoted, gone),
    })
}

/// Whether the process ended in the way in which launchers end the remaining ranks.
fn is_ended_by_launcher(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Signal(TERM | KILL))
}

/// The process that sent the SIGTERM shortly before the rank was gone, as older hooks noted it; 0 if the
/// sender was no process.
fn asked_by(last: &LastReading, gone: Moment) -> Option<u32> {
    last.asked.as_ref().filter(|(_, _, at)| gone.since(*at) <= AT_ONCE).map(|(by, _, _)| *by)
}

/// A signal with no other data than its number and sender.
fn bare(number: i32, by: Option<u32>) -> FatalSignal {
    FatalSignal {
        number,
        code: 0,
        address: None,
        sender: by.filter(|&by| number == TERM && by != 0).map(Pid),
        thread: 0,
        thread_name: String::new(),
        certain: true,
        frames: Vec::new(),
    }
}

fn signal(fault: &FaultReading) -> FatalSignal {
    let by_kernel = fault.code > 0;
    FatalSignal {
        number: fault.number,
        code: fault.code,
        address: (by_kernel && fault.number != ABORT).then_some(fault.address),
        sender: (!by_kernel && fault.number != ABORT).then_some(Pid(fault.address as u32)),
        thread: fault.thread,
        thread_name: text::clean(&fault.name).into_owned(),
        certain: fault.is_final,
        frames: Vec::new(),
    }
}

fn exception(last: &LastReading, end: Moment) -> Option<PythonException> {
    let (text, at) = last.exception.as_ref()?;
    let exception = PythonException::parse(text, *at);
    let patience = if exception.thread.is_empty() { AFTER_EXCEPTION } else { AFTER_THREADS };
    (end.since(*at) <= patience).then_some(exception)
}

fn error(last: &LastReading, end: Moment) -> Option<ApiError> {
    let lasting = last.lasting.as_ref().map(|error| (error, true));
    let (error, lasting) = lasting.or_else(|| Some((last.passing.as_ref()?, false)))?;
    let at = error.at;
    (at <= end).then(|| ApiError {
        // nvcc compiles a kernel launch to `__cudaLaunchKernel`.
        function: text::clean(error.function.trim_start_matches('_')).into_owned(),
        code: error.code,
        lasting,
        at,
    })
}

#[cfg(test)]
mod tests {
    use xpu_wire::ledger::ErrorReading;

    use super::*;

    fn judged(last: &LastReading, life: Life) -> Option<Ending> {
        ending_of(last, None, life)
    }

    fn ending_of(last: &LastReading, status: Option<ExitStatus>, life: Life) -> Option<Ending> {
        verdict(last, status, life, Moment(50), || None).map(|(ending, _)| ending)
    }

    fn fault(is_final: bool, at: u64) -> FaultReading {
        FaultReading {
            is_final,
            at: Moment(at),
            number: 11,
            code: 1,
            address: 0x10,
            thread: 5,
            name: "python3".to_owned(),
            registers: [0; 8],
            stack_from: 0,
            stack: Vec::new(),
            modules: Vec::new(),
        }
    }

    #[test]
    fn a_code_is_reported_unless_it_is_zero() {
        let exits = |code| LastReading { exit: Some((code, Moment(9))), ..LastReading::default() };
        assert_eq!(judged(&exits(3), Life::Ended), Some(Ending::Code(3)));
        assert_eq!(judged(&exits(-1), Life::Died), Some(Ending::Code(255)));
        assert_eq!(judged(&exits(0), Life::Ended), None);
        assert_eq!(judged(&exits(256), Life::Died), None);
    }

    #[test]
    fn a_signal_that_was_handled_is_the_end_only_if_no_exit_came_after_it() {
        let with = |fault, exit: Option<(i32, Moment)>| LastReading {
            fault: Some(fault),
            exit,
            ..LastReading::default()
        };
        let certain = |last: &LastReading| match judged(last, Life::Died) {
            Some(Ending::Signal(signal)) => Some(signal.certain),
            _ => None,
        };
        assert_eq!(certain(&with(fault(true, 5), Some((0, Moment(9))))), Some(true));
        assert_eq!(certain(&with(fault(false, 10), Some((0, Moment(9))))), Some(false));
        assert_eq!(judged(&with(fault(false, 5), Some((3, Moment(9)))), Life::Died), Some(Ending::Code(3)));
    }

    #[test]
    fn a_process_without_a_goodbye_or_a_note_was_killed() {
        let nothing = LastReading::default();
        assert_eq!(judged(&nothing, Life::Ended), None);
        assert_eq!(judged(&nothing, Life::Died), Some(Ending::Unnoted));
        let log = || Some((true, "the kernel's log".to_owned()));
        let killed = verdict(&nothing, None, Life::Died, Moment(50), log).map(|(ending, _)| ending);
        assert!(matches!(killed, Some(Ending::OutOfMemory { certain: true, .. })));
    }

    #[test]
    fn the_kernels_exit_status_takes_precedence() {
        let nothing = LastReading::default();
        let number = |ending| match ending {
            Some(Ending::Signal(signal)) => Some((signal.number, signal.certain)),
            _ => None,
        };
        let by = |number| Some(ExitStatus::Signal(number));
        assert_eq!(number(ending_of(&nothing, by(15), Life::Died)), Some((15, true)));
        assert_eq!(number(ending_of(&nothing, by(1), Life::Died)), Some((1, true)));
        assert_eq!(ending_of(&nothing, by(9), Life::Died), Some(Ending::Unnoted));
        assert_eq!(ending_of(&nothing, Some(ExitStatus::Code(0)), Life::Died), None);
        assert_eq!(ending_of(&nothing, Some(ExitStatus::Code(7)), Life::Died), Some(Ending::Code(7)));
        let handled = LastReading { fault: Some(fault(false, 0)), ..LastReading::default() };
        assert_eq!(number(ending_of(&handled, by(11), Life::Died)), Some((11, true)));
        assert_eq!(number(ending_of(&handled, by(15), Life::Died)), Some((15, true)), "it mended the fault");
        assert_eq!(ending_of(&handled, by(9), Life::Died), Some(Ending::Unnoted));
        assert_eq!(ending_of(&handled, Some(ExitStatus::Code(3)), Life::Died), Some(Ending::Code(3)));
        assert_eq!(number(judged(&handled, Life::Died)), Some((11, false)), "nobody knows");
        let leaving = LastReading { exit: Some((0, Moment(6))), ..LastReading::default() };
        assert_eq!([by(9), by(15)].map(|status| ending_of(&leaving, status, Life::Ended)), [None, None]);
        assert_eq!(
            ending_of(&leaving, by(9), Life::Died),
            Some(Ending::Unnoted),
            "a child in its memory said so"
        );
        assert_eq!(
            number(ending_of(&leaving, by(11), Life::Died)),
            Some((11, true)),
            "while it was torn down"
        );
        // The signal's handler ended the process, by an exit or by `abort()`.
        let last =
            LastReading { fault: Some(fault(true, 5)), exit: Some((1, Moment(6))), ..LastReading::default() };
        assert_eq!(number(ending_of(&last, Some(ExitStatus::Code(1)), Life::Died)), Some((11, true)));
        assert_eq!(number(ending_of(&last, by(6), Life::Died)), Some((11, true)));
    }

    #[test]
    fn sigterm_is_the_cause_only_if_the_end_follows_soon() {
        let last = |at| LastReading { asked: Some((7, String::new(), at)), ..LastReading::default() };
        assert!(matches!(judged(&last(Moment(49)), Life::Died), Some(Ending::Signal(_))));
        let gone = Moment(0).after(AT_ONCE * 2);
        let late = verdict(&last(Moment(1)), None, Life::Died, gone, || None).map(|(ending, _)| ending);
        assert_eq!(late, Some(Ending::Unnoted));
    }

    #[test]
    fn an_error_that_lasts_is_reported_before_one_that_passed() {
        let of = |function: &str, at| {
            Some(ErrorReading { function: function.to_owned(), code: 700, at: Moment(at) })
        };
        let last = LastReading { lasting: of("a", 1), passing: of("b", 2), ..LastReading::default() };
        assert_eq!(error(&last, Moment(3)).map(|error| error.function), Some("a".to_owned()));
    }

    #[test]
    fn names_from_the_page_are_fit_for_a_log_and_a_terminal() {
        let name = "t\u{1b}[2J\n\u{2028}\u{202e}".to_owned();
        assert_eq!(signal(&FaultReading { name: name.clone(), ..fault(true, 5) }).thread_name, "t [2J   ");
        let passing = Some(ErrorReading { function: name, code: 700, at: Moment(1) });
        let last = LastReading { passing, ..LastReading::default() };
        assert_eq!(error(&last, Moment(3)).map(|error| error.function), Some("t [2J   ".to_owned()));
    }
}
