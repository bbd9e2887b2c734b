//! CUDA graphs: captured operations count at every launch, and a launch is timed as one operation.

use std::collections::BTreeMap;

use xpu_tests::listener::Sender;
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{Copies, Direction, GraphTotals},
};

use crate::{Job, shape};

/// The last totals of each graph.
fn graphs(said: &Sender) -> BTreeMap<u32, GraphTotals> {
    said.summaries
        .iter()
        .flat_map(|summary| &summary.graphs)
        .map(|graph| (graph.graph, graph.clone()))
        .collect()
}

const EVERY: [(&str, &str); 1] = [("XPU_TOP_SAMPLE", "gemm=1,collective=1,graph=1")];

#[test]
fn the_contents_of_a_graph_count_at_every_launch() {
    let script = "
comm = communicator()
ok(all_reduce(comm, 1000))
def work():
    for n in (512, 512, 1024): ok(gemm_ex(n, n, n))
    ok(kernel())
    ok(process.cudaMemcpyAsync(memory, memory, c_size_t(40), 3, stream))
    ok(process.cudaMemsetAsync(memory, 0, c_size_t(2), stream))
    ok(all_reduce(comm, 3000))
    with Group():
        ok(send(comm, 8, 1 - RANK))
        ok(receive(comm, 8, 1 - RANK))
graph = capture(work)
step(1)
assert next_line() == 'launch'
for _ in range(10): ok(graph())
ok(all_reduce(comm, 1000))
sync()
assert [counter(name) for name in ('gemms', 'collectives', 'kernels', 'graphs')] == [30, 12, 10, 10]
step(2)
hold()";
    let mut job = Job::of(2, &EVERY, script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let launches = said.launches();
        assert_eq!((launches.gemms, launches.collectives, launches.kernels), (0, 1, 0), "only captured");
        assert_eq!((launches.captured, launches.point_to_point), (6, 0));
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.point_to_point), (1, 1, 0));
    }
    job.ranks.iter_mut().for_each(|rank| rank.write_line("launch"));
    for rank in [0, 1] {
        let said = job.after_step(rank, 2);
        let launches = said.launches();
        assert_eq!((launches.gemms, launches.collectives, launches.kernels), (30, 12, 10));
        assert_eq!((launches.graphs, launches.captured, launches.point_to_point), (10, 6, 20));
        let gemms = said.gemms();
        let count = |side| gemms[&shape([side; 3], DataType::Bfloat16, (false, false))].count;
        assert_eq!((count(512), count(1024)), (20, 10));
        let collectives = said.collectives();
        let count = |operation, bytes| collectives[&(operation, bytes)].count;
        assert_eq!((count(Operation::AllReduce, 6000), count(Operation::Send, 16)), (10, 10));
        let memory = &said.summaries.last().unwrap().memory;
        let copies = Copies { direction: Direction::DeviceToDevice, count: 10, bytes: 400 };
        assert_eq!((&memory.copies[..], memory.sets, memory.set), (&[copies][..], 10, 20));
        let graph = &graphs(&said)[&1];
        assert_eq!((graph.count, graph.gemms, graph.collectives), (10, 3, 3));
        assert_eq!(graph.flops, 2.0 * (2.0 * 512.0_f64.powi(3) + 1024.0_f64.powi(3)));
        assert!(graph.timed == 10 && graph.timed_for.0 > 0, "{graph:?}");
        let numbers: Vec<_> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, [0, 11], "the graph's ten have numbers of their own");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (12, 12, 12));
        assert_eq!(line.point_to_point, 20);
        assert_eq!(said.summaries.last().unwrap().hook.blind, [""; 0]);
    }
    job.end();
}

#[test]
fn graphs_are_numbered_also_while_observing_is_off() {
    let script = "
comm = communicator()
if RANK == 0: switch(0)
graph = capture(lambda: ok(all_reduce(comm, 3000)))
for _ in range(4): ok(graph())
if RANK == 0: switch(1)
ok(graph())
ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &EVERY, script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let numbers: Vec<_> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, [5], "rank {rank}");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (6, 6, 6), "rank {rank}");
    }
    job.end();
}

