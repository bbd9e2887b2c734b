//! A hung job, and the stacks.

use xpu_recording::Span;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{
    action::{Action, Effect, Reading},
    palette::Depth,
    playback::{Of, Playback},
    update::update,
};
use xpu_wire::{
    frame::{Body, Event, Frame, Life, StackFrame},
    id::{Pid, Rank},
    unit::Moment,
};

use crate::{SMALL, USUAL, golden, golden_at, golden_at_both};

/// Eight ranks. Rank 6 did not enter the next collective, fourteen seconds ago.
fn hung() -> Lab {
    Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(14)
}

#[test]
fn a_hang_opens_its_page_until_the_user_leaves_it() {
    let mut lab = hung();
    let screen = lab.screen(132, 40);
    screen.shows("✖ HANG ").shows("rank 6").shows("0-5,7 wait for 6");
    assert!(lab.effects().iter().any(
        |effect| matches!(effect, Effect::AskStacks { ranks, reading: Reading::Kept, .. } if ranks.len() == 8)
    ));
    screen.shows("Reading the stacks of 8 ranks");
    golden_at("hang-reading", USUAL, &mut lab);
    lab.read_stacks([0, 1, 6]);
    lab.screen(132, 40).shows("3 of 8 ranks");
    lab.read_stacks(0..8);
    lab.screen(132, 40)
        .shows("__getitem__")
        .shows("dataset.py:88")
        .shows("not 0-5,7")
        .shows("in cudaStreamSynchronize");
    golden_at_both("hang", &mut lab);
    // The job continues: the panel stays and shows that.
    let mut lab = lab.go_on().run(4);
    lab.screen(80, 24).shows("RESUMED at").shows("__getitem__");
    // The finding is no longer current.
    lab.screen(132, 40)
        .shows("until then: rank 6 (gpu-002)")
        .shows("rank 6 was in __getitem__")
        .hides("next: ");
    lab.keys("<Esc>").screen(80, 24).hides("RESUMED").shows("Ranks");
}

/// `U` asks for confirmation, because reading the GPUs ends the ranks.
#[test]
fn the_kernels_on_the_gpus_are_read_at_the_second_request() {
    let mut lab = hung();
    lab.read_stacks(0..8);
    lab.keys("U")
        .screen(132, 40)
        .shows("press U again after a second to name the kernels; this ends all ranks");
    let asked = |lab: &Lab| {
        lab.effects().iter().any(|effect| {
            matches!(effect, Effect::AskStacks { ranks, reading: Reading::Gpus, .. } if ranks.is_empty())
        })
    };
    lab.keys("U");
    assert!(!asked(&lab), "a key that is held");
    let mut lab = lab.run(2);
    lab.keys("U");
    assert!(asked(&lab));
    let frame = |line: &str| StackFrame { function: line.to_owned(), file: String::new(), line: 0 };
    lab.read_stacks_with(0..8, |rank| {
        let [kernel, size, extent] = if rank == 6 {
            ["at::cuda::spin_kernel", "grid 1x1x1, block 1x1x1", "1 block on 1 SM"]
        } else {
            ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "grid 24x1x1, block 544x1x1", "24 blocks on 24 SMs"]
        };
        [kernel, size, extent].map(frame).into()
    });
    lab.screen(132, 40).shows("GPU").shows("spin_kernel").shows("ncclDevKernel_AllReduce_Sum_bf16");
    lab.screen(132, 40).shows("24 blocks on 24 SMs").shows("1 block on 1 SM");
    golden_at_both("hang-gpus", &mut lab);
    // `U` does not end the ranks of a running job.
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).run(14);
    lab.keys("sUU").screen(132, 40).shows("the job does not hang");
    assert!(!asked(&lab));
}

