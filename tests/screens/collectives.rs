//! Communicators.

use xpu_shared::{
    frame::Body,
    id::{CommunicatorId, Rank},
    simulation::Simulation,
};
use xpu_tests::Lab;

use crate::{golden_at_both, one_slow};

#[test]
fn who_comes_late_is_ranked_and_traffic_has_its_bandwidth() {
    let mut lab = one_slow();
    lab.keys("4")
        .screen(132, 40)
        .shows("64 of 64")
        .shows("AllReduce")
        .shows("64 MiB")
        .shows("    37 gpu-005");
    golden_at_both("collectives-slow", &mut lab);
}

#[test]
fn who_did_not_enter_is_behind() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("4");
    let mut lab = lab.hang(Rank(6)).run(14);
    lab.screen(132, 40).shows("▲ 6 by 1").shows("0-5,7 wait for 6").shows("cudaStreamSynchronize 14 s");
    golden_at_both("collectives-hang", &mut lab);
}

/// Tensor parallel groups of four beside the communicator of all.
#[test]
fn every_communicator_is_listed_and_can_be_selected() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    let mut frames = lab.simulation().digests(1_841);
    for frame in &mut frames {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for rank in &mut digest.ranks {
            let all = &mut rank.communicators[0];
            all.name = "dp".to_owned();
            let mut group = all.clone();
            group.id = CommunicatorId((0x1111_0000 + u64::from(rank.rank.0 / 4)) << 32);
            group.parent = Some(all.id);
            (group.name, group.size, group.rank) = ("tp".to_owned(), 4, rank.rank.0 % 4);
            rank.communicators.push(group);
        }
    }
    lab.arrive(frames);
    let screen = lab.keys("4jj").screen(132, 40);
    screen.shows("3 communicators").shows("ranks 4-7, split from").shows("nothing of it was timed yet");
    lab.keys("g").screen(132, 40).shows("ranks 0-7");
    golden_at_both("collectives", &mut lab);
}

#[test]
fn no_communicator_is_said_to_be_unseen() {
    let mut lab = Lab::new(Simulation::new(7, 1, 2));
    let mut frames = lab.simulation().digests(1_841);
    for frame in &mut frames {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for rank in &mut digest.ranks {
            rank.communicators.clear();
            rank.samples.clear();
        }
    }
    lab.arrive(frames);
    lab.keys("4").screen(132, 40).shows("No communicator is seen yet");
    golden_at_both("collectives-none", &mut lab);
}
