//! Communicators.

use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CallSite, CallState, Frame, RankDigest, RankRecord, RecordedCall, RecordedCommunicator,
        StackFrame,
    },
    id::{CommunicatorId, Rank},
    unit::Moment,
};

use crate::{SMALL, USUAL, golden_at, golden_at_both, one_slow};

#[test]
fn late_ranks_are_ordered_and_traffic_has_its_bandwidth() {
    let mut lab = one_slow();
    lab.keys("4")
        .screen(132, 40)
        .shows("64 of 64")
        .shows("AllReduce")
        .shows("64 MiB")
        .shows("    37 gpu-005");
    golden_at("collectives-slow", USUAL, &mut lab);
}

#[test]
fn a_rank_that_did_not_enter_a_collective_is_shown_as_behind() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("4");
    let mut lab = lab.hang(Rank(6)).run(14);
    lab.screen(132, 40).shows("▲ 6 by 1").shows("0-5,7 wait for 6").shows("cudaStreamSynchronize 14 s");
    golden_at_both("collectives-hang", &mut lab);
}

/// In a hung job: the calls before the hang, and the deviating rank.
#[test]
fn the_last_calls_of_a_hung_job_are_shown() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("4");
    let mut lab = lab.hang(Rank(6)).run(14);
    lab.screen(132, 40).shows("Arrival skew");
    let records: Vec<Frame> = lab.simulation().digests(1_900).iter().flat_map(records).collect();
    lab.arrive(records);
    let screen = lab.run(1).screen(132, 40);
    screen.shows("Last calls").shows("rank 6 called one AllReduce (492 B of f32) more");
    screen.shows("492 B train.py:212 log_metrics").shows("train.py:131 train");
}

/// The calls of a host's ranks. Rank 6 has made one call more than the others.
fn records(frame: &Frame) -> Vec<Frame> {
    let Body::Digest(digest) = &frame.body else { unreachable!() };
    let site = |function: &str, line| CallSite {
        frames: vec![StackFrame {
            function: function.to_owned(),
            file: "/work/llama/train.py".to_owned(),
            line,
        }],
        returns_to: 0,
        native: String::new(),
    };
    let of = |rank: &RankDigest| {
        let state = &rank.communicators[0];
        let call = |number: u64, bytes, site| RecordedCall {
            order: number,
            communicator: 0,
            number: Some(number),
            operation: Operation::AllReduce,
            datatype: DataType::Float32,
            reduction: Some(0),
            peer: None,
            bytes,
            replays: 0,
            group: None,
            stream: 1,
            entered: Moment(number),
            state: CallState::Enqueued,
            site: Some(site),
        };
        let sizes =
            if rank.rank == Rank(6) { [4096, 8192, 492, 4096, 8192] } else { [4096, 8192, 4096, 8192, 4096] };
        let calls: Vec<_> =
            (0..).zip(sizes).map(|(number, bytes)| call(number, bytes, u16::from(bytes == 492))).collect();
        RankRecord {
            job: digest.job.clone(),
            rank: rank.rank,
            pid: rank.pid,
            read_at: frame.now,
            made: 5,
            communicators: vec![RecordedCommunicator {
                id: state.id,
                name: String::new(),
                member: state.rank,
                size: state.size,
                closed: false,
            }],
            sites: vec![site("train", 131), site("log_metrics", 212)],
            calls,
            preceding: Vec::new(),
            why: String::new(),
        }
    };
    digest.ranks.iter().map(|rank| Frame { body: Body::Record(of(rank)), ..frame.clone() }).collect()
}

/// Tensor parallel groups of four, and the communicator of all ranks.
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
    screen.shows("3 communicators").shows("ranks 4-7, split from").shows("nothing timed yet");
    lab.keys("g").screen(132, 40).shows("ranks 0-7");
    golden_at_both("collectives", &mut lab);
}

/// Sixty-four ranks in pairs and fours: one line per kind, and each communicator on request.
#[test]
fn many_communicators_are_listed_by_kind() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let mut frames = lab.simulation().digests(1_841);
    for frame in &mut frames {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for rank in &mut digest.ranks {
            let all = rank.communicators[0].clone();
            for (name, size) in [("tp", 2), ("dp", 4)] {
                let mut group = all.clone();
                group.id = CommunicatorId(u64::from((size << 24) + rank.rank.0 / size) << 32);
                (group.name, group.size, group.rank) = (name.to_owned(), size, rank.rank.0 % size);
                rank.communicators.push(group);
            }
        }
    }
    lab.arrive(frames);
    let screen = lab.keys("4j").screen(132, 40);
    screen.shows("49 communicators: tp ×32, dp ×16, 64 ranks").shows("4 each").shows("one of 16");
    golden_at("collectives-kinds", USUAL, &mut lab);
    lab.keys("<Enter>").screen(132, 40).shows("all 49 communicators").hides("each");
    lab.keys("<Enter>1:groups<Enter>").screen(132, 40).shows("all 49 communicators").shows("4 of 4");
}

#[test]
fn a_job_without_communicators_shows_the_reason() {
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
    lab.keys("4").screen(132, 40).shows("No communicators yet");
    golden_at("collectives-none", SMALL, &mut lab);
}