/// After a stopped process (SIGSTOP) continues (SIGCONT), the screen no longer reports that it does not run.
#[test]
fn a_stopped_rank_that_continues_is_a_past_finding() {
    let mut lab = hung();
    let mut frame = lab.simulation().digests(1_854).remove(1);
    let job = lab.simulation().job.clone();
    frame.body = Body::Event(Event::Life { job, rank: Rank(6), pid: Pid(4006), life: Life::Silent });
    lab.arrive(vec![frame]);
    let screen = lab.screen(132, 40);
    screen.shows("✖ HANG ").shows("rank 6 (gpu-002) has stopped running, the job hangs").shows("next: ");
    let mut lab = lab.go_on().run(4);
    let screen = lab.screen(132, 40);
    screen.shows("RESUMED at").shows("until then: rank 6 (gpu-002) has stopped running");
    screen.hides("✖ HANG ").hides("next: ");
    lab.keys("<Esc>").screen(132, 40).hides("stopped running").shows("● LIVE");
}

/// Old figures are shown with their age.
#[test]
fn the_report_shows_the_age_of_old_figures() {
    let mut lab = hung().run_only(20, |frame| frame.host.as_str() != "gpu-001");
    lab.keys("y");
    let Some(Effect::Copy(_, text)) = lab.effects().last() else { panic!("no report") };
    let group = text.lines().find(|line| line.contains("entered ") && line.contains("as it was "));
    assert!(group.is_some_and(|line| line.contains("ranks 0-5,7") && line.ends_with(" s ago")), "{text}");
    let mut lab = hung().run_only(20, |_| false);
    lab.keys("y");
    let Some(Effect::Copy(_, text)) = lab.effects().last() else { panic!("no report") };
    assert!(
        text.lines().nth(1).is_some_and(|head| head.contains(" a step, ") && head.ends_with(" ago")),
        "{text}"
    );
}

/// The hang has the same name in a replay as live.
#[test]
fn a_hang_that_is_replayed_is_a_hang() {
    let mut lab = hung();
    let now = lab.now();
    lab.app().replay(Playback::new(Of::File, Span { first: Moment(0), last: now }));
    lab.screen(132, 40).shows("✖ HANG 13 s").hides("PARTIAL");
}

#[test]
fn a_hang_does_not_change_the_page_of_a_user_who_looks_elsewhere() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("4");
    let mut lab = lab.hang(Rank(6)).run(14);
    lab.screen(132, 40).shows("Communicators").shows("✖ ").shows("rank 6");
    lab.keys("s").screen(132, 40).shows("✖ HANG ");
    // Once seen, the hang page does not open again by itself. The overview names the hang, and the key for
    // the stacks.
    let mut lab = {
        lab.keys("<Esc>");
        lab.run(3)
    };
    lab.screen(80, 24).hides("Where ranks are").shows("✖ HANG ").shows("s shows every rank's stack");
}

/// The past shows the hang too. The return to the present does not open it as a new hang.
#[test]
fn a_hang_that_was_seen_does_not_open_again_after_a_look_at_the_past() {
    let mut lab = hung();
    lab.keys("<Esc>").screen(80, 24).hides("Where ranks are");
    let now = lab.now();
    lab.app().replay(Playback::new(Of::Live, Span { first: Moment(0), last: now }));
    update(lab.app(), Action::Rewind);
    update(lab.app(), Action::GoLive);
    let mut lab = lab.run(3);
    lab.screen(80, 24).hides("Where ranks are").shows("s shows every rank's stack");
}

/// A waiting rank is neither healthy nor the cause. Nothing on the screen claims that all is in order.
#[test]
fn the_overview_of_a_hung_job_names_waiting_and_missing_ranks() {
    let mut lab = hung();
    lab.read_stacks(0..8).keys("<Esc>");
    for screen in [lab.screen(132, 40), lab.screen(80, 24)] {
        screen
            .shows("rank 6 (gpu-002) did not enter AllReduce")
            .shows("rank 6 is in __getitem__ (llama/dataset.py:88)")
            .shows("s shows every rank's stack")
            .shows("✖ HANG 13 s")
            .shows("✖ hung")
            .shows("◌ waits")
            .hides("LIVE")
            .hides("● ok");
    }
    golden_at_both("overview-hang", &mut lab);
    let mut lab = lab.run(40);
    lab.screen(132, 40).shows("✖ rank 6   ◌ 7 wait").hides("nothing timed yet");
    golden_at("overview-hang-long", SMALL, &mut lab);
}

