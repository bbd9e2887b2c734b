//! Communicators, their names, and their ranks.

use std::collections::{BTreeMap, BTreeSet};

use xpu_tests::program::until;
use xpu_wire::{
    frame::{CommunicatorState, Summary},
    id::CommunicatorId,
};

use crate::Job;

/// NCCL's hash of names since 2.26, written independently: two lanes, mixed before each word of each part.
fn hash(parts: &[&[u8]]) -> CommunicatorId {
    let (mut a, mut b) = (1_u64, 1_u64);
    for part in parts {
        a ^= part.len() as u64;
        for word in part.chunks(8) {
            let word = word.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            a = a.wrapping_add(b);
            b ^= a;
            a = (a >> 31 ^ a).wrapping_mul(0x9de6_2bbc_8cef_3ce3).wrapping_add(word);
            b = (b >> 32 ^ b).wrapping_mul(0x485c_d631_1b59_9e79);
        }
    }
    let a = (a >> 31 ^ a).wrapping_mul(0xbac3_bd56_2846_de6b).wrapping_add(b);
    CommunicatorId((a >> 32 ^ a).wrapping_mul(0x995a_187a_14e7_b445))
}

fn child(parent: CommunicatorId, number: u32, color: i32) -> CommunicatorId {
    hash(&[&parent.0.to_le_bytes(), &number.to_le_bytes(), &color.to_le_bytes()])
}

#[test]
fn the_hash_equals_nccls() {
    assert_eq!(hash(&[&[0; 128]]), CommunicatorId(0xcc97_6ec6_c24b_b53c));
    assert_eq!(child(CommunicatorId(0x6afe_1cc1_7717_e1f4), 1, 0), CommunicatorId(0x7903_0d07_3b3c_579f));
}

/// A rank's report of its communicators, in the order in which they were made. The report may have no blind
/// spots.
#[track_caller]
fn communicators(job: &Job, rank: usize) -> Vec<CommunicatorState> {
    let said = job.after_step(rank, 1);
    let last: &Summary = said.summaries.last().expect("it has said so");
    assert_eq!(last.hook.blind, Vec::<String>::new(), "rank {rank}");
    last.communicators.clone()
}

fn who(known: &CommunicatorState) -> (u32, u32, u64) {
    (known.rank, known.size, known.entered)
}

#[test]
fn ids_are_nccls_and_names_are_the_programs() {
    let script = "
unique = share('unique_id', new_id)
job = made(process.ncclCommInitRankConfig, WORLD, unique, RANK, config('data parallel\\n'))
none, second, third = c_void_p(), c_void_p(), c_void_p()
ok(process.ncclCommSplit(job, -1, 0, byref(none), None))
assert not none
assert process.ncclCommSplit(job, -2, 0, byref(none), None) == 4
ok(process.ncclCommSplit(job, RANK % 2, -RANK, byref(second), config('pair')))
ok(process.ncclCommSplit(second, 7, 0, byref(third), None))
scalable = made(process.ncclCommInitRankScalable, WORLD, RANK, 2, byref((UniqueId * 2)(share('second_id', new_id), unique)), None)
for comm in (job, second, third, scalable): ok(all_reduce(comm, 1000))
ok(process.ncclCommFinalize(scalable))
ok(process.ncclCommDestroy(scalable))
sync()
step(1)
hold()";
    let job = Job::of(4, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in 0..4 {
        let mut known = communicators(&job, rank);
        // A closed communicator is reported together with its samples.
        let closed = known.split_off(3);
        assert!(
            closed.len() <= 1 && closed.iter().all(|closed| who(closed) == (rank as u32, 4, 1)),
            "{closed:?}"
        );
        let unique = std::fs::read(job.place.path("unique_id")).expect("rank 0 has written it");
        let root = hash(&[&unique]);
        let color = rank as i32 % 2;
        let second = child(root, 2, color);
        let ids: Vec<_> = known.iter().map(|known| known.id).collect();
        assert_eq!(ids, [root, second, child(second, 1, 7)], "rank {rank}");
        let parents: Vec<_> = known.iter().map(|known| known.parent).collect();
        assert_eq!(parents, [None, Some(root), Some(second)]);
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["data parallel", "pair", "pair"], "what has no configuration has its parent's");
        // The key of the split reversed the order of ranks. The key of its child kept the order.
        let place = 1 - rank as u32 / 2;
        assert_eq!(
            known.iter().map(who).collect::<Vec<_>>(),
            [(rank as u32, 4, 1), (place, 2, 1), (place, 2, 1)]
        );
        let sampled: BTreeSet<_> =
            job.after_step(rank, 1).samples().iter().map(|one| one.communicator).collect();
        assert!(ids.iter().all(|id| sampled.contains(id)) && sampled.len() == 4, "also of the closed one");
    }
    job.end();
}

