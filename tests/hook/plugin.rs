//! NCCL's profiler plugin interface. It counts and times calls that pass no interposed function. A call that
//! also passes one counts once. The program's own plugin gets every callback.
//!
//! `pncclAllReduce` and the like simulate an NCCL that is linked in or renamed, because the hook does not
//! interpose them.

use std::{collections::BTreeMap, fs};

use xpu_tests::{built, place::Place, program::Program};
use xpu_wire::{
    collective::Operation,
    frame::{CollectiveTotals, NcclReport},
    plan::{Algorithm, Plan, Protocol},
};

use crate::{Job, command};

const PLAN: Plan = Plan { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 24 };

/// A communicator that the preload does not see.
const UNSEEN: &str = "
comm = made(process.pncclCommInitRank, WORLD, share('unique_id', new_id), RANK)
def reduced(count): return process.pncclAllReduce(memory, memory, c_size_t(count), NCCL_BF16, 0, comm, stream)
def gathered(count): return process.pncclAllGather(memory, memory, c_size_t(count), NCCL_FLOAT, comm, stream)
for _ in range(40): ok(reduced(1 << 20))
for _ in range(10):
    ok(process.pncclGroupStart())
    ok(reduced(1 << 10))
    ok(gathered(1 << 10))
    ok(process.pncclGroupEnd())
for _ in range(5):
    ok(process.pncclGroupStart())
    ok(process.pncclSend(memory, c_size_t(100), NCCL_BF16, 1 - RANK, comm, stream))
    ok(process.pncclRecv(memory, c_size_t(100), NCCL_BF16, 1 - RANK, comm, stream))
    ok(process.pncclGroupEnd())
sync()
step(1)
hold()
ok(process.pncclCommDestroy(comm))";

const SEEN: &str = "
comm = communicator()
if hasattr(process, 'xpu_top_set_plugin'): ok(process.xpu_top_set_plugin(2))
for _ in range(40): ok(all_reduce(comm, 1 << 20))
for _ in range(10):
    with Group():
        ok(all_reduce(comm, 1 << 10))
        ok(all_gather(comm, 1 << 10))
with Group():
    ok(send(comm, 100, 1 - RANK))
    ok(receive(comm, 100, 1 - RANK))
sync()
step(1)
hold()
ok(process.ncclCommDestroy(comm))";

fn watched(version: &str, set: &[(&str, &str)], script: &str) -> Job {
    let hook = built::hook();
    let mine = [
        ("XPU_TOP_SAMPLE", "collective=1"),
        ("SIMGPU_NCCL_VERSION", version),
        ("NCCL_PROFILER_PLUGIN", hook.to_str().expect("text")),
    ];
    Job::of(2, &[&mine, set].concat(), script)
}

/// The number of calls, the number of timed calls, and the plan, by operation and size.
fn totals(job: &Job, rank: usize) -> BTreeMap<(Operation, u64), (u64, u64, Option<Plan>)> {
    let said = job.after_step(rank, 1);
    let plan = |totals: &CollectiveTotals| said.nccl.plan_of(totals);
    let all = said.collectives();
    all.into_iter().map(|(key, totals)| (key, (totals.count, totals.timed, plan(&totals)))).collect()
}

#[test]
fn calls_that_no_interposed_function_sees_are_counted_and_timed() {
    for version in ["22809", "22907", "23102", "23200"] {
        let job = watched(version, &[], UNSEEN);
        for rank in [0, 1] {
            let totals = totals(&job, rank);
            assert_eq!(totals[&(Operation::AllReduce, 2 << 20)], (40, 40, Some(PLAN)), "{version}");
            assert_eq!(totals[&(Operation::AllReduce, 2 << 10)], (10, 0, Some(PLAN)));
            assert_eq!(totals[&(Operation::AllGather, 8 << 10)], (10, 0, Some(PLAN)));
            let fused: Vec<_> = totals.iter().filter(|((op, _), _)| *op == Operation::Fused).collect();
            assert_eq!(fused.len(), 1);
            assert_eq!((fused[0].1.0, fused[0].1.1), (10, 10), "a group is timed as one");
            assert_eq!(totals[&(Operation::Send, 200)].0, 5);
            let said = job.after_step(rank, 1);
            let launches = said.launches();
            assert_eq!((launches.collectives, launches.point_to_point), (60, 10));
            let health = &said.summaries.last().unwrap().hook;
            let NcclReport { by_address, by_plugin, uncounted, .. } = said.nccl;
            assert_eq!((by_address, by_plugin, uncounted), (0, 70, 0));
            assert_eq!((health.dropped_records, &health.blind[..]), (0, &[][..]));
            let line = &job.ledger(rank).ledger().read().communicators[0];
            assert_eq!((line.rank, line.size), (rank as u32, 2));
            assert_eq!((line.entered, line.enqueued, line.completed, line.point_to_point), (60, 60, 60, 10));
        }
        let numbers =
            |rank| job.after_step(rank, 1).samples().iter().map(|one| one.sequence.0).collect::<Vec<_>>();
        assert_eq!(numbers(0), numbers(1), "both ranks time the same ones");
        job.end();
    }
}