/// Graphs that are numbered from 1 in the order of their executables, and launched.
const FOLLOWED: &str = "
other = made(process.cudaStreamCreateWithFlags, c_uint(1))
def captured(work, into=None):
    graph = c_void_p()
    if into is None: ok(process.cudaStreamBeginCapture(stream, 0))
    else: ok(process.cudaStreamBeginCaptureToGraph(stream, into, None, None, c_size_t(0), 0))
    work()
    ok(process.cudaStreamEndCapture(stream, byref(graph)))
    return graph
def times(n):
    def work():
        for _ in range(n): ok(gemm_ex(256, 256, 256))
    return work
def executable(graph, how='cudaGraphInstantiate', last=c_size_t(0)):
    return made(getattr(process, how), graph, last)
def launch(graph, count=1, on=stream):
    for _ in range(count): ok(process.cudaGraphLaunch(graph, on))

three = captured(times(3))
first = executable(three)                                              # 1: 3 gemms
launch(first)
ok(process.cudaGraphDestroy(three))
launch(first)                                                          # its graph is gone
five = captured(times(5))
assert five.value == three.value, 'the handle is used again'
second = executable(five, 'cudaGraphInstantiateWithFlags')             # 2: 5
launch(second, 2)
clone = made(process.cudaGraphClone, five)
ok(process.cudaGraphDestroy(five))
parameters = (ctypes.c_uint64 * 4)()
third = executable(clone, 'cudaGraphInstantiateWithParams', byref(parameters))  # 3: 5
launch(third)
seven = captured(times(7))
ok(process.cudaGraphExecUpdate(second, seven, byref((ctypes.c_uint64 * 3)())))
launch(second)                                                         # 2: now 7
ok(process.cudaGraphExecDestroy(third))
fourth = executable(captured(lambda: (launch(first), times(1)())))      # 4: 3 + 1, a graph within
assert fourth.value == third.value, 'the handle is used again'
launch(fourth, 10)
captured(times(2), seven)
fifth = executable(seven)                                              # 5: 7 + 2
launch(fifth)
made_up = made(process.cudaGraphCreate, c_uint(0))
ok(process.cudaGraphAddChildGraphNode(byref(c_void_p()), made_up, None, c_size_t(0), clone))
sixth = executable(made_up)                                            # 6: 5
launch(sixth)
by_hand = made(process.cudaGraphCreate, c_uint(0))
class KernelNode(ctypes.Structure):
    _fields_ = [('function', c_void_p), ('sides', c_uint * 6), ('shared', c_uint), ('arguments', c_void_p),
                ('extra', c_void_p)]
node = KernelNode(4096, (c_uint * 6)(1, 1, 1, 32, 1, 1))
def add_kernels(graph, count):
    for _ in range(count): ok(process.cudaGraphAddKernelNode(byref(c_void_p()), graph, None, c_size_t(0), byref(node)))
add_kernels(by_hand, 6)
launch(executable(by_hand), 4)                                         # 7: 6 kernels, added one by one
joined = c_void_p()                                                    # two streams, one capture
fork, join = (made(process.cudaEventCreateWithFlags, c_uint(2)) for _ in range(2))
ok(process.cudaStreamBeginCapture(stream, 0))
ok(process.cudaEventRecord(fork, stream))
ok(process.cudaStreamWaitEvent(other, fork, 0))
ok(process.cublasSetStream_v2(blas, other))
times(4)()
ok(process.cublasSetStream_v2(blas, stream))
ok(process.cudaEventRecord(join, other))
ok(process.cudaStreamWaitEvent(stream, join, 0))
ok(process.cudaStreamEndCapture(stream, byref(joined)))
eighth = executable(joined)                                            # 8: 4
launch(eighth, on=other)
inner = made(process.cudaGraphCreate, c_uint(0))
add_kernels(inner, 2)
outer = captured(times(3))
ok(process.cudaGraphAddChildGraphNode(byref(c_void_p()), outer, None, c_size_t(0), inner))
add_kernels(outer, 1)
launch(executable(outer), 5)                                           # 9: 3 + 3 kernels
sync()
ok(process.cudaStreamSynchronize(other))
step(1)
hold()";

