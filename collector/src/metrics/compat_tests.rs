use super::*;

/// Two pods behind a relay, each with a process of the same number.
#[test]
fn a_rank_is_on_its_own_host_whatever_its_process_number() {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, RankDetail},
        id::Pid,
    };
    let (simulation, mut jobs) = (Simulation::new(7, 2, 2), Jobs::default());
    for mut frame in simulation.snapshots(60) {
        let Body::Snapshot(snapshot) = &mut frame.body else { continue };
        for rank in &mut snapshot.jobs[0].ranks {
            let number = rank.info.rank.0;
            (rank.info.pid, rank.digest.pid) = (Pid(100 + number % 2), Pid(100 + number % 2));
            // Each host has one of two ranks.
            rank.digest.communicators.truncate(1);
            rank.digest.communicators[0].id = CommunicatorId(u64::from(number / 2));
        }
        jobs.fold(&frame);
    }
    let job = jobs.foremost().unwrap();
    let mut state = job.rank(Rank(2)).unwrap().latest().unwrap().communicators[0].clone();
    state.size = 2;
    let mut durations = Histogram::new();
    durations.record(Nanoseconds(1000));
    let total = CollectiveTotals {
        communicator: state.id,
        operation: Operation::AllReduce,
        datatype: DataType::Float16,
        bytes: 1 << 20,
        count: 1,
        timed: 1,
        timed_for: Nanoseconds(1000),
        durations,
    };
    let summary = Summary { collectives: vec![total], communicators: vec![state], ..Summary::default() };
    let (mut tally, pages) =
        (super::super::Tally::default(), super::super::Pages { compat: true, ..Default::default() });
    tally.take(&summary, Pid(100), 4);
    let detail = RankDetail { job: simulation.job.clone(), rank: Rank(2), summary };
    tally.take_recent(&detail, job, &pages, Moment(1));
    let cells = tally.levels().unwrap().moved.cells(Moment(1)).0;
    assert_eq!(cells.iter().map(|(kind, _)| kind.within_host).collect::<Vec<_>>(), [true]);
}

#[test]
fn each_operation_has_a_level_of_its_own() {
    let mut durations = Histogram::new();
    durations.record_n(Nanoseconds(100), 3);
    durations.record_n(Nanoseconds(1000), 1);
    let cells = by_level(&durations, 8.0, |took| took.0 > 500);
    let reported: Vec<_> = cells.iter().map(|(slow, cell)| (*slow, cell.launched, cell.work)).collect();
    assert_eq!(reported, [(false, 3, 24.0), (true, 1, 8.0)]);
}

#[test]
fn rates_and_levels_have_their_units() {
    // 16 MiB over 8 ranks in 370 us.
    let mut durations = Histogram::new();
    durations.record(Nanoseconds(370_000));
    let total = CollectiveTotals {
        communicator: CommunicatorId(1),
        operation: Operation::AllReduce,
        datatype: DataType::Float16,
        bytes: 1 << 20,
        count: 1,
        timed: 1,
        timed_for: Nanoseconds(370_000),
        durations,
    };
    let (kind, cell) = moved(&total, None, 8, true).pop_first().unwrap();
    let rate = gigabits(cell.work, cell.durations.sum());
    assert!((rate - 1.75 * 8.0 * 1_048_576.0 / 370_000.0).abs() < 0.5, "{rate}");
    assert_eq!((kind.level, kind.small), (2, false));
    assert_eq!([0.0, 0.99, 1.0, 19.5, 300.0].map(|part| level(part, 20.0)), [1, 1, 2, 20, 20]);
}