/// After half a minute without a step, no step is current. Arrival skew is judged as a share of a step, so
/// the old differences of a millisecond mean nothing and are not shown.
#[test]
fn a_hung_job_shows_no_earlier_arrival_skew() {
    let mut lab = hung().run(45);
    lab.read_stacks(0..8);
    let screen = lab.keys("<Esc>ma<Enter>").screen(132, 40);
    screen.shows("✖ HANG ").hides("arrival skew ms").hides("▲").hides("highest rank");
    lab.keys("mg<Enter>").screen(132, 40).shows("last GEMM").shows("last NCCL bus");
}

/// The ends of branches matter most, so frames in the middle are omitted.
#[test]
fn a_short_terminal_shows_branch_ends_and_keys() {
    let mut lab = hung();
    lab.read_stacks(0..8);
    let screen = lab.screen(80, 24);
    screen.shows("in cudaStreamSynchronize").shows("py __getitem__").hides("next: ");
    screen.shows("6 stack ").shows("? help");
    lab.screen(100, 24).shows("6 stack ").shows("w flame");
    // On a lower terminal the frames in the middle of a branch are only counted, until the user moves through
    // them.
    lab.screen(80, 21)
        .shows("in cudaStreamSynchronize")
        .shows("py __getitem__")
        .shows("frames, j shows them");
    lab.keys("j").screen(80, 21).hides("j shows them").shows("__next__");
    lab.screen(132, 40).shows("os kernel");
}

#[test]
fn one_key_selects_the_outlier_and_branches_close() {
    let mut lab = hung();
    lab.read_stacks(0..8);
    lab.keys("n<Enter>").screen(132, 40).shows("▶ 6").hides("__next__");
    lab.keys("<Enter>").screen(132, 40).shows("__next__");
    lab.keys("T").screen(132, 40).shows("▌");
    golden("hang-no-color", &{
        let mut lab = Lab::with_depth(Simulation::new(7, 2, 4), Depth::None).hang(Rank(6)).run(14);
        lab.read_stacks(0..8).keys("n").screen(132, 40)
    });
}

#[test]
fn stacks_are_requested_when_shown_and_silence_is_reported() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("s").screen(132, 40).shows("Reading the stacks of 8 ranks");
    assert!(matches!(lab.effects(), [Effect::AskStacks { reading: Reading::Running, .. }]));
    let mut lab = lab.run(20);
    lab.screen(132, 40).shows("No collector sent stacks");
    golden_at("stacks-silent", USUAL, &mut lab);
}

/// If ptrace is refused, the screen shows this together with the kernel's data.
#[test]
fn unreadable_stacks_are_reported_with_their_ranks() {
    let mut lab = hung();
    let job = lab.simulation().job.clone();
    let frame = lab.simulation().digests(1).remove(0);
    lab.read_stacks(0..8);
    let refused = (4..8).map(|rank| {
        let why = "Python frames: ptrace is not allowed (kernel.yama.ptrace_scope is 1): run the collector as the job's parent, or with CAP_SYS_PTRACE".to_owned();
        let pid = xpu_wire::id::Pid(4000 + rank);
        let mut stacks = xpu_wire::frame::RankStacks::unread(job.clone(), Rank(rank), pid, why);
        (stacks.state, stacks.read_at) = (Some('S'), frame.now);
        Frame { body: Body::Stacks(stacks), ..frame.clone() }
    });
    lab.arrive(refused.collect());
    lab.screen(132, 40).shows("▲ ranks 4-7: Python frames: ptrace is not allowed");
    golden_at("stacks-refused", SMALL, &mut lab);
}

#[test]
fn the_report_and_the_flame_graph_are_requested_as_effects() {
    let mut lab = hung();
    lab.read_stacks(0..8).keys("wy");
    let [Effect::Write(flame, svg), Effect::Copy(report, text)] = &lab.effects()[lab.effects().len() - 2..]
    else {
        panic!("{:?}", lab.effects().len())
    };
    assert!(flame.to_str().unwrap().starts_with("xpu-top-stacks-llama-70b-") && svg.contains("__getitem__"));
    assert!(report.to_str().unwrap().starts_with("xpu-top-report-llama-70b-"));
    for expected in [
        "job llama-70b",
        "rank 6",
        "next: ",
        "Stacks, read at 20",
        "Ranks of communicator",
        "ranks 0-5,7: entered",
        "__getitem__",
        "Log:",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}
