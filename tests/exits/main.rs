//! Ranks that fail, in real processes under the real hook and collector. The report shows how and where, the
//! user's plugin is called once, and the program ends as it would without the hook.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod handlers;
mod job;
mod killed;

use std::{fs, os::unix::fs::PermissionsExt as _};

use job::{BEGIN, Job, PLUGIN, died_by};
use xpu_tests::{host::Host, place::Place, program::until};

#[test]
fn an_exception_is_reported_with_its_frames() {
    let script = "
def bad(): raise ValueError('bad loss at 7')
outer(bad)";
    let (ended, host) = Job::new(&[], script).ends();
    assert_eq!(ended.outcome.status.code(), Some(1), "{:?}", ended.outcome);
    assert!(
        ended.outcome.stderr.ends_with("ValueError: bad loss at 7\n"),
        "the program's own words: {:?}",
        ended.outcome
    );
    assert!(!ended.outcome.stderr.contains("xpu-top"), "{:?}", ended.outcome);
    assert_eq!(
        (&ended.finding["class"], &ended.finding["confidence"]),
        (&"exception".into(), &"certain".into())
    );
    assert!(ended.evidence().contains("rank 0 (sim, pid"), "{}", ended.evidence());
    assert!(
        ended.evidence().contains("raised ValueError: bad loss at 7 and exited with code 1, in bad"),
        "{}",
        ended.evidence()
    );
    assert!(ended.evidence().contains("at step 1"), "{}", ended.evidence());
    assert_eq!(ended.functions(), ["<module>", "outer", "inner", "bad"]);
    assert_eq!((&ended.exit["code"], &ended.exit["exception"]), (&1.into(), &"ValueError".into()));
    ended.plugin_was_called_with(&["exit", "python"]);
    let python = &ended.reported[1];
    assert_eq!((&python["kind"], &python["value"]), (&"ValueError".into(), &"bad loss at 7".into()));
    let frames = python["frames"].as_array().unwrap();
    assert_eq!(
        frames.iter().map(|frame| frame[0].as_str().unwrap()).collect::<Vec<_>>(),
        ["<module>", "outer", "inner", "bad"]
    );
    assert_eq!((&python["infos"]["job_name"], &python["infos"]["ip"]), (&"train".into(), &"NOT_SET".into()));
    assert!(host.collector_log().contains("plugin.py: the plugin was here"));
    assert_eq!(host.ask("status --json --now").status.code(), Some(2), "a job that lost a rank stands");
}

#[test]
fn a_segfault_is_reported_with_native_frames() {
    let (ended, _host) = Job::new(&[], "import ctypes\nouter(lambda: ctypes.string_at(64))").ends();
    assert_eq!(died_by(ended.outcome.status), Some(11), "{:?}", ended.outcome);
    assert_eq!(ended.finding["class"], "signal");
    assert!(
        ended.evidence().contains("was ended by SIGSEGV at address 0x40 in thread python3"),
        "{}",
        ended.evidence()
    );
    assert!(ended.functions().contains(&"string_at"), "{:?}", ended.functions());
    assert!(ended.functions().len() > 5, "{:?}", ended.functions());
    ended.plugin_was_called_with(&["exit", "cpp"]);
    let infos = &ended.reported[1]["infos"];
    assert_eq!(infos["signal"], 11);
    let frames = infos["frame_infos"].as_array().unwrap();
    assert_eq!(frames.len(), ended.functions().len());
    for frame in frames {
        let [address, offset] = ["address", "offset"].map(|key| frame[key].as_u64().unwrap());
        // A file is mapped at a multiple of the page size.
        assert!(offset > 0 && address > offset && (address - offset) % 4096 == 0, "{frame}");
    }
}

