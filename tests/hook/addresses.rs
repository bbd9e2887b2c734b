//! Functions that are looked up by address: calls through the address count as calls of a linked function do.

use xpu_wire::{
    frame::{Copies, Direction},
    id::Rank,
};

use crate::Job;

/// Opens each library by its own handle, as ctypes does, so the dynamic linker resolves no call here.
const HANDLES: &str = "
nccl, cublas, cuda = (ctypes.CDLL(name) for name in ('libnccl.so.2', 'libcublas.so.13', 'libcuda.so.1'))
def function(name, image=made(cuda.cuModuleLoadData, b'image')):
    return made(cuda.cuModuleGetFunction, image, name)
def asked(name, version=12000):
    at, status = c_void_p(), c_int(-1)
    ok(cuda.cuGetProcAddress_v2(name, byref(at), version, c_uint64(0), byref(status)))
    return at.value
def by_runtime(name, version=12000):
    at, status = c_void_p(), c_int(-1)
    ok(ctypes.CDLL('libcudart.so.13').cudaGetDriverEntryPointByVersion(name, byref(at), version, c_uint64(0), byref(status)))
    return at.value
def drive(launch, count=1, kernel=function(b'one')):
    for _ in range(count): ok(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None))
def calling(address): return ctypes.CFUNCTYPE(c_int)(address)
";

const END: &str = "
sync()
step(1)
hold()";

fn job(world: usize, set: &[(&str, &str)], script: &str) -> Job {
    Job::of(world, set, &format!("{HANDLES}{script}{END}"))
}

#[test]
fn nccl_by_ctypes_counts_as_many_calls_as_are_made() {
    let script = "
comm = made(nccl.ncclCommInitRank, 2, share('by_handle', new_id), RANK)
for _ in range(300):
    ok(nccl.ncclAllReduce(memory, memory, c_size_t(1 << 16), NCCL_BF16, 0, comm, stream))
for _ in range(20):
    ok(nccl.ncclGroupStart())
    ok(nccl.ncclAllReduce(memory, memory, c_size_t(1 << 10), NCCL_BF16, 0, comm, stream))
    ok(nccl.ncclBcast(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))
    ok(nccl.ncclGroupEnd())";
    let job = job(2, &[], script);
    for rank in 0..2 {
        let said = job.after_step(rank, 1);
        assert_eq!(said.launches().collectives, 300 + 2 * 20);
        assert_eq!(said.summaries.last().unwrap().hook.blind, [""; 0]);
    }
    job.end();
}

#[test]
fn gemms_and_launches_by_handle_count_once() {
    let script = "
for _ in range(30):
    ok(cublas.cublasGemmEx(blas, 0, 0, 512, 512, 512, one, memory, BF16, 512, memory, BF16, 512, one, memory, BF16, 512, COMPUTE_32F, -1))
drive(cuda.cuLaunchKernel, 40)";
    let job = job(1, &[], script);
    let said = job.after_step(0, 1);
    assert_eq!((said.launches().gemms, said.launches().kernels), (30, 40));
    job.end();
}

#[test]
fn addresses_from_the_driver_are_followed() {
    let script = "
for ask in (asked, by_runtime):
    drive(ctypes.CFUNCTYPE(c_int, c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p)(ask(b'cuLaunchKernel')), 10)
    assert ask(b'cuLaunchKernel') == ask(b'cuLaunchKernel')
    copy = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)(ask(b'cuMemcpyHtoDAsync'))
    ok(copy(memory, memory, 1000, stream))
# The newer one of that name asks on.
again = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_uint64, c_void_p)(asked(b'cuGetProcAddress'))
at = c_void_p()
ok(again(b'cuLaunchKernel', byref(at), 12000, 0, None))
drive(ctypes.CFUNCTYPE(c_int, c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p)(at.value), 5)
# Of these no stand-in is there, or the answer is none.
assert asked(b'cuDeviceGet') == ctypes.cast(cuda.cuDeviceGet, c_void_p).value
assert cuda.cuGetProcAddress_v2(b'cuNoSuch', byref(at), 12000, c_uint64(0), None) == 500 and not at.value";
    let job = job(1, &[], script);
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().kernels, 2 * 10 + 5);
    let copies = Copies { direction: Direction::HostToDevice, count: 2, bytes: 2000 };
    assert_eq!(said.summaries.last().unwrap().memory.copies, [copies]);
    job.end();
}

#[test]
fn a_graph_of_the_driver_has_the_captured_work() {
    let script = "
comm = made(nccl.ncclCommInitRank, 1, new_id(), 0)
graph, executable, event = c_void_p(), c_void_p(), c_void_p()
ok(cuda.cuStreamBeginCapture_v2(stream, 0))
drive(cuda.cuLaunchKernel, 3)
ok(nccl.ncclAllReduce(memory, memory, c_size_t(1 << 16), NCCL_BF16, 0, comm, stream))
ok(cuda.cuStreamEndCapture(stream, byref(graph)))
ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
for _ in range(7): ok(cuda.cuGraphLaunch(executable, stream))
ok(cuda.cuEventCreate(byref(event), 2))
ok(cuda.cuEventRecord(event, stream))
ok(cuda.cuStreamWaitEvent(stream, event, 0))
ok(cuda.cuEventSynchronize(event))
ok(cuda.cuStreamSynchronize(stream))
ok(cuda.cuCtxSynchronize())
ok(cuda.cuEventDestroy_v2(event))";
    let job = job(1, &[], script);
    let said = job.after_step(0, 1);
    let launches = said.launches();
    assert_eq!((launches.graphs, launches.kernels, launches.collectives), (7, 21, 7));
    job.end();
}

#[test]
fn a_rank_without_a_launcher_has_the_number_of_its_communicator() {
    let script = "
comm = made(nccl.ncclCommInitRank, 2, share('by_handle', new_id), RANK)
for _ in range(10):
    ok(nccl.ncclAllReduce(memory, memory, c_size_t(1 << 16), NCCL_BF16, 0, comm, stream))
sync()
time.sleep(3)";
    let job = job(2, &[("UNNUMBERED", "1")], script);
    for rank in 0..2 {
        let said = job.after_step(rank, 1);
        let last = said.hellos.last().unwrap();
        assert_eq!((last.rank, last.world_size), (Rank(rank as u32), 2), "{:?}", said.hellos);
    }
    job.end();
}

#[test]
fn xpu_top_dlsym_0_disables_following() {
    let job = job(1, &[("XPU_TOP_DLSYM", "0")], "drive(cuda.cuLaunchKernel, 40)");
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().kernels, 0);
    job.end();
}
