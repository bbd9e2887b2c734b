//! The quantities of the heatmaps.

use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::palette::Depth;
use xpu_wire::{frame::Body, id::Rank};

use crate::{
    SIZES, SMALL, USUAL, golden, golden_at, golden_at_both, one_of_a_thousand, one_slow, one_slow_at,
};

#[test]
fn arrival_skew_and_step_time_can_be_chosen() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8)).run(60).slow_down(Rank(37), 1.6).run(60);
    let screen = lab.keys("ma<Enter>").screen(132, 40);
    screen.shows("arrival skew ms").shows("step time ms").shows("highest rank").hides("NCCL bus GB/s");
    golden("arrival-skew", &screen);
    lab.keys("mg<Enter>").screen(132, 40).shows("GEMM TFLOPS over GEMM time").shows("NCCL bus GB/s");
    lab.keys("mm<Enter>").screen(132, 40).shows("GPU %").shows("memory GiB");
}

/// Ranks that wait for a slow rank have more exposed communication, and the slow rank has less.
#[test]
fn exposed_communication_is_the_last_map() {
    let mut lab = one_slow();
    let screen = lab.keys("me<Enter>").screen(132, 40);
    screen.shows("exposed comm % GEMMs wait for NCCL").shows("GEMM TFLOPS over GEMM time");
    golden("exposed", &screen);
    lab.keys("mg<Enter>:metric exposed<Enter>").screen(132, 40).shows("exposed comm %");
    lab.keys("/exposed<12<Enter>").screen(132, 40).shows("1 of 64");
}

#[test]
fn clocks_power_load_and_memory_can_be_chosen() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8)).slow_down(Rank(37), 1.4).run(40);
    for second in [1_881, 1_882] {
        let mut frames = lab.simulation().digests(second);
        let Body::Digest(digest) = &mut frames[4].body else { unreachable!() };
        digest.ranks[5].device.as_mut().unwrap().sm_clock = Some(1275);
        lab.arrive(frames);
    }
    let screen = lab.keys("m%<Enter>").screen(132, 40);
    // At its clock the rank does as well as the others at theirs, so the cause is the clock and not the
    // program.
    screen
        .shows("% of peak")
        .shows("SM clock MHz")
        .shows("lowest rank 37 at 1,275.0")
        .hides("lowest rank 37 at 7");
    golden("clocks", &screen);
    lab.keys("mp<Enter>").screen(132, 40).shows("power W").shows("GPU °C");
    lab.keys("mm<Enter>").screen(132, 40).shows("GPU %").shows("memory GiB").hides("lowest rank");
}

#[test]
fn gpus_without_driver_reports_show_nothing() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    let mut frames = lab.simulation().digests(1_841);
    let Body::Digest(digest) = &mut frames[0].body else { unreachable!() };
    digest.ranks.iter_mut().for_each(|rank| (rank.device, rank.gemm_at_peak) = (None, None));
    lab.arrive(frames);
    lab.screen(132, 40).shows("skew ms").shows("1 of 3, m").hides("SM MHz").hides("°C");
    lab.keys("ma<Enter>").screen(132, 40).shows("arrival skew ms").shows("step time ms");
    lab.keys("me<Enter>").screen(132, 40).shows("exposed comm %").shows("GEMM TFLOPS");
    lab.keys("mg<Enter>").screen(132, 40).shows("GEMM TFLOPS").shows("NCCL bus GB/s");
}

#[test]
fn the_past_shows_since_when_a_rank_is_slow() {
    let mut lab = one_slow();
    lab.keys("x");
    for (width, height) in SIZES {
        lab.screen(width, height).shows("lowest rank 37");
    }
    golden_at_both("past", &mut lab);
    let screen = lab.screen(132, 40);
    screen
        .shows("last 3 m")
        .shows("5 s a cell")
        .shows("4 ranks a row, the worst shown")
        .shows("gpu-005 32-39▼");
    // The same keys choose the quantity for the present and over time, and lead back.
    lab.keys("ma<Enter>").screen(132, 40).shows("arrival skew ms over time").shows("step time ms over time");
    lab.keys("x").screen(132, 40).shows("arrival skew ms into a collective");
}

#[test]
fn ranks_and_time_are_folded_to_fit() {
    let mut lab = one_of_a_thousand(Depth::True);
    lab.keys("x").screen(132, 40).shows("40 ranks a row, the worst shown").shows("480-559 ▼");
    golden_at("past-1024-ranks", USUAL, &mut lab);
    let mut lab = Lab::new(Simulation::new(7, 1, 8)).run(1_000);
    lab.keys("x").screen(132, 40).shows("last 17 m").shows("30 s a cell").hides("the worst shown");
    let mut plain = one_slow_at(Depth::None);
    let screen = plain.keys("x").screen(132, 40);
    screen.shows("▼▼▼").shows("8 ranks a row");
    golden("past-no-color", &screen);
}

/// There is no history from before monitoring began. A hang leaves no gap in the history.
#[test]
fn the_past_begins_when_the_screen_started() {
    let mut lab = Lab::at_rest(Simulation::new(7, 8, 8), Depth::True);
    (0..8).for_each(|host| lab.link(host, xpu_client::arrival::Link::Up));
    let snapshots = lab.simulation().snapshots(1_800);
    lab.arrive(snapshots);
    lab.keys("x").screen(132, 40).shows("last 5 s").shows("not watched yet");
    golden_at("past-begins", SMALL, &mut lab);
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(30);
    lab.keys("<Esc>x").screen(132, 40).shows("✖").shows("◌");
    golden_at("past-hang", SMALL, &mut lab);
}

#[test]
fn folded_ranks_show_and_name_the_worst() {
    let mut lab = one_slow();
    let screen = lab.keys("F").screen(132, 40);
    screen
        .shows("Hosts the worst rank of each, by GEMM TFLOPS")
        .shows("gpu-005 ×8")
        .shows("▼490       rank 37");
    screen.shows("use --groups tp4-dp2").hides("gpu-005 ×8       0");
    for (width, height) in SIZES {
        lab.screen(width, height).shows("gpu-005 ×8").shows("  37");
    }
    golden_at_both("fold-hosts", &mut lab);
    // Sorted by arrival skew, each row shows its latest rank. Enter shows the rank itself.
    lab.keys("osss<Enter>").screen(132, 40).shows("by arrival skew ms");
    lab.keys("gG<Enter>").screen(132, 40).shows("Rank ");
    lab.keys("<Esc>xF").screen(132, 40).shows("Ranks ").hides("×8");
}

#[test]
fn groups_that_were_reported_are_folded_axis_by_axis() {
    let mut lab = one_slow();
    lab.app().lay_out("tp8-dp4-pp2".parse().ok());
    lab.keys("FF").screen(132, 40).shows("tp groups").shows("dp0 pp1 ×8").shows("the worst rank of each");
    golden_at("fold-groups", USUAL, &mut lab);
    lab.keys("F").screen(132, 40).shows("dp groups").shows("tp5 pp0 ×4");
    lab.keys("x").screen(132, 40).shows("tp5 pp1▼").shows("the worst rank of each");
    lab.keys("F").screen(132, 40).shows("pp groups").shows("×2");
    lab.keys("F").screen(132, 40).shows("Ranks ");
    lab.app().lay_out("tp4-dp2".parse().ok());
    lab.screen(132, 40).shows("--groups covers 8 ranks, the job has 64: ignored");
}
