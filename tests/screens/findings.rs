//! Current and past findings.

use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::palette::Depth;
use xpu_wire::id::Rank;

use crate::{SIZES, SMALL, golden_at, golden_at_both, one_slow};

#[test]
fn a_slow_rank_is_reported_with_its_evidence_and_what_to_do() {
    let mut lab = one_slow();
    lab.screen(80, 24).shows("next: ");
    lab.keys("f");
    lab.screen(132, 40).shows("slow rank, compute").shows("gpu-005, pid 4037").shows("next ").shows("began ");
    for size in SIZES {
        golden_at("findings-slow", size, &mut lab);
    }
    lab.keys("<Enter>").screen(132, 40).shows("Rank 37");
}

#[test]
fn a_past_hang_stays_in_the_log() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).slow_down(Rank(3), 1.31).run(40).hang(Rank(6)).run(14);
    lab.keys("f");
    lab.screen(132, 40).shows("hang, not entered").shows("hangs at");
    golden_at_both("findings-hang", &mut lab);
    lab.keys("<Enter>").screen(132, 40).shows("✖ HANG ");
    let mut lab = lab.go_on().run(5);
    lab.keys("f").screen(132, 40).shows("ended after");
}

#[test]
fn a_healthy_job_is_distinguished_from_a_silent_one() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("7").screen(132, 40).shows("no findings: 8 ranks").shows("none since");
    golden_at("findings-none", SMALL, &mut lab);
    let mut lab = lab.run_only(9, |_| false);
    lab.screen(132, 40).shows("no data does not mean healthy").hides("no findings: ");
    golden_at("findings-stale", SMALL, &mut lab);
    let mut lab = Lab::at_rest(Simulation::new(7, 2, 4), Depth::True);
    lab.keys("f").screen(80, 24).shows("Connecting to 2 hosts");
}
