//! Example frames for the tests of every crate.

pub mod capture;
pub mod host;
pub mod stacks;

use super::{
    ApiError, CallSite, Ending, FailedKernel, FatalSignal, JobWhatIf, MemorySite, PythonException, RankExit,
    RasCommunicator, RasCounts, RasRank, RasReport, RefusedMemory, StackFrame, StopRequest, StragglerCause,
};
use crate::{
    id::{CommunicatorId, Pid, Rank, Step},
    unit::{Moment, Nanoseconds},
};

/// The answer of RAS about one communicator: how often its members have launched an `AllReduce`.
pub fn ras(launched: &[(u32, u64)]) -> RasReport {
    let rank = |&(member, all_reduce): &(u32, u64)| RasRank {
        member,
        pid: Some(Pid(7000 + member)),
        launched: RasCounts { all_reduce, ..RasCounts::default() },
        ..RasRank::default()
    };
    let communicator = RasCommunicator {
        id: CommunicatorId(0x9ca7_92c9_0000_0001),
        size: launched.len() as u32,
        ranks: launched.iter().map(rank).collect(),
        missing: Vec::new(),
    };
    RasReport {
        job: "j".into(),
        asked_at: Moment(9_000_000_000),
        address: "localhost:28028".to_owned(),
        nccl: "2.28.9+cuda13.0".to_owned(),
        communicators: vec![communicator],
        took: Nanoseconds(1_000_000),
        timeouts: 0,
        why: String::new(),
    }
}

/// What a slow rank has cost a job in five hours.
pub fn what_if() -> JobWhatIf {
    let sentence = "If rank 12 were as fast as the others, a step would take 97.1 ms instead of 112.4 ms.";
    JobWhatIf {
        job: "j".into(),
        since: Moment(1_795_743_631_000_000_000),
        at: Moment(1_795_761_187_000_000_000),
        estimates: 59,
        failed: 0,
        why: String::new(),
        steps: 17_670,
        gpu_hours: 8.827,
        lost: vec![
            (StragglerCause::All, 1.204),
            (StragglerCause::Ranks, 1.198),
            (StragglerCause::Communication, 0.002),
        ],
        ranks: vec![(Rank(12), 1.198)],
        hosts: Vec::new(),
        sentences: vec![sentence.to_owned()],
    }
}

/// A rank that died of a SIGSEGV, after an error of CUDA and an exception.
pub fn exit() -> RankExit {
    let frame = StackFrame { function: "step".to_owned(), file: "/a/train.py".to_owned(), line: 12 };
    RankExit {
        job: "j".into(),
        rank: Rank(3),
        pid: Pid(7),
        at: Moment(2_000_000_000),
        step: Some(Step(40)),
        ending: Ending::Signal(FatalSignal {
            number: 11,
            code: -6,
            address: Some(16),
            sender: None,
            thread: 8,
            thread_name: "python3".to_owned(),
            certain: true,
            frames: vec![frame.clone()],
        }),
        exception: Some(PythonException::parse("E\0\0m\0f\tg\t1\n", Moment(1))),
        error: Some(ApiError { function: "cudaFree".to_owned(), code: 700, lasting: true, at: Moment(1) }),
        kernel: Some(FailedKernel {
            device: 0,
            name: "scatter".to_owned(),
            error: "illegal address".to_owned(),
            block: Some([1, 0, 0]),
            grid_size: Some([3, 1, 1]),
            block_size: Some([64, 1, 1]),
            blocks: 3,
            sms: 3,
        }),
        memory: Some(RefusedMemory {
            requested: 2 << 30,
            held: 70 << 30,
            held_at: Some((Step(10), 61 << 30)),
            used: Some((79 << 30, 80 << 30)),
            free: Some(1 << 30),
            nccl: Some(3 << 29),
            sites: vec![MemorySite {
                site: CallSite { frames: vec![frame], returns_to: 16, native: "f+0x10".to_owned() },
                held: 30 << 30,
                held_before: Some(21 << 30),
                allocations: 450,
                first_step: Step(2),
                last_step: Step(460),
            }],
        }),
        asked: Some(StopRequest { by: Pid(1), name: "torchrun".to_owned(), at: Moment(1) }),
    }
}