#[test]
fn an_abort_is_reported_and_faulthandler_still_prints() {
    let script = "
import faulthandler
faulthandler.enable()
outer(os.abort)";
    for (set, script) in [("later", script.to_owned()), ("before", "outer(os.abort)".to_owned())] {
        let host_env = if set == "before" { vec![("PYTHONFAULTHANDLER", "1")] } else { Vec::new() };
        let (ended, _host) = Job::new(&host_env, &script).ends();
        assert_eq!(died_by(ended.outcome.status), Some(6), "{:?}", ended.outcome);
        let words = &ended.outcome.stderr;
        assert!(words.starts_with("Fatal Python error: Aborted") && words.contains("in outer"), "{words}");
        assert_eq!(ended.finding["class"], "signal", "{set}");
        assert!(ended.evidence().contains("by SIGABRT"), "{set}: {}", ended.evidence());
        // faulthandler's handler runs on a separate stack. If it is called first, the frames below it are
        // unknown.
        let names_it = ended.functions().iter().any(|name| name.contains("abort"));
        assert!(names_it || set == "later", "{set}: {:?}", ended.functions());
    }
}

#[test]
fn an_exit_code_is_reported_however_the_program_exits() {
    for script in [
        "sys.exit(3)",
        "os._exit(3)",
        "import threading; threading.Thread(target=lambda: os._exit(3)).start(); next_line()",
    ] {
        let (ended, _host) = Job::new(&[], script).ends();
        assert_eq!(ended.outcome.status.code(), Some(3), "{:?}", ended.outcome);
        assert_eq!(
            (&ended.finding["class"], &ended.exit["code"]),
            (&"exit_code".into(), &3.into()),
            "{script}"
        );
        assert!(ended.evidence().contains("exited with code 3"), "{}", ended.evidence());
        ended.plugin_was_called_with(&["exit"]);
    }
}

#[test]
fn an_orderly_end_is_not_reported() {
    let host = Host::new();
    for script in ["", "os._exit(0)"] {
        let plugin = host.place.path("plugin.py");
        fs::write(&plugin, PLUGIN).unwrap();
        let set = [("XPU_TOP_EXIT_PLUGIN", plugin.to_str().unwrap())];
        let mut rank = host.alone_under("python3", &set, &format!("{BEGIN}{script}"));
        until("it to train", || (host.status()["ranks"][0]["state"] == "ok").then_some(()));
        rank.write_line("go");
        assert_eq!(rank.end().status.code(), Some(0));
        until("its end", || (host.status()["ranks"][0]["state"] == "exited").then_some(()));
        assert_eq!(host.status()["findings"].as_array().unwrap().len(), 0, "{script} {}", host.status());
    }
    assert!(!host.collector_log().contains("exit plugin"));
}

#[test]
fn an_error_of_cuda_is_reported_with_the_function() {
    // The GEMM's leading dimension is too small: cuBLAS refuses it, and the script raises.
    let script = "outer(lambda: ok(process.cublasSgemm_v2(blas, 0, 0, 64, 64, 64, one, memory, 1, memory, 64, one, memory, 64)))";
    let (ended, _host) = Job::new(&[], script).ends();
    assert_eq!(ended.finding["class"], "cuda_error", "{}", ended.evidence());
    assert!(
        ended.evidence().contains("cublasSgemm_v2 failed with 7 (CUBLAS_STATUS_INVALID_VALUE)"),
        "{}",
        ended.evidence()
    );
    assert!(ended.evidence().contains("raised RuntimeError"), "{}", ended.evidence());
}

