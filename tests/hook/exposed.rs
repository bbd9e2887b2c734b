//! How long communication held up GEMMs, in scripts for which this time is known.

use xpu_tests::listener::Sender;
use xpu_wire::{sampling::Rate, unit::Nanoseconds};

use crate::Job;

/// A GEMM takes 1.374 ms, and a collective of two ranks 5.369 ms. Each script is launched while earlier work
/// keeps both GPUs equally busy, so the result does not depend on the time of the launches.
const SET: [(&str, &str); 3] =
    [("SIMGPU_TFLOPS", "100"), ("SIMGPU_BUS_GB_S", "100"), ("SIMGPU_MEMORY_GB_S", "50")];
const GEMM: f64 = 2.0 * 4096.0 * 4096.0 * 4096.0 / 100e12;
const REDUCTION: f64 = (512 << 20) as f64 / 100e9;
const EVERY: &str = "gemm=1,collective=1,wait=1";

const BEFORE: &str = "
side, copies, between = (made(process.cudaStreamCreateWithFlags, c_uint(1)) for _ in range(3))
def event(): return made(process.cudaEventCreateWithFlags, c_uint(2))
ready, done = event(), event()
def record(event, on): ok(process.cudaEventRecord(event, on))
def wait(on, event): ok(process.cudaStreamWaitEvent(on, event, 0))
def gemm(): ok(gemm_ex(4096, 4096, 4096))
def reduce(on=side): ok(process.ncclAllReduce(memory, memory, c_size_t(256 << 20), NCCL_BF16, 0, comm, on))
def copy():
    # It takes 43 ms from here on.
    fetch = event()
    record(fetch, stream)
    wait(copies, fetch)
    ok(process.cudaMemcpyAsync(memory, memory, c_size_t(1 << 30), 3, copies))
    ok(process.cudaEventDestroy(fetch))
def begin():
    record(ready, stream)
    wait(side, ready)
    reduce()
    record(done, side)
def together():
    # Both ranks are busy for half a second, and go on at the same time.
    switch(0)
    for _ in range(25): ok(gemm_ex(16384, 8192, 8192))
    ok(all_reduce(comm, 8))
    switch(1)
comm = communicator()
together()
";

const AFTER: &str = "
sync()
assert counter('panics') == 0
step(1)
hold()";

fn exposed(said: &Sender) -> Option<Nanoseconds> {
    said.summaries.last().and_then(|summary| summary.exposed_for)
}

/// The exposed time that both ranks report for the script.
#[track_caller]
fn both_say(sample: &str, script: &str) -> Option<f64> {
    let set = [SET[0], SET[1], SET[2], ("XPU_TOP_SAMPLE", sample)];
    let job = Job::of(2, &set, &format!("{BEFORE}{script}{AFTER}"));
    let [one, other] = [0, 1].map(|rank| exposed(&job.after_step(rank, 1)).map(Nanoseconds::seconds));
    job.end();
    assert_eq!(one.is_some(), other.is_some());
    if let Some((one, other)) = one.zip(other) {
        assert!((one - other).abs() <= 0.02 * one.max(other) + 2e-4, "{one} {other}");
    }
    one
}

#[track_caller]
fn is_about(said: Option<f64>, expected: f64) {
    let said = said.expect("it is known");
    assert!((said - expected).abs() <= 0.02 * expected + 2e-4, "{said} s instead of {expected} s");
}

/// As in DDP: a reduction runs together with two GEMMs, and everything after them waits for it.
const STEPS: &str = "
for _ in range(40):
    gemm()
    begin()
    gemm()
    gemm()
    wait(stream, done)
    ok(kernel())
    # It is done already.
    wait(stream, done)
";

#[test]
fn a_collective_beside_gemms_is_exposed_only_after_them() {
    is_about(both_say(EVERY, STEPS), 40.0 * (REDUCTION - 2.0 * GEMM));
}