#[test]
fn graphs_are_followed_through_clones_children_and_updates() {
    let job = Job::of(1, &EVERY, FOLLOWED);
    let said = job.after_step(0, 1);
    let all: BTreeMap<_, _> =
        graphs(&said).into_iter().map(|(number, graph)| (number, (graph.gemms, graph.count))).collect();
    let expected = [
        (1, (3, 2)),
        (2, (7, 3)),
        (3, (5, 1)),
        (4, (4, 10)),
        (5, (9, 1)),
        (6, (5, 1)),
        (7, (0, 4)),
        (8, (4, 1)),
        (9, (3, 5)),
    ];
    assert_eq!(all, BTreeMap::from(expected));
    let with_more: Vec<_> =
        graphs(&said).into_iter().filter(|(_, graph)| !graph.only_gemms).map(|(number, _)| number).collect();
    // Of a graph that is launched into a capture, the stand-in adds the nodes, where CUDA adds one for the
    // graph.
    assert_eq!(with_more, [4, 7, 9]);
    assert_eq!(said.launches().kernels, 6 * 4 + 3 * 5);
    let gemms = 3 * 2 + 5 * 2 + 5 + 7 + 4 * 10 + 9 + 5 + 4 + 3 * 5;
    let gemm = &said.gemms()[&shape([256; 3], DataType::Bfloat16, (false, false))];
    assert_eq!((said.launches().gemms, gemm.count), (gemms, gemms));
    assert_eq!(said.launches().captured, 3 + 5 + 7 + 1 + 2 + 4 + 3);
    let blind = &said.summaries.last().unwrap().hook.blind;
    assert_eq!(blind[..], [""; 0]);
    job.end();
}

/// As XLA adds nodes: kernels with names, copies and fills.
#[test]
fn nodes_added_one_by_one_have_their_names_and_sizes() {
    let script = "
graph = made(process.cudaGraphCreate, c_uint(0))
driver = ctypes.CDLL('libcuda.so.1')
module = made(driver.cuModuleLoadData, b'image')
class KernelNode(ctypes.Structure):
    _fields_ = [('function', c_void_p), ('sides', c_uint * 6), ('shared', c_uint), ('arguments', c_void_p),
                ('extra', c_void_p)]
class Fill(ctypes.Structure):
    _fields_ = [('to', c_void_p), ('pitch', c_size_t), ('value', c_uint), ('element', c_uint), ('width', c_size_t),
                ('height', c_size_t)]
def add(how, *what):
    ok(getattr(process, how)(byref(c_void_p()), graph, None, c_size_t(0), *what))
for name in (b'flash_fwd', b'other', b'flash_fwd'):
    function = made(driver.cuModuleGetFunction, module, name)
    add('cudaGraphAddKernelNode', byref(KernelNode(function, (c_uint * 6)(1, 1, 1, 32, 1, 1))))
for kind, bytes in ((1, 100), (3, 7), (1, 50), (4, 9)):
    add('cudaGraphAddMemcpyNode1D', memory, memory, c_size_t(bytes), kind)
add('cudaGraphAddMemsetNode', byref(Fill(memory, 0, 0, 4, 5, 2)))
outer = made(process.cudaGraphCreate, c_uint(0))
ok(process.cudaGraphAddChildGraphNode(byref(c_void_p()), outer, None, c_size_t(0), graph))
for whole, times in ((graph, 3), (outer, 2)):
    executable = made(process.cudaGraphInstantiate, whole, c_size_t(0))
    for _ in range(times): ok(process.cudaGraphLaunch(executable, stream))
sync()
step(1)
hold()";
    let job = Job::of(1, &[EVERY[0], ("XPU_TOP_KERNELS", "flash*")], script);
    let said = job.after_step(0, 1);
    let last = said.summaries.last().unwrap();
    let copies = [(Direction::HostToDevice, 10, 750), (Direction::DeviceToDevice, 5, 35)];
    let copies = copies.into_iter().chain([(Direction::ByAddress, 5, 45)]);
    let copies: Vec<_> = copies.map(|(direction, count, bytes)| Copies { direction, count, bytes }).collect();
    assert_eq!((&last.memory.copies, last.memory.sets, last.memory.set), (&copies, 5, 200));
    let named = last.kernels.iter().map(|kernel| kernel.count).sum::<u64>();
    assert_eq!((said.launches().kernels, named), (15, 10));
    assert_eq!(last.hook.blind, [""; 0]);
    job.end();
}

