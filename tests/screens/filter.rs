//! `/`: which ranks are listed.

use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{action::Effect, palette::Depth};
use xpu_wire::id::Rank;

use crate::{SMALL, USUAL, golden, golden_at, in_fours, one_of_a_thousand, one_slow, one_slow_at};

#[test]
fn a_filter_applies_while_it_is_typed_and_enter_keeps_it() {
    let mut lab = one_slow();
    lab.keys("/tflops<0.9*median");
    lab.screen(80, 24).shows("/ tflops<0.9*median").shows("1 of 64 ranks").shows("Enter keeps");
    golden_at("filter-typed", SMALL, &mut lab);
    let screen = lab.keys("<Enter>").screen(132, 40);
    screen.shows("Ranks / tflops<0.9*median").shows("1–1 of 1 of 64 ranks").hides("Enter keeps");
    golden("filter", &screen);
    // Keys move through the listed ranks.
    lab.keys("jj<Enter>").screen(132, 40).shows("rank 37");
}

#[test]
fn an_error_is_marked_and_the_last_valid_filter_stays() {
    let mut lab = one_slow();
    lab.keys("/rank<12 & tflps<600");
    lab.screen(80, 24)
        .shows("12 of 64 ranks")
        .shows("           ^ unknown field tflps: did you mean tflops?");
    golden_at("filter-fault", SMALL, &mut lab);
    // The filter is incomplete, so Enter does not accept it.
    lab.keys("<Enter>").screen(80, 24).shows("did you mean tflops?");
    lab.keys("<C-u>").screen(80, 24).shows("1–").hides("12 of 64 ranks").shows("for example rank<64");
    lab.keys("rank>60<Esc>").screen(80, 24).shows("of 64").hides("rank>60");
}

#[test]
fn ranks_without_a_figure_are_counted() {
    let mut lab = one_slow();
    // Simulated GPUs have no driver reports.
    lab.keys("/xid>0").screen(132, 40).shows("0 of 64 ranks").shows("no rank matches the filter");
    lab.keys("<C-u>rank<3 & blocked>=0").screen(132, 40).shows("of 64 ranks");
}

#[test]
fn words_are_completed_and_old_lines_come_back() {
    let mut lab = one_slow();
    lab.keys("/host=gpu-00<Tab>").screen(80, 24).shows("/ host=gpu-001").shows("gpu-002  gpu-003");
    lab.keys("<Tab><Enter>").screen(80, 24).shows("Ranks / host=gpu-002").shows("of 8 of 64 ranks");
    lab.keys("/<C-u>rank=5<Enter>/<C-u><Up><Up>")
        .screen(80, 24)
        .shows("/ host=gpu-002")
        .shows("8 of 64 ranks");
    lab.keys("<Down>").screen(80, 24).shows("/ rank=5");
    // Backspace in an empty filter closes it.
    lab.keys("<C-u><BS>").screen(80, 24).shows("64 of 64").hides("for example");
}

#[test]
fn ranks_outside_the_filter_are_dimmed_on_a_map_of_a_thousand() {
    let mut lab = one_of_a_thousand(Depth::True);
    let screen = lab.keys("/host~gpu-06 | 517<Enter>").screen(132, 40);
    screen.shows("╌");
    golden("filter-1024-ranks", &screen);
}

#[test]
fn ranks_outside_the_filter_are_dimmed_without_colours() {
    let mut lab = one_slow_at(Depth::None);
    golden("filter-no-color", &lab.keys("/state=slow | host=gpu-002<Enter>").screen(80, 24));
}

/// A long filter at the edge of the screen: its end is visible, and so is its error.
#[test]
fn the_end_of_a_long_filter_is_visible() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    lab.keys(&format!("/{}tflps<3", "rank<1234 & ".repeat(8)));
    lab.screen(60, 20).shows("tflps<3").shows("unknown field tflps: did you mean tflops? ^");
}

/// Merged stacks and positions show the filtered ranks. Dependencies and the report cover all ranks.
#[test]
fn stacks_show_the_filtered_ranks() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(14);
    lab.read_stacks(0..8);
    lab.keys("6").screen(132, 40).shows("of 8 ranks, the fewest first").shows("not 0-5,7");
    // The filter applies while it is typed, as on the overview.
    let screen = lab.keys("/host~002").screen(132, 40);
    screen.shows("of 4 of 8 ranks / host~002").shows("__getitem__").shows("not 4-5,7");
    screen.shows("0-5,7 wait for 6").hides("0-5,7  66,241");
    lab.keys("<Enter>");
    golden_at("filter-stacks", USUAL, &mut lab);
    lab.keys("y");
    let Some(Effect::Copy(_, report)) = lab.effects().last() else { panic!("{:?}", lab.effects()) };
    assert!(report.contains("not 0-5,7") || report.contains("ranks 0-5,7"), "{report}");
    lab.keys("/<C-u>rank>900").screen(132, 40).shows("No rank matches the filter rank>900");
    lab.keys("<Esc>").screen(132, 40).shows("of 8 ranks, the fewest first").hides("/ rank");
}

#[test]
fn communicators_show_the_filtered_ranks() {
    let mut lab = in_fours();
    lab.keys("4").screen(132, 40).shows("3 communicators").shows("/ filter");
    let screen = lab.keys("/rank=1-2").screen(132, 40);
    screen.shows("2 communicators").shows("2 of 8 ranks / rank=1-2").shows("8 of 8").hides("  0-3");
    screen.shows("     1 gpu-001").shows("     2 gpu-001").hides("     3 gpu-001");
    lab.keys("<Enter>");
    golden_at("filter-collectives", USUAL, &mut lab);
    lab.keys("/<C-u>rank>900").screen(132, 40).shows("No rank matches the filter rank>900");
    // Without the filter, all are listed.
    lab.keys("<Esc>").screen(132, 40).shows("3 communicators");
}

/// The filter has the quantity of the maps under the name `peak`: the share of the GPU's peak at its clock
/// that GEMMs reach.
#[test]
fn the_share_of_the_peak_can_be_filtered_by() {
    let mut lab = one_slow();
    lab.keys("/peak<60<Enter>").screen(132, 40).shows("1 of 64 ranks").shows("   37  gpu-005");
    lab.keys("/<C-u>peak<0.9*median<Enter>").screen(132, 40).shows("1 of 64 ranks");
    lab.keys("/<C-u>pea<Tab>").screen(132, 40).shows("/ peak");
}