#[test]
fn a_timed_wait_represents_untimed_ones() {
    let timed: Vec<u64> = (0..80).filter(|&number| Rate(2).times(number)).collect();
    let long = timed.iter().filter(|&&number| number % 2 == 0).count();
    assert!((5..20).contains(&long) && long < timed.len(), "{timed:?}");
    let expected = 80.0 * long as f64 / timed.len() as f64 * (REDUCTION - 2.0 * GEMM);
    is_about(both_say("gemm=1,collective=1,wait=4", STEPS), expected);
}

#[test]
fn a_collective_on_the_stream_of_the_gemms_is_fully_exposed() {
    let script = "
for _ in range(20):
    gemm()
    reduce(stream)
with Group():
    reduce(stream)
    reduce(stream)
";
    is_about(both_say(EVERY, script), 22.0 * REDUCTION);
    let chosen = (1..21).filter(|&number| Rate(2).times(number)).count() + usize::from(Rate(2).times(21)) * 2;
    is_about(both_say("gemm=1,collective=4,wait=1", script), 4.0 * chosen as f64 * REDUCTION);
}

#[test]
fn a_wait_for_a_copy_is_not_exposed_communication() {
    let script = "
gemm()
begin()
wait(stream, done)
for _ in range(10):
    gemm()
    # An event that stood for communication once, and is recorded elsewhere now.
    copy()
    record(done, copies)
    wait(stream, done)
# One that is gone, and whose handle another has.
begin()
before = done.value
ok(process.cudaEventDestroy(done))
done = event()
assert done.value == before, 'the handle is used again'
copy()
record(ready, copies)
wait(stream, done)
wait(stream, ready)
assert counter('waits') == 1, counter('waits')
";
    is_about(both_say(EVERY, script), REDUCTION);
}

#[test]
fn a_wait_for_communication_counts_through_intermediate_streams() {
    let script = "
for _ in range(10):
    gemm()
    begin()
    # As older FSDP does: what was gathered is copied on one more stream.
    wait(between, done)
    record(ready, between)
    gemm()
    wait(stream, ready)
";
    is_about(both_say(EVERY, script), 10.0 * (REDUCTION - GEMM));
}

#[test]
fn nothing_is_timed_within_a_graph_capture() {
    let script = "
gemm()
begin()
wait(stream, done)
waits = counter('waits')
ok(process.cublasSetStream_v2(blas, between))
gemm()
ok(process.cublasSetStream_v2(blas, stream))
joined, back = event(), event()
record(joined, side)
def work():
    record(ready, stream)
    wait(side, ready)
    record(joined, side)
    # A stream of gemms becomes part of it by waiting for what stood for communication before.
    wait(between, joined)
    record(back, between)
    wait(stream, back)
    wait(stream, joined)
    gemm()
graph = capture(work)
for _ in range(5): ok(graph())
assert counter('waits') == waits == 1, counter('waits')
";
    is_about(both_say(EVERY, script), REDUCTION);
}

#[test]
fn exposed_time_is_unknown_if_graphs_contain_communication() {
    let script = "
gemm()
reduce(stream)
graph = capture(lambda: reduce(stream))
ok(graph())
";
    assert_eq!(both_say(EVERY, script), None);
}

#[test]
fn exposed_time_while_off_is_not_estimated() {
    let script = "
gemm()
begin()
switch(0)
# Nobody sees that it stands for a copy now.
copy()
record(done, copies)
switch(1)
wait(stream, done)
gemm()
begin()
wait(stream, done)
assert counter('waits') == 1, counter('waits')
";
    is_about(both_say(EVERY, script), REDUCTION);
}

#[test]
fn a_process_without_gemms_or_communication_has_no_exposed_time() {
    for script in ["reduce()", "pass"] {
        assert_eq!(both_say(EVERY, script), None, "{script}");
    }
    let alone = Job::alone("gemm=1", "ok(gemm_ex(512, 512, 512))\nsync()\nstep(1)\nhold()");
    assert_eq!(exposed(&alone.after_step(0, 1)), None);
    alone.end();
}
