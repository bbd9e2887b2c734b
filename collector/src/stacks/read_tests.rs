use xpu_wire::frame::{Reading, StackFrame, TaskState};

use super::*;

fn thread(number: Option<u32>, name: &str, frames: usize) -> ThreadStack {
    let frame = |n| StackFrame { function: format!("f{n}"), file: "a.py".into(), line: 1 };
    ThreadStack {
        thread: number,
        name: name.into(),
        main: name == "MainThread",
        owns_gil: false,
        inside: None,
        task: None,
        frames: (0..frames).map(frame).collect(),
        more_frames: 0,
    }
}

fn task(number: u32, name: &str) -> ThreadStack {
    let task = TaskState { letter: 'S', waits_in: None, call: None };
    ThreadStack { main: number == 1, task: Some(task), ..thread(Some(number), name, 0) }
}

#[test]
fn a_thread_of_python_and_of_the_kernel_is_one() {
    let python = vec![thread(Some(2), "loader", 3), thread(Some(1), "MainThread", 3)];
    let all = joined(python, vec![task(1, "python3"), task(2, "python3"), task(3, "nccl")]);
    let names: Vec<_> = all.iter().map(|thread| (thread.name.as_str(), thread.task.is_some())).collect();
    assert_eq!(names, [("MainThread", true), ("loader", true), ("nccl", true)]);
}

#[test]
fn a_main_thread_without_a_number_is_listed_once() {
    let all = joined(vec![thread(None, "MainThread", 3)], vec![task(1, "python3"), task(3, "nccl")]);
    let names: Vec<_> = all.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["MainThread", "nccl"]);
}

#[test]
fn stacks_that_do_not_fit_are_counted() {
    let stacks = RankStacks {
        reading: Reading::Running,
        threads: (0..300).map(|n| thread(Some(n), "t", 100)).collect(),
        more_threads: 5,
        ..RankStacks::unread("".into(), Rank(0), Pid(1), String::new())
    };
    let bounded = bounded(stacks);
    assert_eq!((bounded.threads.len(), bounded.more_threads), (RankStacks::THREADS, 49));
    let kept = |thread: &ThreadStack| (thread.frames.len(), thread.more_frames);
    assert_eq!(kept(&bounded.threads[80]), (100, 0));
    assert_eq!((kept(&bounded.threads[81]), kept(&bounded.threads[82])), ((92, 8), (0, 100)));
    // The innermost frames are kept.
    assert_eq!(bounded.threads[81].frames[0].function, "f8");
}

#[test]
fn the_longest_stacks_fit_into_a_frame() {
    let text = "\u{1f40d}".repeat(RankStacks::TEXT / 4);
    let frame = StackFrame { function: text.clone(), file: text.clone(), line: u32::MAX };
    let full = ThreadStack { frames: vec![frame; RankStacks::FRAMES], ..thread(Some(u32::MAX), &text, 0) };
    let stacks = RankStacks {
        threads: vec![full; RankStacks::THREADS],
        why: vec![text; RankStacks::WHY],
        ..RankStacks::unread("j".into(), Rank(0), Pid(1), String::new())
    };
    let mut bytes = Vec::new();
    say(stacks, &mut bytes).unwrap();
    assert!(codec::decode(&bytes).is_ok(), "{} bytes", bytes.len());
}
