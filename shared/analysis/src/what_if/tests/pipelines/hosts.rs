//! The hosts of a pipeline: their repair, and the time that they need.

use xpu_wire::id::Rank;

use super::{Factor, SHAPE, Shape, close};
use crate::what_if::{Job, WhatIf};

#[test]
fn the_hosts_of_other_ranks_need_their_time_too() {
    let slow: Factor = |stage, _, _, _| if stage == 2 { 1.5 } else { 1.0 };
    let capture = Shape { factor: slow, ..SHAPE }.job().capture();
    let mut job = Job::of_capture(&capture).expect("it can be simulated");
    assert_eq!(job.host_steps, vec![vec![0.0; 2]; 4]);
    // Between a step without the slow stage, and one with it.
    let needed_ms = 1.1 * SHAPE.step_ms();
    job.host_steps[0][1] = needed_ms / 1e3;
    let figures = WhatIf::of(&job);
    let repaired = |rank: u32| figures.workers.iter().find(|of| of.rank == Rank(rank)).unwrap().repaired_ms;
    // Another rank of the same replica is repaired, and the slow stage.
    assert!(repaired(7) > Some(needed_ms), "{:?}", figures.workers);
    assert_eq!((figures.stage_figures[0].stage, figures.stage_figures[0].repaired_ms), (2, needed_ms));
}

/// Two hosts, each with all ranks of two stages.
#[test]
fn a_host_that_holds_whole_stages_is_repaired() {
    let slow: Factor = |stage, _, _, _| if stage > 1 { 1.5 } else { 1.0 };
    for replicas in [1, 2] {
        let even = Shape { replicas, ..SHAPE };
        let capture = Shape { factor: slow, ..even }.job().capture();
        let mut job = Job::of_capture(&capture).expect("it can be simulated");
        job.hosts = ["a", "a", "b", "b"].map(|host| vec![host.into(); replicas]).to_vec();
        let figures = WhatIf::of(&job);
        let first = &figures.host_figures[0];
        assert_eq!((first.host.as_str(), first.ranks), ("b", 2 * replicas));
        close(first.repaired_ms, even.step_ms(), 0.01);
    }
}
