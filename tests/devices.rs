//! GPU health, end to end: the collector reads the stand-in management library, and assigns each GPU to its
//! rank.

use std::fs;

use serde_json::{Value, json};
use xpu_tests::{built, host::Host, hung::Hung, program::until};

const TRAINS: &str = "
comm = communicator()
for _ in rounds():
    for _ in range(8): ok(gemm_ex(8192, 8192, 8192))
    ok(all_reduce(comm, 1000))
    sync()
    step()
hold()";

/// A host whose GPUs can be observed from outside, with two ranks that train on these GPUs.
fn trains(visible: &str, throttled: &str) -> (Host, [xpu_tests::program::Program; 2]) {
    let host = Host::with_visible_gpus();
    let ranks = [(0, "1980"), (1, throttled)].map(|(rank, clock)| {
        host.rank_where(rank, &[("CUDA_VISIBLE_DEVICES", visible), ("SIMGPU_CLOCK_MHZ", clock)], TRAINS)
    });
    (host, ranks)
}

fn end(host: &Host, ranks: [xpu_tests::program::Program; 2]) {
    fs::write(host.place.path("over"), "").expect("the place takes a file");
    for rank in ranks {
        let outcome = rank.end();
        assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

/// The devices of both ranks, once both are known and satisfy `so`.
fn devices(host: &Host, what: &str, so: impl Fn(&[Value; 2]) -> bool) -> [Value; 2] {
    until(what, || {
        let status = host.status();
        let both = [0, 1].map(|rank| status["ranks"][rank]["device"].clone());
        (both.iter().all(Value::is_object) && so(&both)).then_some(both)
    })
}

#[test]
fn each_rank_has_the_health_of_its_own_gpu_despite_renumbering() {
    let (host, ranks) = trains("5,3", "1320");
    let busy = |device: &Value| device["gpu_pct"].as_u64() > Some(50);
    let [fast, slow] = devices(&host, "both GPUs to be busy", |both| both.iter().all(busy));
    let numbered = |device: &Value| device["uuid"].as_str().unwrap().chars().last();
    assert_eq!((numbered(&fast), numbered(&slow)), (Some('5'), Some('3')));
    assert_eq!((&fast["sm_mhz"], &fast["throttle"]), (&1980.into(), &Value::Array(vec![])));
    assert_eq!((&slow["sm_mhz"], &slow["throttle"][0]), (&1320.into(), &"power cap".into()));
    assert!(slow["power_limit_w"].as_f64() < fast["power_limit_w"].as_f64());
    // `gpu.py` holds one gibibyte.
    assert!(fast["memory_used_bytes"].as_u64() >= Some(1 << 30), "{fast}");
    assert_eq!((&fast["ecc_uncorrected"], &fast["nvlink_errors"]), (&0.into(), &Value::Null));
    let rates = host.status();
    let [fast, slow] = [0, 1].map(|rank| rates["ranks"][rank]["gemm_tflops"].as_f64().unwrap());
    assert!(
        (slow / fast - 1320.0 / 1980.0).abs() < 0.02,
        "the clock holds the GEMMs down: {fast} and {slow}"
    );
    end(&host, ranks);
}

/// One process drives two GPUs, with one thread for each. The second multiplies at an eighth of the speed, so
/// the first waits for it.
const TWO_GPUS: &str = "
import threading
comms = (c_void_p * 2)()
ok(process.ncclCommInitAll(comms, 2, None))
begins, ends = threading.Barrier(2), threading.Barrier(2)
numbers, going = rounds(), True

def drive(device):
    global going
    ok(process.cudaSetDevice(device))
    own, handle = made(process.cudaStreamCreateWithFlags, c_uint(1)), made(process.cublasCreate_v2)
    ok(process.cublasSetStream_v2(handle, own))
    dtype = (BF16, FLOAT)[device]
    while True:
        if device == 0:
            going = next(numbers, None) is not None
        begins.wait()
        if not going:
            return
        for _ in range(8):
            ok(process.cublasGemmEx(
                handle, 0, 0, 4096, 4096, 4096, one, memory, dtype, 4096, memory, dtype, 4096,
                one, memory, dtype, 4096, COMPUTE_32F, -1))
        ok(process.ncclAllReduce(memory, memory, c_size_t(1 << 20), NCCL_FLOAT, 0, c_void_p(comms[device]), own))
        ok(process.cudaStreamSynchronize(own))
        ends.wait()
        if device == 0:
            step()

threads = [threading.Thread(target=drive, args=(device,)) for device in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
hold()";

/// One thread drives both GPUs and leaves the second one current. Its NCCL is linked in statically, so only the
/// plugin interface shows its calls.
const ONE_THREAD: &str = "
comms, devices = (c_void_p * 2)(), []
ok(process.pncclCommInitAll(comms, 2, None))
for device in range(2):
    ok(process.cudaSetDevice(device))
    own, handle = made(process.cudaStreamCreateWithFlags, c_uint(1)), made(process.cublasCreate_v2)
    ok(process.cublasSetStream_v2(handle, own))
    devices.append((own, handle))
has_begun = False
for _ in rounds():
    for device, (own, handle) in enumerate(devices):
        ok(process.cudaSetDevice(device))
        for _ in range(8):
            ok(process.cublasGemmEx(
                handle, 0, 0, 4096, 4096, 4096, one, memory, BF16, 4096, memory, BF16, 4096,
                one, memory, BF16, 4096, COMPUTE_32F, -1))
    # The hook counts the first GEMMs before NCCL shows that both GPUs are used.
    if not has_begun: time.sleep(0.4)
    has_begun = True
    ok(process.pncclGroupStart())
    for device, (own, handle) in enumerate(devices):
        ok(process.pncclAllReduce(memory, memory, c_size_t(1 << 20), NCCL_FLOAT, 0, c_void_p(comms[device]), own))
    ok(process.pncclGroupEnd())
    for own, _ in devices: ok(process.cudaStreamSynchronize(own))
    step()
hold()";

#[test]
fn collectives_that_only_the_plugin_sees_are_those_of_their_communicators_gpu() {
    let host = Host::with_visible_gpus();
    let hook = built::hook();
    let set = [
        ("CUDA_VISIBLE_DEVICES", "5,3"),
        ("XPU_TOP_SAMPLE", "gemm=1,collective=1"),
        ("NCCL_PROFILER_PLUGIN", hook.to_str().expect("text")),
        ("SIMGPU_NCCL_VERSION", "22809"),
    ];
    let rank = host.rank_of_where((0, 1), &set, ONE_THREAD);
    let known = |row: &Value| row["gemm_tflops"].is_number() && row["bus_gb_s"].is_number();
    let rows = until("both GPUs to be known", || {
        let rows = host.status()["ranks"].as_array()?.clone();
        (rows.len() == 2 && rows.iter().all(known)).then_some(rows)
    });
    assert_eq!([&rows[0]["rank"], &rows[1]["rank"]], ["0.0", "0.1"]);
    fs::write(host.place.path("over"), "").expect("the place takes a file");
    let counts = || {
        [0, 1].map(|gpu| {
            let text = host.ask(&format!("status --json --now --rank 0.{gpu}")).stdout;
            let detailed: Value = serde_json::from_str(&text).unwrap_or_default();
            ["gemms", "collectives"].map(|what| detailed["ranks"][gpu][what][0]["count"].as_u64())
        })
    };
    until("eight GEMMs for one all-reduce, on each", || {
        let [[gemms, collectives], other] = counts();
        (gemms > Some(0) && gemms == collectives.map(|count| 8 * count) && other == [gemms, collectives])
            .then_some(())
    });
    let outcome = rank.end();
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
}

/// As `CuPy`: the CUDA runtime is linked into the libraries, so streams and events are the driver's.
#[test]
fn a_job_without_a_shared_runtime_has_tflops_and_bandwidth() {
    let host = Host::with_visible_gpus();
    let set = [("SIMGPU_TIMELINE", "libsimgpu_timeline.so"), ("XPU_TOP_SAMPLE", "gemm=1,collective=1")];
    let ranks = [0, 1].map(|rank| host.rank_where(rank, &set, TRAINS));
    let known = |row: &Value| row["gemm_tflops"].is_number() && row["bus_gb_s"].is_number();
    let rows = until("both ranks to be known", || {
        let rows = host.status()["ranks"].as_array()?.clone();
        (rows.len() == 2 && rows.iter().all(known)).then_some(rows)
    });
    let near = |figure: &Value, expected: f64| (figure.as_f64().unwrap() / expected - 1.0).abs() < 0.03;
    assert!(rows.iter().all(|row| near(&row["gemm_tflops"], 500.0)), "{rows:#?}");
    let text = host.ask("status --now").stdout;
    assert!(!text.contains("nothing is timed"), "{text}");
    end(&host, ranks);
}

#[test]
fn each_gpu_of_one_process_is_a_row_with_its_own_figures_health_and_finding() {
    let host = Host::with_visible_gpus();
    let set = [("CUDA_VISIBLE_DEVICES", "5,3"), ("XPU_TOP_SAMPLE", "gemm=1,collective=1")];
    let rank = host.rank_of_where((0, 1), &set, TWO_GPUS);
    let known = |row: &Value| {
        let figures = ["gemm_tflops", "bus_gb_s", "exposed_pct"];
        figures.iter().all(|figure| row[figure].is_number()) && row["device"].is_object()
    };
    let near = |rows: &[Value], field: &str, expected: [f64; 2]| {
        let mut both = rows.iter().zip(expected);
        both.all(|(row, expected)| (row[field].as_f64().unwrap() / expected - 1.0).abs() < 0.03)
    };
    // On a busy machine, the first figures are of few operations, which took longer.
    let (status, rows) = until("the figures of both GPUs", || {
        let status = host.status();
        let rows = status["ranks"].as_array()?.clone();
        let are_known = rows.len() == 2 && rows.iter().all(known);
        let are_right = || near(&rows, "gemm_tflops", [500.0, 62.5]) && near(&rows, "bus_gb_s", [150.0; 2]);
        (are_known && are_right()).then_some((status, rows))
    });
    // The faster GPU waits for the other one in each collective.
    let exposed = [0, 1].map(|gpu: usize| rows[gpu]["exposed_pct"].as_f64().unwrap());
    assert!(exposed[0] > 40.0 && exposed[1] < 20.0, "{exposed:?}");
    assert_eq!([&rows[0]["rank"], &rows[1]["rank"]], ["0.0", "0.1"]);
    assert_eq!((&status["world_size"], &status["coverage"]["ranks_seen"]), (&1.into(), &1.into()));
    let numbered = |row: usize| rows[row]["device"]["uuid"].as_str().unwrap().chars().last();
    assert_eq!([numbered(0), numbered(1)], [Some('5'), Some('3')]);
    let detailed: Value = serde_json::from_str(&host.ask("status --json --rank 0.1").stdout).unwrap();
    let communicators = detailed["ranks"][1]["communicators"].as_array().unwrap();
    assert_eq!((communicators.len(), &communicators[0]["rank"]), (1, &1.into()), "{detailed:#}");
    assert!(detailed["ranks"][1]["gemms"][0]["datatype"] != Value::Null, "{detailed:#}");
    let text = host.ask("status --now").stdout;
    assert!([" 0.0 ", " 0.1 "].iter().all(|rank| text.contains(rank)), "{text}");
    let named = until("the slower GPU to be named", || {
        let status: Value = serde_json::from_str(&host.ask("status --json").stdout).ok()?;
        status["findings"].as_array()?.iter().find(|finding| finding["ranks"][0] == "0.1").cloned()
    });
    assert_eq!(named["ranks"].as_array().unwrap().len(), 1, "{named:#}");
    fs::write(host.place.path("over"), "").expect("the place takes a file");
    let outcome = rank.end();
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
}

/// One process drives two GPUs. In its step 12, the second one gets a GEMM that does not end.
#[test]
fn the_gpu_of_one_process_that_hangs_is_named() {
    let host = Host::with_visible_gpus();
    let set = [("CUDA_VISIBLE_DEVICES", "5,3")];
    let (begin, endless) = (
        "        for _ in range(8):\n",
        "ok(process.cublasGemmEx(
            handle, 0, 0, 2000000, 2000000, 2000000, one, memory, dtype, 2000000, memory, dtype, 2000000,
            one, memory, dtype, 2000000, COMPUTE_32F, -1))",
    );
    assert!(TWO_GPUS.contains(begin));
    let counts = "        made_steps[device] += 1\n";
    let hangs = format!("{counts}        if (device, made_steps[device]) == (1, 12): {endless}\n{begin}");
    let script = format!("made_steps = [0, 0]\n{}", TWO_GPUS.replace(begin, &hangs));
    let rank = host.rank_of_where((0, 1), &set, &script);
    let (found, status) = Hung { host, ranks: vec![rank] }.hang();
    assert_eq!((&found["class"], &found["ranks"]), (&"not_started".into(), &json!(["0.1"])), "{status:#}");
    let gpus = found["gpus"].as_array().expect("the state of both GPUs");
    let states: Vec<_> = gpus.iter().map(|gpu| (&gpu["ranks"], &gpu["state"])).collect();
    assert_eq!(
        states,
        [(&json!(["0.1"]), &"behind".into()), (&json!(["0.0"]), &"begun".into())],
        "{found:#}"
    );
}

/// One GPU has a performance monitor. The other is an older one, and has only counters.
#[test]
fn traffic_and_load_of_gpus_and_processes_are_measured() {
    let host = Host::with_visible_gpus();
    fs::write(host.place.path("machine/no-gpm-1"), "").unwrap();
    let ranks = [0, 1].map(|rank| host.rank_where(rank, &[("CUDA_VISIBLE_DEVICES", "0,1")], TRAINS));
    let [new, old] = until("both loads", || {
        let status = host.status();
        let both = [0, 1].map(|rank| status["ranks"][rank]["load"].clone());
        let is_known = |load: &Value| load["gpu"]["pcie"]["received_bytes_per_s"].as_u64() > Some(100 << 20);
        both.iter().all(is_known).then_some(both)
    });
    // A later request gets both loads at once.
    for _ in 0..3 {
        let status = host.status();
        assert!([0, 1].iter().all(|rank: &usize| status["ranks"][*rank]["load"].is_object()), "{status:#}");
    }
    // The stand-in's rates are proportional to the share of time in which the GPU was busy.
    let share = new["gpu"]["sm_pct"].as_f64().unwrap() / 100.0;
    let is = |found: &Value, rate: f64| {
        let found = found.as_f64().unwrap() / f64::from(1 << 20);
        assert!((found / (rate * share) - 1.0).abs() < 0.01, "{found} MiB/s: {new:#}");
    };
    assert!(share > 0.3 && share <= 1.0, "{new:#}");
    assert!((new["gpu"]["dram_pct"].as_f64().unwrap() / 50.0 - share).abs() < 0.01, "{new:#}");
    is(&new["gpu"]["pcie"]["received_bytes_per_s"], 2000.0);
    is(&new["gpu"]["pcie"]["sent_bytes_per_s"], 500.0);
    is(&new["gpu"]["nvlink"]["received_bytes_per_s"], 90_000.0);
    is(&new["gpu"]["nvlink"]["sent_bytes_per_s"], 80_000.0);
    let pcie =
        ["received", "sent"].map(|way| old["gpu"]["pcie"][format!("{way}_bytes_per_s")].as_f64().unwrap());
    assert!((pcie[0] / pcie[1] - 4.0).abs() < 0.01, "{old:#}");
    for unknown in [&old["gpu"]["sm_pct"], &old["gpu"]["dram_pct"], &old["gpu"]["nvlink"]["sent_bytes_per_s"]]
    {
        assert_eq!(unknown, &Value::Null, "{old:#}");
    }
    for load in [&new, &old] {
        assert!(load["processes"].as_u64() >= Some(1) && load["cpu_cores"].is_number(), "{load:#}");
        assert!(load["host"]["cores"].as_u64() >= Some(1) && load["host"]["cpu_pct"].is_number(), "{load:#}");
        assert!(load["host"]["network"]["received_bytes_per_s"].is_u64(), "{load:#}");
    }
    end(&host, ranks);
}

#[test]
fn an_error_of_a_gpu_is_counted() {
    let (host, ranks) = trains("0,1", "1980");
    devices(&host, "errors to be listened to", |both| both.iter().all(|device| device["xids"] == 0));
    for seen in 1..=2 {
        fs::write(host.place.path("machine/xid-1"), "79").unwrap();
        let [other, sick] = devices(&host, "the error", |both| both[1]["xids"] == seen);
        let last = &sick["last_xid"];
        assert_eq!((&last["code"], &last["means"]), (&79.into(), &"GPU has fallen off the bus".into()));
        assert_eq!((&other["xids"], &other["last_xid"]), (&0.into(), &Value::Null));
    }
    end(&host, ranks);
}

#[test]
fn a_gpu_that_does_not_answer_blocks_nothing_and_its_reading_ages() {
    let (host, ranks) = trains("0,1", "1980");
    devices(&host, "both GPUs to be read", |_| true);
    let sick = host.place.path("machine/sick-0");
    fs::write(&sick, "").unwrap();
    let old = |device: &Value| device["age_s"].as_f64() > Some(3.0);
    let step = host.status()["ranks"][0]["step"].as_u64().unwrap();
    devices(&host, "its reading to grow old, and not its neighbour's", |both| {
        old(&both[0]) && !old(&both[1])
    });
    until("frames to go on", || (host.status()["ranks"][0]["step"].as_u64()? > step + 3).then_some(()));
    fs::write(host.place.path("machine/xid-0"), "119").unwrap();
    devices(&host, "its error to be heard all the same", |both| both[0]["xids"] == 1 && old(&both[0]));
    fs::remove_file(&sick).unwrap();
    devices(&host, "it to be read again", |both| !old(&both[0]));
    end(&host, ranks);
}

#[test]
fn without_a_driver_the_health_is_unknown_and_the_rest_is_unchanged() {
    unknown(&Host::new());
}

#[test]
fn without_nvml_the_health_is_unknown_and_the_rest_is_unchanged() {
    let host = Host::with_visible_gpus();
    fs::remove_file(host.place.path("lib/libnvidia-ml.so.1")).unwrap();
    unknown(&host);
}

fn unknown(host: &Host) {
    let ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
    let status = until("both ranks to say what they do", || {
        let status = host.status();
        let known = |rank: &Value| rank["gemm_tflops"].is_number() && rank["step"].as_u64() > Some(5);
        [0, 1].iter().all(|&rank: &usize| known(&status["ranks"][rank])).then_some(status)
    });
    assert_eq!([0, 1].map(|rank| status["ranks"][rank]["device"].clone()), [Value::Null, Value::Null]);
    assert_eq!(status["coverage"]["ranks_seen"], 2);
    end(host, ranks);
}
