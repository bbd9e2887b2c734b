//! Kernels launched through the runtime and the driver, and kernels whose names the user asked for.

use std::collections::BTreeMap;

use xpu_tests::{built, listener::Sender, place::Place};
use xpu_wire::frame::{BlockingCall, KernelTotals};

use crate::Job;

/// Launches kernels by every function that can launch one.
const LAUNCHES: &str = "
from itertools import repeat
from ctypes import c_char_p
cuda = ctypes.CDLL('libcuda.so.1')
side = Dim3(1, 1, 1)
kept = []
def registered(name):
    address = ctypes.create_string_buffer(16)
    kept.append(address)
    process.__getattr__('__cudaRegisterFunction')(None, address, address, name, -1, None, None, None, None, None)
    return address
def handle(address):
    return made(process.cudaGetKernel, address)
def function(name, image=made(cuda.cuModuleLoadData, b'image')):
    return made(cuda.cuModuleGetFunction, image, name)
class Config(ctypes.Structure):
    _fields_ = [('grid', Dim3), ('block', Dim3), ('shared', c_size_t), ('stream', c_void_p), ('attributes', c_void_p), ('count', c_uint)]
class DriverConfig(ctypes.Structure):
    _fields_ = [('grid', Dim3), ('block', Dim3), ('shared', c_uint), ('stream', c_void_p), ('attributes', c_void_p), ('count', c_uint)]
def launch(address, count=1, name='cudaLaunchKernel'):
    for _ in repeat(None, count): ok(process.__getattr__(name)(address, side, side, None, c_size_t(0), stream))
def launch_ex(address):
    ok(process.cudaLaunchKernelExC(byref(Config(side, side, 0, stream, None, 0)), address, None))
def drive(function, count=1):
    for _ in repeat(None, count): ok(process.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, None, None))
def drive_ex(function):
    ok(process.cuLaunchKernelEx(byref(DriverConfig(side, side, 0, stream, None, 0)), function, None, None))
def drive_together(function):
    ok(process.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, None))
";

const END: &str = "
assert process.cudaGetLastError() == 0
sync()
step(1)
hold()";

const NAMES: &str = "flash_fwd:layer_norm*grad";

fn job(set: &[(&str, &str)], script: &str) -> Job {
    let usual = [("XPU_TOP_KERNELS", NAMES), ("XPU_TOP_SAMPLE", "kernel=1,graph=1")];
    Job::of(1, &[&usual[..], set].concat(), &format!("{LAUNCHES}{script}{END}"))
}

/// The last totals of each pattern.
fn kernels(said: &Sender) -> BTreeMap<String, KernelTotals> {
    let all = said.summaries.iter().flat_map(|summary| &summary.kernels);
    all.map(|kernel| (kernel.pattern.clone(), kernel.clone())).collect()
}

fn counts(said: &Sender) -> Vec<(String, u64, u64)> {
    kernels(said).into_values().map(|kernel| (kernel.pattern, kernel.count, kernel.timed)).collect()
}

fn blind(said: &Sender) -> Vec<String> {
    said.summaries.last().map(|summary| summary.hook.blind.clone()).unwrap_or_default()
}

/// The GPU is 44 ms behind when its queue is full.
#[test]
fn a_launch_into_a_full_queue_is_held() {
    let script = "
one = registered(b'one')
launch(one, 100)
sync()
step(1)
assert next_line() == 'on'
for _ in range(60): ok(gemm_ex(8192, 8192, 8192))
launch(one, 1500)
sync()
step(2)
assert next_line() == 'on'
for _ in range(1500): ok(gemm_ex(4096, 4096, 4096))
sync()
step(3)
hold()";
    let mut job = Job::of(1, &[], &format!("{LAUNCHES}{script}"));
    let held = |said: &Sender| {
        let last = said.summaries.last().unwrap();
        let launches = last.blocked.iter().find(|blocked| blocked.call == BlockingCall::Launch);
        launches.map_or(0.0, |blocked| blocked.waited.milliseconds())
    };
    let before = held(&job.after_step(0, 1));
    job.ranks[0].write_line("on");
    let kernels = held(&job.after_step(0, 2));
    job.ranks[0].write_line("on");
    let gemms = held(&job.after_step(0, 3));
    assert!(before < 10.0 && kernels > 20.0, "{before} ms, then {kernels} ms");
    assert!(gemms > kernels + 5.0, "{kernels} ms, then {gemms} ms");
    job.end();
}