/// The GPU decides how often a body runs.
#[test]
fn the_bodies_of_conditional_nodes_are_reported_as_not_counted() {
    let script = "
class Conditional(ctypes.Structure):
    _fields_ = [('kind', c_int), ('reserved', c_int * 3), ('handle', c_uint64), ('conditional', c_int), ('size', c_uint),
                ('bodies', ctypes.POINTER(c_void_p))]
graph = made(process.cudaGraphCreate, c_uint(0))
handle = c_uint64()
ok(process.cudaGraphConditionalHandleCreate(byref(handle), graph, 2, 0))
params = Conditional(13, (c_int * 3)(), handle, 1, 1)
ok(process.cudaGraphAddNode(byref(c_void_p()), graph, None, None, c_size_t(0), byref(params)))
body = params.bodies[0]
def captured(into, count):
    ok(process.cudaStreamBeginCaptureToGraph(stream, c_void_p(into), None, None, c_size_t(0), 0))
    for _ in range(count): ok(gemm_ex(256, 256, 256))
    ok(process.cudaStreamEndCapture(stream, byref(c_void_p())))
captured(body, 5)
captured(graph.value, 3)
executable = made(process.cudaGraphInstantiate, graph, c_size_t(0))
for _ in range(4): ok(process.cudaGraphLaunch(executable, stream))
sync()
step(1)
hold()";
    let job = Job::of(1, &EVERY, script);
    let said = job.after_step(0, 1);
    let all: Vec<_> = graphs(&said).values().map(|graph| (graph.gemms, graph.only_gemms)).collect();
    assert_eq!((all, said.launches().gemms), (vec![(3, false)], 12));
    let blind = &said.summaries.last().unwrap().hook.blind;
    let text = "4 launches of CUDA graphs with conditional nodes: the work in their bodies is not counted";
    assert_eq!(blind[..], [text]);
    job.end();
}

/// A solve has far fewer FLOPs per second than a GEMM, so a graph that contains one says nothing about GEMMs.
#[test]
fn a_graph_with_a_solve_is_not_timed_as_gemms() {
    let script = "
def solve():
    return process.cublasStrsm_v2(blas, 0, 0, 0, 0, 256, 256, one, memory, 256, memory, 256)
def rank_k():
    return process.cublasSsyrk_v2(blas, 0, 0, 256, 128, one, memory, 256, one, memory, 256)
for others in ((), (rank_k,), (solve,)):
    graph = capture(lambda: [ok(work()) for work in (lambda: gemm_ex(256, 256, 256), *others)])
    for _ in range(5): ok(graph())
sync()
step(1)
hold()";
    let job = Job::of(1, &EVERY, script);
    let said = job.after_step(0, 1);
    let gemm = 2.0 * 256.0 * 256.0 * 256.0;
    let of = |graph: &GraphTotals| (graph.gemms, graph.flops, graph.only_gemms);
    let found: Vec<_> = graphs(&said).values().map(of).collect();
    let expected =
        [(1, gemm, true), (2, gemm + 256.0 * 257.0 * 128.0, true), (2, gemm + 256.0 * 256.0 * 256.0, false)];
    assert_eq!((found, said.launches().gemms), (expected.into(), 25));
    job.end();
}

#[test]
fn graphs_recreated_every_step_leak_nothing() {
    let mut job = Job::of(
        1,
        &EVERY,
        "
graph, executable = c_void_p(), c_void_p()
for n in range(3000):
    if n % 1000 == 0 and n > 0:
        step(n)
        assert next_line() == 'on'
    ok(process.cudaStreamBeginCapture(stream, 0))
    ok(gemm_ex(64, 64, 64))
    ok(process.cudaStreamEndCapture(stream, byref(graph)))
    ok(process.cudaGraphInstantiate(byref(executable), graph, c_size_t(0)))
    ok(process.cudaGraphDestroy(graph))
    ok(process.cudaGraphLaunch(executable, stream))
    ok(process.cudaGraphExecDestroy(executable))
sync()
step(3000)
hold()",
    );
    for step in [1000, 2000] {
        job.after_step(0, step);
        job.ranks[0].write_line("on");
    }
    let said = job.after_step(0, 3000);
    assert_eq!(said.launches().gemms, 3000);
    let gemm = &said.gemms()[&shape([64; 3], DataType::Bfloat16, (false, false))];
    assert_eq!(gemm.count, 3000);
    assert_eq!(graphs(&said).len(), 3000);
    assert_eq!(said.summaries.last().unwrap().hook.blind, [""; 0]);
    job.end();
}
