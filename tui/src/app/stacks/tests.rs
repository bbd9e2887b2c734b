use xpu_model::job::Jobs;
use xpu_simulation::Simulation;
use xpu_wire::{
    frame::{Body, RankStacks, Reading, StackFrame, ThreadStack},
    id::{Pid, Rank},
    unit::Nanoseconds,
};

use super::*;

fn thread(name: &str, main: bool, functions: &[&str]) -> ThreadStack {
    let frame = |function: &&str| StackFrame {
        function: (*function).to_owned(),
        file: "/job/train.py".to_owned(),
        line: 3,
    };
    ThreadStack {
        thread: Some(7),
        name: name.to_owned(),
        main,
        owns_gil: false,
        inside: None,
        task: None,
        frames: functions.iter().map(frame).collect(),
        more_frames: 0,
    }
}

fn rank(rank: u32, functions: &[&str]) -> RankStacks {
    RankStacks {
        job: "train".into(),
        rank: Rank(rank),
        pid: Pid(4000 + rank),
        read_at: Moment(u64::MAX),
        state: Some('S'),
        held_for_native: None,
        reading: Reading::Running,
        took: Nanoseconds(1),
        why: Vec::new(),
        threads: vec![thread("MainThread", true, functions), thread("pin", false, &["run", "wait"])],
        more_threads: 0,
    }
}

/// The job whose ranks have these stacks.
fn job(stacks: Vec<RankStacks>) -> Jobs {
    let simulation = Simulation { job: "train".into(), ..Simulation::new(1, 1, 4) };
    let mut jobs = Jobs::default();
    let mut snapshot = simulation.snapshots(1).remove(0);
    jobs.fold(&snapshot);
    for stacks in stacks {
        snapshot.body = Body::Stacks(stacks);
        jobs.fold(&snapshot);
    }
    jobs
}

fn settled(stacks: &mut Stacks, came: Vec<RankStacks>) {
    stacks.settle(job(came).foremost().unwrap(), None, None);
}

/// Ranks 0 to 2 in a collective, rank 3 in the loader.
fn parted() -> Stacks {
    let mut stacks = Stacks::default();
    settled(&mut stacks, all());
    stacks
}

fn all() -> Vec<RankStacks> {
    let functions: fn(u32) -> &'static [&'static str] =
        |number| if number == 3 { &["main", "load", "read"] } else { &["main", "step", "reduce"] };
    (0..4).map(|number| rank(number, functions(number))).collect()
}

fn names(stacks: &Stacks) -> Vec<String> {
    let name = |row: &StackRow| match &row.shown {
        Shown::Frame(word) => word.name.clone(),
        Shown::Closed { innermost, hidden, .. } => format!("{hidden} > {}", innermost.name),
        Shown::Native { frames, innermost } => format!("{frames} native > {}", innermost.name),
        Shown::Left(frames) => format!("{frames} left"),
        Shown::NoDeeper => "no deeper".to_owned(),
    };
    stacks.rows().iter().map(name).collect()
}

#[test]
fn the_main_thread_is_open_the_fewest_first_and_the_others_are_one_line_each() {
    let stacks = parted();
    assert_eq!(names(&stacks), ["main thread", "main", "load", "read", "step", "reduce", "1 > wait"]);
}

#[test]
fn the_outlier_is_one_key_away() {
    let mut stacks = parted();
    stacks.next_outlier();
    let at = stacks.at().unwrap();
    assert_eq!((at, stacks.rows()[at].here.to_string()), (2, "3".to_owned()));
    // There is only one outlier, so the next one is the same.
    stacks.next_outlier();
    assert_eq!(stacks.at(), Some(at));
}

#[test]
fn a_branch_closes_from_any_of_its_lines_and_opens_again() {
    let mut stacks = parted();
    stacks.travel(Motion::First);
    (0..3).for_each(|_| stacks.travel(Motion::Down));
    stacks.toggle_branch();
    assert_eq!(names(&stacks), ["main thread", "main", "1 > read", "step", "reduce", "1 > wait"]);
    assert_eq!(stacks.at(), Some(2));
    stacks.toggle_branch();
    assert_eq!(stacks.rows().len(), 7);
}