#[test]
fn launches_by_the_driver_count_like_those_of_the_runtime() {
    let job = job(
        &[],
        "
one, two = function(b'one'), handle(registered(b'two'))
drive(one, 5); drive(two, 2); drive_ex(one); drive_together(one)
assert process.cuLaunchKernel(c_void_p(77), 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 400
assert process.cuLaunchKernel(one, 0, 1, 1, 1, 1, 1, 0, stream, None, None) == 1
graph, executable = c_void_p(), c_void_p()
ok(process.cudaStreamBeginCapture(stream, 0))
drive(one, 3)
launch(two, 1, '__cudaLaunchKernel')
ok(process.cudaStreamEndCapture(stream, byref(graph)))
ok(process.cudaGraphInstantiate(byref(executable), graph, c_size_t(0)))
for _ in range(10): ok(process.cuGraphLaunch(executable, stream))
assert process.cuGraphLaunch(c_void_p(77), stream) == 1",
    );
    let said = job.after_step(0, 1);
    assert_eq!((said.launches().kernels, said.launches().graphs), (9 + 10 * 4, 10));
    let graphs: Vec<_> = said.summaries.iter().flat_map(|summary| &summary.graphs).collect();
    let last = graphs.last().expect("it was launched");
    assert_eq!((last.graph, last.count, last.timed), (1, 10, 10), "it is the one that the runtime made");
    assert_eq!(counts(&said), []);
    assert_eq!(blind(&said), [""; 0]);
    job.end();
}

#[test]
fn a_launch_that_the_runtime_passes_to_the_driver_counts_once() {
    let place = Place::new();
    let through = place.path("libthrough.so");
    built::compile("hook/through.c", &through, &["-shared", "-fPIC"]);
    let preload = format!("{}:{}", built::hook().display(), through.display());
    let script = format!(
        "{LAUNCHES}
one = function(b'flash_fwd')
launch(one, 7)
graph, executable = c_void_p(), c_void_p()
ok(process.cudaStreamBeginCapture(stream, 0))
launch(one, 2)
ok(process.cudaStreamEndCapture(stream, byref(graph)))
ok(process.cudaGraphInstantiate(byref(executable), graph, c_size_t(0)))
for _ in range(3): ok(process.cudaGraphLaunch(executable, stream))
{END}"
    );
    let job = Job::at(place, 1, &[("LD_PRELOAD", &preload), ("XPU_TOP_SAMPLE", "graph=1")], &script);
    let said = job.after_step(0, 1);
    assert_eq!((said.launches().kernels, said.launches().graphs), (7 + 3 * 2, 3));
    job.end();
}

#[test]
fn kernels_are_counted_and_timed_by_the_requested_name() {
    let job = job(
        &[("SIMGPU_KERNEL_US", "300")],
        "
flash = registered(b'_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsEEv16Flash_fwd_params')
norm, other = registered(b'vectorized_layer_norm_input_grad_kernel'), registered(b'_Z4copyPfS_')
launch(flash, 10)
launch_ex(flash)
launch(flash, 1, 'cudaLaunchCooperativeKernel')
launch(other, 5)
launch(handle(norm), 4, '__cudaLaunchKernel')
launch(handle(other), 4, '__cudaLaunchKernel')
drive(function(b'triton_flash_fwd_0'), 8)
drive(handle(norm), 2)
drive(function(b'other'), 3)",
    );
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().kernels, 38);
    // The first launch of each function is not timed: the hook learns only from it that the user asked for
    // this name.
    assert_eq!(
        counts(&said),
        [("flash_fwd".to_owned(), 20, 18), ("layer_norm*grad".to_owned(), 6, 5)],
        "{said:?}"
    );
    let flash = &kernels(&said)["flash_fwd"];
    let mean = flash.timed_for.0 / flash.timed;
    assert!((300_000..303_000).contains(&mean), "{mean} ns");
    let all = said.summaries.iter().flat_map(|summary| &summary.kernels);
    assert_eq!(all.map(|kernel| kernel.durations.count()).sum::<u64>(), 18 + 5);
    assert_eq!(blind(&said), [""; 0]);
    job.end();
}