/// Version 4 of the interface has no streams, and versions 1 to 3 have no ranks.
#[test]
fn calls_through_an_older_interface_are_counted() {
    let job = watched("22703", &[], UNSEEN);
    for rank in [0, 1] {
        let totals = totals(&job, rank);
        assert_eq!(totals[&(Operation::AllReduce, 2 << 20)], (40, 0, Some(PLAN)));
        let said = job.after_step(rank, 1);
        let launches = said.launches();
        assert_eq!((launches.collectives, launches.point_to_point), (60, 10));
        assert_eq!(said.nccl.by_plugin, 70);
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.point_to_point), (60, 60, 10));
    }
    job.end();
}

/// Every call counts once, whether NCCL of this version also shows it to the plugin or not.
fn calls_are_counted_once(version: &str, plan: Option<Plan>) {
    let job = watched(version, &[], SEEN);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let (launches, seen) = (said.launches(), &said.nccl);
        assert_eq!((launches.collectives, launches.point_to_point), (60, 2), "{version}");
        assert_eq!((seen.by_plugin, seen.uncounted), (0, 0), "{version}");
        let totals = totals(&job, rank);
        assert_eq!(totals[&(Operation::AllReduce, 2 << 20)], (40, 40, plan), "{version}");
        assert_eq!(totals[&(Operation::AllGather, 8 << 10)].2, plan, "{version}");
        assert_eq!(job.ledger(rank).ledger().read().communicators.len(), 1);
    }
    job.end();
}

#[test]
fn calls_seen_by_plugin_and_interposer_are_counted_once() {
    for version in ["22304", "22403", "22602", "22703", "22809", "22902", "23102", "23200"] {
        calls_are_counted_once(version, Some(PLAN));
    }
}

/// NCCL before 2.23.4 loads no profiler plugin: the preload alone counts and times, and no plan is known.
#[test]
fn calls_of_an_nccl_without_plugins_are_seen_by_the_interposer() {
    for version in ["21805", "21903", "22005", "22105", "22203"] {
        calls_are_counted_once(version, None);
    }
}

#[test]
fn xpu_top_plugin_0_disables_the_plugin() {
    let job = watched("22809", &[("XPU_TOP_PLUGIN", "0")], SEEN);
    let totals = totals(&job, 0);
    assert_eq!(totals[&(Operation::AllReduce, 2 << 20)], (40, 40, None));
    job.end();
}

/// Runs the program with its own plugin of this version. Returns what the plugin received on all ranks,
/// without the hook and with it.
fn received(nccl: &str, version: u32, mask: &str, more: &[(&str, &str)], script: &str) -> [Vec<String>; 2] {
    [false, true].map(|with_hook| {
        let place = Place::new();
        let plugin = place.path("libuser.so");
        let flags = ["-shared", "-fPIC", &format!("-DVERSION={version}")];
        built::compile("hook/user_plugin.c", &plugin, &flags);
        let log = place.path("log");
        let set = [
            ("SIMGPU_NCCL_VERSION", nccl),
            ("NCCL_PROFILER_PLUGIN", plugin.to_str().expect("text")),
            ("USER_PLUGIN_LOG", log.to_str().expect("text")),
            ("USER_PLUGIN_MASK", mask),
        ];
        let set = [&set[..], more].concat();
        let script = script.replace("step(1)\nhold()", "");
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let mut command = command(&place, 2, rank, &set, &script);
                if !with_hook {
                    command.env_remove("LD_PRELOAD");
                }
                Program::start(&mut command)
            })
            .collect();
        for rank in ranks {
            let outcome = rank.end();
            assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
        }
        let received =
            [0, 1].map(|rank| fs::read_to_string(place.path(&format!("log.{rank}"))).expect("it wrote"));
        received.concat().lines().map(str::to_owned).collect()
    })
}

/// The result does not depend on the plugin's version, or on the events that it requests.
#[test]
fn the_programs_own_plugin_gets_the_same_callbacks_as_without_the_hook() {
    for script in [UNSEEN, SEEN] {
        for (nccl, version, mask) in [
            ("22809", 5, "1798"),
            ("22907", 5, "2"),
            ("22809", 5, "4"),
            ("22809", 5, "0"),
            // This plugin has no newer interface than version 4.
            ("22809", 4, "6"),
            ("23102", 4, "2"),
        ] {
            let [alone, watched] = received(nccl, version, mask, &[], script);
            assert!(alone.len() > 2, "{nccl} {version} {mask}: {alone:?}");
            let starts = alone.iter().filter(|line| line.starts_with("start")).count();
            assert_eq!(starts > 0, mask != "0");
            assert_eq!(alone, watched, "{nccl}, version {version}, mask {mask}");
        }
    }
}
