//! Hand-made stacks for the tests.

use crate::{
    frame::{RankStacks, Reading, StackFrame, TaskState, ThreadStack},
    id::{Pid, Rank},
    unit::{Moment, Nanoseconds},
};

/// A rank whose main thread is in these functions, outermost first.
pub fn rank(rank: u32, functions: &[&str]) -> RankStacks {
    RankStacks {
        job: "train".into(),
        rank: Rank(rank),
        pid: Pid(1000 + rank),
        read_at: Moment(1),
        state: Some('S'),
        reading: Reading::Running,
        held_for_native: Some(Nanoseconds(1)),
        took: Nanoseconds(1),
        why: Vec::new(),
        threads: vec![thread("MainThread", true, functions)],
        more_threads: 0,
    }
}

pub fn thread(name: &str, main: bool, functions: &[&str]) -> ThreadStack {
    let frame =
        |function: &&str| StackFrame { function: (*function).into(), file: "/job/train.py".into(), line: 3 };
    ThreadStack {
        thread: Some(7),
        name: name.into(),
        main,
        owns_gil: false,
        inside: None,
        task: Some(TaskState { letter: 'S', waits_in: Some("futex_wait_queue".into()), call: Some(202) }),
        frames: functions.iter().map(frame).collect(),
        more_frames: 0,
    }
}