#[test]
fn asynchronously_created_communicators_are_known_when_ready() {
    let script = "
job = c_void_p()
answer = process.ncclCommInitRankConfig(byref(job), WORLD, share('unique_id', new_id), RANK, config('job', blocking=False))
assert answer == 7 and job, answer
wait_for(job)
ok(all_reduce(job, 1000))
first, second, third = c_void_p(), c_void_p(), c_void_p()
assert process.ncclCommSplit(job, 0, RANK, byref(first), config('first', blocking=False)) == 7
wait_for(job)
assert first and state(first) == 0
ok(process.ncclGroupStart())
ok(process.ncclCommSplit(job, 0, RANK, byref(second), None))
assert process.ncclGroupEnd() == 7
# Nobody asks after the parent: the handle is there all of a sudden.
while not second: time.sleep(0.001)
time.sleep(0.01)
for _ in range(2): ok(all_reduce(second, 1000))
wait_for(job)
assert process.ncclCommSplit(job, 0, RANK, byref(third), None) == 7
wait_for(job)
ok(process.ncclCommDestroy(third))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    let of = |rank| {
        let known = communicators(&job, rank);
        let places: Vec<_> = known.iter().map(who).collect();
        let own = rank as u32;
        assert_eq!(places, [(own, 2, 1), (own, 2, 0), (own, 2, 2)], "rank {rank}");
        let names: Vec<_> = known.iter().map(|known| known.name.clone()).collect();
        assert_eq!(names, ["job", "first", "job"]);
        known.iter().map(|known| known.id).collect::<Vec<_>>()
    };
    let ids = of(0);
    assert_eq!(ids, of(1));
    assert_eq!(ids[1..], [child(ids[0], 1, 0), child(ids[0], 2, 0)]);
    job.end();
}

