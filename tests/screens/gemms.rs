//! GEMMs by shape.

use xpu_client::live::WatchedRanks;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{action::Effect, palette::Depth};
use xpu_wire::{frame::Body, id::Rank};

use crate::{SIZES, SMALL, USUAL, golden_at, one_of_a_thousand, one_slow};

fn watched(lab: &Lab) -> usize {
    match lab.effects().last() {
        Some(Effect::WatchRanks(Some(WatchedRanks { ranks, .. }))) => ranks.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_shape_has_its_rate_its_share_and_its_slowest_rank() {
    let mut lab = one_slow();
    lab.keys("3");
    assert_eq!(watched(&lab), 64);
    let mut lab = lab.run(20);
    let screen = lab.screen(132, 40);
    screen.shows("13 shapes of 64 ranks").shows("57344x1024x8192 bf16 TN").shows("▼    37  -23 %");
    for size in SIZES {
        golden_at("gemms", size, &mut lab);
    }
    // The page shows the slowest rank of this shape alone.
    lab.keys("<Enter>").screen(132, 40).shows("Rank 37");
    lab.keys("<Esc>").screen(132, 40).shows("GEMM by shape");
    lab.keys("<Esc>");
    assert_eq!(lab.effects().last(), Some(&Effect::WatchRanks(None)));
}

#[test]
fn the_list_is_sorted_and_what_is_selected_stays() {
    let mut lab = one_slow();
    lab.keys("3");
    let mut lab = lab.run(3);
    lab.screen(132, 40).shows("share↓").shows("▌8192x57344x1024 bf16 NT");
    // Sorted by TFLOPS: the GEMM of the loss is by far the slowest.
    lab.keys("ot<Enter>g").screen(132, 40).shows("TFLOPS↑").shows("▌256x1024x1024 f32 TN");
    lab.keys("O").screen(132, 40).shows("TFLOPS↓").shows("▌256x1024x1024 f32 TN");
    lab.keys("g").screen(132, 40).hides("▌256x1024x1024 f32 TN");
    lab.keys("G").screen(80, 24).shows("▌256x1024x1024 f32 TN");
    lab.keys("k<PgUp>").screen(80, 24).hides("▌256x1024x1024 f32 TN");
}

#[test]
fn the_sampled_part_of_a_thousand_ranks_is_shown() {
    let mut lab = one_of_a_thousand(Depth::True);
    lab.keys("3");
    assert_eq!(watched(&lab), 32);
    let mut lab = lab.run(3);
    // The slow rank is among them.
    lab.screen(132, 40).shows("13 shapes of 32 of 1,024 ranks").shows("▼   517");
    golden_at("gemms-1024-ranks", USUAL, &mut lab);
}

#[test]
fn unanswered_requests_for_shapes_are_shown() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("3").screen(132, 40).shows("Requesting shapes from 8 ranks");
    golden_at("gemms-asked", USUAL, &mut lab);
    let mut lab = lab.run_only(9, |frame| !matches!(frame.body, Body::Detail(_)));
    lab.screen(132, 40).shows("Shapes requested from 8 ranks 9 s ago; no answer");
    golden_at("gemms-silent", SMALL, &mut lab);
}

#[test]
fn a_job_without_gemms_shows_the_reason() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("3");
    let mut frames = {
        let simulation = lab.simulation();
        simulation.details(1_841, (0..8).map(Rank))
    };
    for frame in &mut frames {
        let Body::Detail(detail) = &mut frame.body else { unreachable!() };
        detail.summary.gemms.clear();
    }
    lab.arrive(frames);
    lab.screen(132, 40).shows("No GEMMs yet");
    golden_at("gemms-none", SMALL, &mut lab);
}

/// With one operation in many timed, a page that was just opened lacks figures of some ranks.
#[test]
fn a_rank_without_timed_gemms_is_named() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("3");
    let details = |lab: &mut Lab, second| lab.simulation().details(second, (0..8).map(Rank));
    let first = details(&mut lab, 1_841);
    let mut second = details(&mut lab, 1_846);
    second[0].body = first[0].body.clone();
    lab.arrive(first);
    lab.arrive(second);
    let mut lab = lab.run_only(2, |frame| !matches!(frame.body, Body::Detail(_)));
    for (width, height) in [(80, 24), (132, 40)] {
        lab.screen(width, height).shows("rank 0: none timed since this page was opened");
    }
}