#[test]
fn named_kernels_in_graphs_count_at_every_launch() {
    let job = job(
        &[],
        "
flash, other = registered(b'flash_fwd'), registered(b'other')
def work():
    launch(flash, 2)
    launch(other)
    drive(function(b'layer_norm_grad'), 3)
graph = capture(work)
for _ in range(5): ok(graph())
launch(flash, 4)",
    );
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().kernels, 5 * 6 + 4);
    assert_eq!(counts(&said), [("flash_fwd".to_owned(), 14, 4), ("layer_norm*grad".to_owned(), 15, 0)]);
    job.end();
}

#[test]
fn unavailable_kernel_names_are_reported_and_leave_no_cuda_error() {
    let job = job(
        &[],
        "
for _ in range(3): ok(kernel())
assert process.cudaGetLastError() == 0
launch(stream, 2)
assert process.cudaGetLastError() == 0
flash = registered(b'flash_fwd')
failed = process.cudaSetDevice(9999)
launch(flash, 3)
launch(ctypes.create_string_buffer(16))
assert process.cudaGetLastError() == failed != 0, 'the error is still the program\\'s own'
launch(flash, 3)",
    );
    let said = job.after_step(0, 1);
    assert_eq!(said.launches().kernels, 12);
    assert_eq!(counts(&said), [("flash_fwd".to_owned(), 3, 2)], "asked once the error was read");
    assert_eq!(blind(&said), ["2 kernels whose names are unknown: that needs CUDA 12.3"]);
    job.end();
}

#[test]
fn a_reused_function_handle_gets_its_own_name() {
    let job = job(
        &[],
        "
def once(name, count):
    image = made(cuda.cuModuleLoadData, b'image')
    made_here = function(name, image)
    drive(made_here, count)
    ok(process.cuModuleUnload(image))
    return made_here.value
first = once(b'flash_fwd', 3)
assert once(b'other', 5) == first, 'the handle is used again'
assert once(b'layer_norm_grad', 2) == first",
    );
    let said = job.after_step(0, 1);
    assert_eq!(counts(&said), [("flash_fwd".to_owned(), 3, 2), ("layer_norm*grad".to_owned(), 2, 1)]);
    job.end();
}

/// cuDNN launches through handles that the hook does not see. A user who asks for cuDNN's attention kernels
/// must not get a plain zero.
#[test]
fn a_pattern_without_matches_is_reported() {
    let job = job(&[], "launch(registered(b'flash_fwd_kernel'), 2_000)");
    let said = job.after_step(0, 1);
    let blind = blind(&said);
    assert!(matches!(&blind[..], [one] if one.contains("'layer_norm*grad'")), "{blind:?}");
    job.end();
}

#[test]
fn an_invalid_list_of_patterns_is_reported() {
    let long = format!("flash_fwd:{}", "x".repeat(65));
    let job = job(&[("XPU_TOP_KERNELS", &long)], "launch(registered(b'flash_fwd'), 3)");
    let said = job.after_step(0, 1);
    assert_eq!((said.launches().kernels, counts(&said)), (3, Vec::new()));
    assert_eq!(blind(&said).len(), 1);
    assert!(blind(&said)[0].contains("XPU_TOP_KERNELS"), "{:?}", blind(&said));
    job.end();
}