#[test]
fn closed_frames_stay_closed_when_stacks_are_read_again() {
    let mut stacks = parted();
    stacks.next_outlier();
    stacks.toggle_branch();
    // Another tree, with one rank fewer.
    settled(&mut stacks, all().into_iter().skip(1).collect());
    assert_eq!(names(&stacks)[2], "1 > read");
    assert_eq!(stacks.at(), Some(2));
}

/// The native path of a call to the place where it waits is rarely needed.
#[test]
fn native_frames_below_those_of_python_are_one_line_until_they_are_asked_for() {
    let native = |function: &str| StackFrame {
        function: function.to_owned(),
        file: "/usr/lib/libffi.so.8".to_owned(),
        line: 0,
    };
    let mut stacks = Stacks::default();
    let all = ["step", "load"].into_iter().zip(0..);
    let all = all.map(|(function, number)| {
        let mut stacks = rank(number, &["main", function]);
        stacks.threads[0].frames.extend(["ffi_call", "poll"].map(native));
        stacks.threads[1].frames = ["start_thread", "poll"].map(native).to_vec();
        stacks
    });
    settled(&mut stacks, all.collect());
    let folded = ["main thread", "main", "step", "2 native > poll", "load", "2 native > poll", "1 > poll"];
    assert_eq!(names(&stacks), folded);
    // A thread without Python has nothing else to show.
    stacks.next_thread();
    stacks.next_thread();
    stacks.toggle_branch();
    assert_eq!(names(&stacks)[6..], ["thread pin (no Python)", "start_thread", "poll"]);
    stacks.toggle_natives();
    assert_eq!(names(&stacks)[2..5], ["step", "ffi_call", "poll"]);
}

#[test]
fn one_key_cycles_through_threads() {
    let mut stacks = parted();
    stacks.next_thread();
    assert_eq!(stacks.at(), Some(0));
    stacks.next_thread();
    assert_eq!(stacks.at(), Some(6));
    stacks.next_thread();
    assert_eq!(stacks.at(), Some(0));
}

#[test]
fn a_long_common_path_is_shortened_in_the_middle() {
    let deep: Vec<_> = (0..20).map(|n| format!("f{n}")).collect();
    let deep: Vec<_> = deep.iter().map(String::as_str).collect();
    let mut stacks = Stacks::default();
    settled(&mut stacks, (0..4).map(|number| rank(number, &deep)).collect());
    let names = names(&stacks);
    assert_eq!(names[..3], ["main thread", "14 left", "f14"]);
    assert_eq!(names[7], "f19");
}

#[test]
fn a_rank_that_does_not_answer_is_awaited_and_then_reported_silent() {
    let at = |seconds: u64| Moment(seconds * 1_000_000_000);
    let mut stacks = Stacks::default();
    settled(&mut stacks, Vec::new());
    assert_eq!(stacks.state(at(1)), StackState::NotRequested);
    stacks.ask(at(1));
    assert_eq!(stacks.state(at(2)), StackState::Coming(0));
    assert_eq!(stacks.state(at(20)), StackState::Silent);
    settled(&mut stacks, all().into_iter().skip(1).collect());
    assert_eq!(stacks.state(at(4)), StackState::Coming(3));
    assert_eq!(stacks.state(at(20)), StackState::Here);
    let mut refused = Stacks::default();
    refused.refuse("a recording".to_owned());
    assert_eq!(refused.state(at(1)), StackState::Refused("a recording".to_owned()));
}

#[test]
fn only_a_second_request_for_the_gpus_soon_after_the_first_confirms_it() {
    let mut stacks = Stacks::default();
    let at = |seconds: u64| Moment(seconds * 1_000_000_000);
    assert!(!stacks.confirms_gpus(at(100)));
    assert!(!stacks.confirms_gpus(at(100)), "a key that is held");
    assert!(stacks.confirms_gpus(at(105)));
    assert!(!stacks.confirms_gpus(at(106)), "each reading is confirmed by itself");
    assert!(!stacks.confirms_gpus(at(117)), "too late");
    assert!(stacks.confirms_gpus(at(126)));
}