/// Like PyTorch's allocator, the script requests memory, frees its cache, requests again, and raises.
#[test]
fn gpu_out_of_memory_is_reported_with_sizes() {
    let script = "
def allocate(gib):
    to = ctypes.c_void_p()
    return process.cudaMalloc(ctypes.byref(to), ctypes.c_size_t(gib << 30))
def grow():
    ok(allocate(3))
    if allocate(500) == 2:
        raise MemoryError('CUDA out of memory. 0 bytes is free. Of it 600.00 GiB is reserved by PyTorch but unallocated.')
outer(grow)";
    let (ended, _host) = Job::new(&[], script).ends();
    assert_eq!(ended.finding["class"], "cuda_error", "{}", ended.evidence());
    // Until the first steps are done, the site that holds the most memory is named.
    let reported = "cudaMalloc failed with 2 (cudaErrorMemoryAllocation): requested 500.00 GiB; the process held 4.00 GiB, including 3.00 GiB allocated at ";
    assert!(ended.evidence().contains(reported), "{}", ended.evidence());
    let memory = &ended.exit["gpu_memory"];
    assert_eq!(memory["requested_bytes"], 500_u64 << 30, "{memory}");
    // Includes the gibibyte of gpu.py.
    assert_eq!(memory["held_bytes"], 4_u64 << 30, "{memory}");
    // Every process also takes half a gibibyte of an H200's memory.
    assert_eq!(memory["free_bytes"], 150_754_820_096 - (9_u64 << 29), "{memory}");
    let site = &memory["sites"][0];
    assert!(site["place"].as_str().unwrap().ends_with(" allocate"), "{memory}");
    assert_eq!((&site["held_bytes"], &site["allocations"]), (&(3_u64 << 30).into(), &1.into()), "{memory}");
    assert_eq!(memory["pytorch_unused_bytes"], 600_u64 << 30, "{memory}");
    let pieces = "PyTorch had 600.00 GiB reserved and unused, in blocks that are too small or reserved for other streams";
    assert!(ended.evidence().contains(pieces), "{}", ended.evidence());
    assert!(ended.finding["advice"].as_str().unwrap().contains("expandable_segments"), "{}", ended.finding);
}

/// A program that allocates 20 of an H200's 140 GiB in each step and keeps them.
#[test]
fn leaked_memory_is_reported_with_its_call_site() {
    let script = "
for _ in range(12): step()
next_line()
def keep():
    to = ctypes.c_void_p()
    return process.cudaMalloc(ctypes.byref(to), ctypes.c_size_t(20 << 30))
def train():
    while keep() == 0: step()
    raise MemoryError('CUDA out of memory')
outer(train)";
    let mut job = Job::new(&[], script);
    job.rank.write_line("go");
    until("its first steps", || (job.host.status()["ranks"][0]["step"].as_u64()? >= 13).then_some(()));
    let (ended, _host) = job.ends();
    let reported = "requested 20.00 GiB; the process held 121.00 GiB, 120.00 GiB more than at step 13, including 120.00 GiB allocated at ";
    assert!(ended.evidence().contains(reported), "{}", ended.evidence());
    assert!(ended.evidence().contains(" keep (6 times, last after step 18); 18.90 "), "{}", ended.evidence());
    let site = &ended.exit["gpu_memory"]["sites"][0];
    assert_eq!((&site["grown_bytes"], &site["first_step"]), (&(120_u64 << 30).into(), &13.into()), "{site}");
    assert!(ended.finding["advice"].as_str().unwrap().contains("step to step"), "{}", ended.finding);
}

/// The environment is as `xpu-top run --gpu-core` sets it. The file is that of a real exception,
/// after which the driver aborts the process.
#[test]
fn the_kernel_that_an_exception_stopped_is_reported() {
    let place = Place::new();
    let file = place.path("gpu-core.%p");
    let set = [("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1"), ("CUDA_COREDUMP_FILE", file.to_str().unwrap())];
    let real = concat!(env!("CARGO_MANIFEST_DIR"), "/../collector/src/stacks/gpu/address.core.gz");
    let script = format!(
        "
import gzip
path = os.environ['CUDA_COREDUMP_FILE'].replace('%p', str(os.getpid()))
open(path, 'wb').write(gzip.open('{real}').read())
outer(os.abort)"
    );
    let (ended, _host) = Job::new(&set, &script).ends();
    assert_eq!(ended.finding["class"], "cuda_error", "{}", ended.evidence());
    assert!(ended.evidence().contains("SIGABRT"), "{}", ended.evidence());
    let reported = "on GPU 0, writes_to_nowhere failed: illegal address in block 1,0,0, grid 3x1x1, block 64x1x1, 3 blocks on 3 SMs";
    assert!(ended.evidence().contains(reported), "{}", ended.evidence());
    let kernel = serde_json::json!({
        "device": 0, "name": "writes_to_nowhere", "error": "illegal address", "block": [1, 0, 0],
        "grid_size": [3, 1, 1], "block_size": [64, 1, 1], "blocks": 3, "sms": 3,
    });
    assert_eq!(ended.exit["kernel"], kernel, "{}", ended.exit);
    assert_eq!(ended.reported[0]["exit"]["kernel"], kernel);
    let left = fs::read_dir(place.path("")).unwrap().flatten();
    let cores = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("gpu-core"));
    assert_eq!(cores.count(), 0, "what was read is removed");
}

