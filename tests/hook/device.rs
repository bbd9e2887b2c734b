//! The name of the GPU, which determines its peak rate.

use crate::Job;

const SCRIPT: &str = "
ok(gemm_ex(512, 512, 512))
sync()
step(1)
hold()";

fn device(set: &[(&str, &str)]) -> String {
    let job = Job::of(1, &[&[("XPU_TOP_SAMPLE", "gemm=1")], set].concat(), SCRIPT);
    let said = job.after_step(0, 1);
    let device = said.summaries.last().expect("it has said something").device.clone();
    job.end();
    device
}

#[test]
fn the_device_has_cudas_name() {
    assert_eq!(device(&[]), "NVIDIA H200");
    assert_eq!(device(&[("SIMGPU_DEVICE_NAME", "Something \"new\"")]), "Something \"new\"");
}

#[test]
fn without_timing_the_name_is_not_queried() {
    assert_eq!(device(&[("XPU_TOP_BUDGET", "0"), ("XPU_TOP_SAMPLE", "")]), "");
}

#[test]
fn without_a_driver_the_device_is_unknown() {
    let script = format!(
        "
assert 'libsimgpu_driver' not in open('/proc/self/maps').read()
{SCRIPT}"
    );
    let place = xpu_tests::place::Place::new();
    std::fs::remove_file(place.path("lib").join("libcuda.so.1")).unwrap();
    let job = Job::at(place, 1, &[("XPU_TOP_SAMPLE", "gemm=1")], &script);
    let said = job.after_step(0, 1);
    assert_eq!((said.summaries.last().unwrap().device.as_str(), said.launches().gemms), ("", 1));
    job.end();
}
