//! The heatmaps' quantities take turns.

use xpu_shared::{frame::Body, id::Rank, simulation::Simulation};
use xpu_tests::Lab;

use crate::golden;

#[test]
fn lateness_and_step_time_are_a_key_away() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8)).run(60).slow_down(Rank(37), 1.6).run(60);
    let screen = lab.keys("m").screen(132, 40);
    screen.shows("lateness ms").shows("step time ms").shows("highest rank").hides("NCCL bus GB/s");
    golden("lateness", &screen);
    lab.keys("mmm").screen(132, 40).shows("GEMM TFLOPS over GEMM time").shows("NCCL bus GB/s");
}

#[test]
fn clocks_power_load_and_memory_of_the_gpus_are_too() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let mut frames = lab.simulation().digests(1_841);
    let Body::Digest(digest) = &mut frames[4].body else { unreachable!() };
    digest.ranks[5].device.as_mut().unwrap().sm_clock = Some(1275);
    lab.arrive(frames);
    let screen = lab.keys("mm").screen(132, 40);
    screen.shows("SM clock MHz").shows("power W").shows("lowest rank 37 at 1,275.0");
    golden("clocks", &screen);
    lab.keys("m").screen(132, 40).shows("GPU %").shows("memory GiB").hides("lowest rank");
}

#[test]
fn of_gpus_no_driver_tells_of_nothing_is_shown() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    let mut frames = lab.simulation().digests(1_841);
    let Body::Digest(digest) = &mut frames[0].body else { unreachable!() };
    digest.ranks.iter_mut().for_each(|rank| rank.device = None);
    lab.arrive(frames);
    lab.screen(132, 40).shows("late ms").hides("SM MHz").hides("°C");
    lab.keys("mm").screen(132, 40).shows("no driver tells of the GPUs");
}