/// Rank 1 raises. Its launcher ends rank 0 with SIGTERM, as torchrun does.
#[test]
fn the_first_rank_to_end_is_named_with_those_that_followed() {
    let host = Host::new();
    let mut ranks = [("", ""), ("raise ", "KeyError('data')")].map(|(raise, what)| {
        let number = usize::from(!raise.is_empty());
        host.rank(number, &format!("{BEGIN}{raise}{what}\nnext_line()"))
    });
    until("both to train", || {
        (host.status()["steps"]["min"].as_u64()? >= 1 && host.status()["ranks"][1].is_object()).then_some(())
    });
    let [waits, raises] = &mut ranks;
    raises.write_line("go");
    until("the end of rank 1", || host.status()["ranks"][1]["exit"]["class"].is_string().then_some(()));
    waits.write_line("go");
    waits.signal("TERM");
    let finding = until("the end of rank 0", || {
        let status = host.status();
        (status["ranks"][0]["exit"]["class"].is_string()).then(|| status["findings"][0].clone())
    });
    assert_eq!(finding["ranks"], serde_json::json!([1]), "{finding}");
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(evidence.contains("rank 1 (sim") && evidence.contains("raised KeyError: 'data'"), "{evidence}");
    assert!(evidence.contains("; rank 0 followed, stopped by SIGTERM"), "{evidence}");
    assert_eq!(host.status()["ranks"][0]["exit"]["signal"], "SIGTERM");
    let [waits, _] = ranks;
    assert_eq!(died_by(waits.end().status), Some(15));
}

#[test]
fn a_restarted_rank_does_not_hide_its_failure() {
    let host = Host::new();
    let start = || {
        let rank = host.alone_under("python3", &[], &format!("{BEGIN}sys.exit(3)"));
        until("it to train", || (host.status()["ranks"][0]["pid"] == rank.pid()).then_some(()));
        rank
    };
    let mut first = start();
    until("its first step", || (host.status()["steps"]["min"].as_u64()? >= 1).then_some(()));
    first.write_line("go");
    assert_eq!(first.end().status.code(), Some(3));
    let again = start();
    until("the report of its end", || {
        host.collector_log().contains("rank 0 exited with code 3").then_some(())
    });
    let status = host.status();
    assert_eq!(
        (&status["ranks"][0]["state"], &status["findings"]),
        (&"ok".into(), &serde_json::json!([])),
        "{status}"
    );
    drop(again);
}

#[test]
fn a_failing_or_foreign_plugin_is_ignored() {
    let host = Host::new();
    let [broken, shared, good] = ["broken.py", "shared.py", "plugin.py"].map(|name| host.place.path(name));
    fs::write(&broken, "raise SystemExit('on purpose')").unwrap();
    fs::write(&shared, "open('/tmp/must-not-be', 'w')").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(&good, PLUGIN).unwrap();
    let list = [&broken, &shared, &good].map(|path| path.display().to_string()).join(",");
    let rank = host.alone_under("python3", &[("XPU_TOP_EXIT_PLUGIN", &list)], &format!("{BEGIN}sys.exit(3)"));
    until("it to train", || (host.status()["steps"]["min"].as_u64()? >= 1).then_some(()));
    let (ended, host) = Job { host, rank }.ends();
    assert_eq!(ended.outcome.status.code(), Some(3));
    ended.plugin_was_called_with(&["exit"]);
    // Plugins run at the same time.
    until("the end of the failing plugin", || {
        let log = host.collector_log();
        (log.contains("broken.py: on purpose") && log.contains("broken.py: exit status: 1")).then_some(())
    });
    let log = host.collector_log();
    assert!(log.contains("shared.py: not run") && log.contains("chmod go-w"), "{log}");
}
