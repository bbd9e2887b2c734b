//! Processes without a shared CUDA runtime, like those of `CuPy`: timing through the driver.

use std::collections::BTreeMap;

use xpu_wire::{
    datatype::DataType,
    unit::{GigabytesPerSecond, Tflops},
};

use crate::{Job, shape};

/// cuBLAS and NCCL have their runtime linked in, as in reality.
const NONE: (&str, &str) = ("SIMGPU_TIMELINE", "libsimgpu_timeline.so");

const START: &str = "
assert 'libcudart' not in Path('/proc/self/maps').read_text()
def current():
    return made(process.cuCtxGetCurrent).value
";

const END: &str = "
sync()
assert current() == context.value
step(1)
hold()
assert 'libcudart' not in Path('/proc/self/maps').read_text()";

fn job(world: usize, set: &[(&str, &str)], script: &str) -> Job {
    Job::of(world, &[&[NONE], set].concat(), &format!("{START}{script}{END}"))
}

#[test]
fn gemms_and_collectives_are_timed_through_the_driver() {
    let set =
        [("XPU_TOP_SAMPLE", "gemm=1,collective=1"), ("SIMGPU_TFLOPS", "123"), ("SIMGPU_BUS_GB_S", "200")];
    let script = "
comm = communicator()
# The first keeps the GPU busy while the others are launched behind it.
ok(gemm_ex(16384, 8192, 8192))
for _ in range(60):
    ok(gemm_ex(4096, 4096, 4096))
    ok(all_reduce(comm, 64 << 20))";
    let job = job(2, &set, script);
    let said = [0, 1].map(|rank| job.after_step(rank, 1));
    for said in &said {
        let shape = shape([4096; 3], DataType::Bfloat16, (false, false));
        let totals = &said.gemms()[&shape];
        assert_eq!((totals.count, totals.timed), (60, 60));
        let rate = Tflops::from_work(60.0 * shape.flops(), totals.timed_for).unwrap();
        assert!((rate.0 / 123.0 - 1.0).abs() < 0.02, "{rate} TFLOPS");
        assert_eq!(said.summaries.last().unwrap().hook.blind, [""; 0]);
    }
    let [first, second] = said.map(|said| said.samples());
    assert_eq!((first.len(), second.len()), (60, 60));
    // The shortest duration of a collective is its transfer. The rest of a longer one is waiting.
    let shortest = first.iter().zip(&second).map(|(a, b)| a.duration.min(b.duration));
    let mut rates: Vec<f64> = shortest
        .map(|duration| GigabytesPerSecond::from_work(first[0].bus_bytes as f64, duration).unwrap().0)
        .collect();
    rates.sort_by(f64::total_cmp);
    assert!((rates[30] / 200.0 - 1.0).abs() < 0.02, "{} GB/s", rates[30]);
    job.end();
}

/// The events of a graph capture would become nodes of the graph, and a query by another thread in the default
/// mode would invalidate it.
#[test]
fn a_graph_capture_of_the_driver_gets_no_event() {
    let script = "
graph, executable = c_void_p(), c_void_p()
for _ in range(50): ok(gemm_ex(8192, 8192, 8192))
ok(process.cuStreamBeginCapture_v2(stream, 0))
for _ in range(5):
    ok(gemm_ex(512, 512, 512))
    # The hook's thread reads the events of the operations above.
    time.sleep(0.02)
ok(process.cuStreamEndCapture(stream, byref(graph)))
ok(process.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
for _ in range(7): ok(process.cuGraphLaunch(executable, stream))
# The hook does not see a graph capture that begins in a runtime of the program itself.
linked = ctypes.CDLL('libsimgpu_timeline.so')
def runtime(name, *words): ok(linked.simgpu_call(name, (c_size_t * 7)(*words)))
runtime(b'cudaStreamBeginCapture', stream.value, 0)
timed = counter('timed')
for _ in range(5): ok(gemm_ex(256, 256, 256))
assert counter('timed') == timed
runtime(b'cudaStreamEndCapture', stream.value, ctypes.addressof(graph))
for _ in range(5): ok(gemm_ex(1024, 1024, 1024))";
    let job = job(1, &[("XPU_TOP_SAMPLE", "gemm=1,graph=1")], script);
    let said = job.after_step(0, 1);
    let gemms = said.gemms();
    let of = |side| &gemms[&shape([side; 3], DataType::Bfloat16, (false, false))];
    assert_eq!((of(8192).count, of(8192).timed), (50, 50));
    assert_eq!((of(512).count, of(512).timed, said.launches().graphs), (35, 0, 7));
    assert_eq!([256, 1024].map(|side| (of(side).count, of(side).timed)), [(5, 0), (5, 5)]);
    job.end();
}

/// One thread drives both GPUs and leaves the first one current at the end of the group.
#[test]
fn the_programs_current_context_stays() {
    let script = "
ok(process.cuCtxSetCurrent(None))
second = made(process.cuDevicePrimaryCtxRetain, 1)
devices, comms = [], (c_void_p * 2)()
ok(process.ncclCommInitAll(comms, 2, None))
for at in (context, second):
    ok(process.cuCtxPushCurrent_v2(at))
    own, handle = made(process.cuStreamCreate, c_uint(1)), made(process.cublasCreate_v2)
    ok(process.cublasSetStream_v2(handle, own))
    devices.append((at, own, handle))
    assert made(process.cuCtxPopCurrent_v2).value == at.value and current() is None
for _ in range(30):
    for at, own, handle in devices:
        ok(process.cuCtxSetCurrent(at))
        ok(process.cublasGemmEx(
            handle, 0, 0, 4096, 4096, 4096, one, memory, BF16, 4096, memory, BF16, 4096,
            one, memory, BF16, 4096, COMPUTE_32F, -1))
        assert current() == at.value
    ok(process.cuCtxSetCurrent(context))
    with Group():
        for (at, own, handle), comm in zip(devices, comms):
            ok(process.ncclAllReduce(memory, memory, c_size_t(1 << 20), NCCL_FLOAT, 0, c_void_p(comm), own))
    assert current() == context.value
for at, own, handle in devices: ok(process.cuStreamSynchronize(own))
# A thread without a context gets none from the hook.
ok(process.cuCtxSetCurrent(None))
for _ in range(20): ok(gemm_ex(1024, 1024, 1024))
assert current() is None
ok(process.cuCtxSetCurrent(context))";
    let job = job(1, &[("XPU_TOP_SAMPLE", "gemm=1,collective=1")], script);
    let said = job.after_step(0, 1);
    let gpus = said.summaries.iter().flat_map(|summary| &summary.gpus);
    let gemms: BTreeMap<_, _> = gpus
        .flat_map(|gpu| gpu.gemms.iter().map(|gemm| ((gpu.index.0, gemm.shape.m), (gemm.count, gemm.timed))))
        .collect();
    assert_eq!(gemms, BTreeMap::from([((0, 1024), (20, 0)), ((0, 4096), (30, 30)), ((1, 4096), (30, 30))]));
    let samples = said.samples();
    assert_eq!(samples.len(), 60, "of both GPUs");
    job.end();
}

#[test]
fn a_forked_child_of_such_a_process_gets_cudas_own_answer() {
    let script = "
for _ in range(20): ok(gemm_ex(1024, 1024, 1024))
child = os.fork()
if child == 0:
    os._exit(gemm_ex(1024, 1024, 1024))
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 1, status";
    let job = job(1, &[("XPU_TOP_SAMPLE", "gemm=1")], script);
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().gemms, 20);
    job.end();
}