#[test]
fn shrunk_and_grown_communicators_are_known() {
    let script = "
unique = share('unique_id', new_id)
job = c_void_p()
if RANK < 3: ok(process.ncclCommInitRank(byref(job), 3, unique, RANK))
left = []
if RANK in (0, 2):
    # The list is the program's, in any order; a call that NCCL refuses makes nothing.
    assert process.ncclCommShrink(job, byref(c_int(RANK)), 1, byref(c_void_p()), None, 0) == 4
    for _ in range(2):
        left.append(c_void_p())
        ok(process.ncclCommShrink(job, byref(c_int(1)), 1, byref(left[-1]), None, 0))
handed = UniqueId()
if RANK < 3:
    ok(process.ncclCommGetUniqueId(job, byref(handed)))
handed = share('handed', lambda: handed)
grown = c_void_p()
if RANK < 3:
    ok(process.ncclCommGrow(job, 4, None, -1, byref(grown), None))
else:
    ok(process.ncclCommGrow(None, 4, byref(handed), 3, byref(grown), config('newcomer')))
ok(all_reduce(grown, 1000))
for comm in left: ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(4, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    let known: Vec<_> = (0..4).map(|rank| communicators(&job, rank)).collect();
    let places: Vec<Vec<_>> = known.iter().map(|known| known.iter().map(who).collect()).collect();
    assert_eq!(places[0], [(0, 3, 0), (0, 2, 1), (0, 2, 1), (0, 4, 1)]);
    assert_eq!(places[1], [(1, 3, 0), (1, 4, 1)]);
    assert_eq!(places[2], [(2, 3, 0), (1, 2, 1), (1, 2, 1), (2, 4, 1)]);
    assert_eq!(places[3], [(3, 4, 1)]);
    let id = |rank: usize, which: usize| known[rank][which].id;
    assert_eq!([id(0, 1), id(0, 2)], [id(2, 1), id(2, 2)]);
    assert_ne!(id(0, 1), id(0, 2), "NCCL gives them the same name");
    assert_eq!([id(0, 3); 3], [id(1, 1), id(2, 3), id(3, 0)], "those who stay, and who comes");
    assert_eq!((known[3][0].name.as_str(), known[3][0].parent), ("newcomer", None));
    assert_eq!(known[0][3].parent, Some(id(0, 0)));
    job.end();
}

/// CUDA refuses to record an event of one device on another device's stream, so each device has its own
/// events.
#[test]
fn one_process_may_have_all_ranks() {
    let job = Job::alone(
        "collective=1",
        "
comms = (c_void_p * 3)()
ok(process.ncclCommInitAll(comms, 3, None))
streams = []
for device in range(3):
    ok(process.cudaSetDevice(device))
    streams.append(made(process.cudaStreamCreateWithFlags, c_uint(1)))
for _ in range(5):
    with Group():
        for comm, stream_of in zip(comms, streams):
            ok(process.ncclAllReduce(memory, memory, c_size_t(1000), NCCL_FLOAT, 0, c_void_p(comm), stream_of))
    ok(process.cudaPeekAtLastError())
    current = c_int(-1)
    ok(process.cudaGetDevice(byref(current)))
    assert current.value == 2
for stream_of in streams: ok(process.cudaStreamSynchronize(stream_of))
assert process.ncclCommInitAll(comms, -1, None) == 4
step(1)
hold()",
    );
    let known = communicators(&job, 0);
    assert_eq!(known.iter().map(who).collect::<Vec<_>>(), [(0, 3, 5), (1, 3, 5), (2, 3, 5)]);
    assert!(known.iter().all(|one| one.id == known[0].id && one.id.0 != 0));
    let (samples, untimed) = until("all to be timed", || {
        let said = job.after_step(0, 1);
        let all: Vec<_> = said.summaries.iter().flat_map(|summary| summary.samples.clone()).collect();
        (all.len() >= 15).then_some((all, said.summaries.last()?.hook.untimed))
    });
    let of = |rank| samples.iter().filter(|sample| sample.communicator == rank).count();
    assert_eq!(([0, 1, 2].map(of), untimed), ([5; 3], 0));
    let said = job.after_step(0, 1);
    let gpus = &said.summaries.last().unwrap().gpus;
    let of_each: Vec<_> =
        gpus.iter().map(|gpu| (gpu.index.0, gpu.communicators.clone(), gpu.launches.collectives)).collect();
    assert_eq!(of_each, [(0, vec![0], 5), (1, vec![1], 5), (2, vec![2], 5)]);
    job.end();
}

#[test]
fn communicators_beyond_the_limit_are_reported() {
    let job = Job::alone(
        "collective=1",
        "
for _ in range(258): ok(all_reduce(made(process.ncclCommInitRank, 1, new_id(), 0), 1000))
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let last = said.summaries.last().expect("one");
    assert_eq!(last.communicators.len(), 64);
    assert_eq!(
        last.hook.blind,
        [
            "2 NCCL calls on communicators whose creation was not seen",
            "2 more communicators than can be watched at once",
            "192 more communicators than the ledger can show",
        ]
    );
    assert_eq!(said.launches().collectives, 256);
    job.end();
}

/// Handles are soon reused, so the new communicator may have the same address.
#[test]
fn a_communicator_at_a_reused_address_starts_at_zero() {
    let script = "
for round in range(3):
    unique = share(f'id{round}', new_id)
    comm = made(process.ncclCommInitRank, WORLD, unique, RANK)
    for _ in range(round + 1): ok(all_reduce(comm, 1000))
    sync()
    if round < 2: ok(process.ncclCommDestroy(comm))
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let known = communicators(&job, rank);
        let last = std::fs::read(job.place.path("id2")).expect("rank 0 has written it");
        assert_eq!((known[0].id, known[0].entered), (hash(&[&last]), 3));
        // Closed communicators are reported together with their samples.
        assert!(known[1..].iter().all(|closed| closed.entered < 3 && closed.completed == closed.entered));
        let said = job.after_step(rank, 1);
        let totals = said.summaries.iter().flat_map(|summary| &summary.collectives);
        let counts: BTreeMap<_, _> = totals.map(|totals| (totals.communicator, totals.count)).collect();
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3], "each has its own");
    }
    job.end();
}
