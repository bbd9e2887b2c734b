//! The heatmaps' quantities take turns.

use xpu_shared::{id::Rank, simulation::Simulation};
use xpu_tests::Lab;

use crate::golden;

#[test]
fn lateness_and_step_time_are_a_key_away() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8)).run(60).slow_down(Rank(37), 1.6).run(60);
    let screen = lab.keys("m").screen(132, 40);
    screen.shows("lateness ms").shows("step time ms").shows("highest rank").hides("NCCL bus GB/s");
    golden("lateness", &screen);
    lab.keys("m").screen(132, 40).shows("GEMM TFLOPS over GEMM time").shows("NCCL bus GB/s");
}
