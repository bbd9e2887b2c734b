//! Ranks whose NCCL calls diverge: the deviating rank and its call are named. Real Python processes run under
//! the hook on the simulated GPU, with a real collector.

use std::{fs, process::Command};

use serde_json::Value;
use xpu_tests::{
    host::Host,
    hung::{Hung, SAME, SOON, named, script},
    program::{run, until},
    torch,
};

fn one_too_many() -> String {
    let log = "def log_metrics():\n    ok(process.ncclAllReduce(memory, memory, c_size_t(123), NCCL_FLOAT, 0, comm, stream))";
    script(log, &format!("{SAME}\n    if differs: log_metrics()"))
}

/// The line number of this text in a script, counted as Python counts.
fn line(script: &str, text: &str) -> usize {
    script.lines().position(|line| line.contains(text)).expect("it is there") + 2
}

#[test]
fn an_extra_call_of_one_of_two_ranks_is_named() {
    let script = one_too_many();
    let site = format!("<string>:{} log_metrics", line(&script, "c_size_t(123)"));
    let words = ["rank 1 called one AllReduce (492 B of f32) more", &site, "rank 0 never does"];
    let mut job = named(2, &script, "mismatch", "extra", &words);

    let outcome = job.host.ask("collectives");
    assert_eq!((outcome.status.code(), outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let text = outcome.stdout;
    assert!(text.starts_with("rank 1 called one AllReduce (492 B of f32) more"), "{text}");
    let parted: Vec<_> = text.lines().filter(|line| line.starts_with('>')).collect();
    assert!(
        parted.len() == 2 && parted.iter().any(|line| line.contains("492") && line.ends_with(&site)),
        "{text}"
    );

    let document: Value =
        serde_json::from_str(&job.host.ask("collectives --json --rank 1").stdout).expect("a document");
    let calls = document["ranks"][0]["calls"].as_array().expect("calls");
    let call = calls.iter().find(|call| call["bytes"] == 492).expect("the call");
    assert_eq!(
        (&call["operation"], &call["datatype"], &call["site"]),
        (&"AllReduce".into(), &"f32".into(), &site.as_str().into())
    );
    assert_eq!(document["ranks"].as_array().map(Vec::len), Some(1));

    // The records outlive the processes.
    for rank in &job.ranks {
        rank.signal("KILL");
    }
    job.ranks.clear();
    until("their death to be seen", || {
        let status = job.host.status();
        status["ranks"].as_array()?.iter().all(|rank| rank["state"] == "exited").then_some(())
    });
    let folder = job.host.place.path("fr");
    let after = job.host.ask(&format!("collectives --flight-recorder {}", folder.display()));
    assert_eq!(after.status.code(), Some(0), "{after:?}");
    assert!(
        job.host.ask("collectives").stdout.starts_with("rank 1 called one AllReduce"),
        "of a job that has ended"
    );
    reads_as_a_flight_recorder(&folder);
    let again = job.host.ask(&format!("collectives --flight-recorder {}", folder.display()));
    assert_eq!(again.status.code(), Some(64), "{again:?}");
    let unknown = job.host.ask("collectives --rank 9");
    assert!(
        unknown.status.code() == Some(3) && unknown.stderr.contains("rank 9 has not answered"),
        "{unknown:?}"
    );
}

/// Reads the dumps as PyTorch's flight-recorder analyser does: the rank from the file name, then group by
/// group and number by number.
fn reads_as_a_flight_recorder(folder: &std::path::Path) {
    let script = "
import ast, pickle, sys
dumps = [pickle.load(open(f'{sys.argv[1]}/nccl_trace_rank_{rank}', 'rb')) for rank in range(2)]
of = []
for dump in dumps:
    assert dump['version'].startswith('2.'), dump['version']
    group, = [g for g, c in dump['pg_config'].items() if any(e['process_group'][0] == g for e in dump['entries'])]
    assert sorted(ast.literal_eval(dump['pg_config'][group]['ranks'])) == [0, 1]
    of.append({e['collective_seq_id']: e for e in dump['entries']})
for number in sorted(set(of[0]) & set(of[1])):
    one, other = (entries[number] for entries in of)
    if one['input_sizes'] != other['input_sizes']:
        frames = [f['name'] for f in other['frames']]
        print(one['profiling_name'], one['input_sizes'], other['input_sizes'], other['input_dtypes'], frames[0], one['state'])
        break
";
    let outcome = run(Command::new("python3").args(["-c", script]).arg(folder));
    assert_eq!(
        outcome.stdout, "nccl:all_reduce [[2000]] [[123]] ['Float'] log_metrics started\n",
        "{outcome:?}"
    );
}

/// PyTorch's analyser names the missing ranks of a collective. Of calls that differ, it names the kind of
/// difference and the rank that differs from its first one.
#[test]
fn the_analyser_of_pytorch_names_the_same_rank() {
    let Some(analyser) = torch::program("torchfrtrace") else { return };
    let cases = [
        (
            format!("    if differs: hold()\n{SAME}"),
            "not_entered",
            vec!["Not all ranks joining collective", "missing ranks: {1}"],
        ),
        (format!("    if differs: size = 123\n{SAME}"), "mismatch", vec!["SIZE_OR_SYNTAX_MISMATCH"]),
    ];
    for (steps, class, expected) in cases {
        let job = Hung::of(3, &script("", &steps));
        let (hang, _) = job.hang();
        assert_eq!((&hang["class"], &hang["ranks"]), (&class.into(), &serde_json::json!([1])), "{hang:#}");
        let folder = job.host.place.path("fr");
        let written = job.host.ask(&format!("collectives --flight-recorder {}", folder.display()));
        assert_eq!(written.status.code(), Some(0), "{written:?}");
        let outcome = run(Command::new(&analyser).arg(&folder).args(["--prefix", "nccl_trace_rank_"]));
        let says = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(expected.iter().all(|text| says.contains(text)), "{says}");
    }
}

#[test]
fn an_extra_call_of_one_of_eight_ranks_is_named() {
    let words = ["rank 1 called one AllReduce (492 B of f32) more", "log_metrics", "the 7 others never do"];
    named(8, &one_too_many(), "mismatch", "extra", &words);
}

/// A GEMM that takes hours is launched before the collective.
#[test]
fn an_endless_kernel_before_a_collective_is_named() {
    let script = script("", &format!("    if differs: ok(gemm_ex(2000000, 2000000, 2000000))\n{SAME}"));
    // The GPU's position is known from the event before the collective, or, if the collective is timed, from
    // its pair of events. After the 35th timed collective an empty pair follows, which is reported first.
    let after_34 = script.replace("(1, 12)", "(1, 17)");
    let cases = [
        (2, "collective=1024", &script),
        (8, "collective=1024", &script),
        (2, "collective=1", &script),
        (2, "collective=1", &after_34),
    ];
    for (world, sample, script) in cases {
        let job = Hung::with(world, &[("XPU_TOP_SAMPLE", sample)], script);
        let (hang, _) = job.hang();
        let evidence = hang["evidence"].as_str().unwrap_or_default();
        let named = (&hang["class"], &hang["ranks"]);
        assert_eq!(named, (&"not_started".into(), &serde_json::json!([1])), "{evidence}");
        assert!(evidence.contains("its GPU has not started it"), "{evidence}");
        let between = "work launched after AllReduce at <string>:";
        assert!(
            evidence.contains(between) && evidence.contains(" and before the call at <string>:"),
            "{evidence}"
        );
        assert!(hang["since_s"].as_f64().is_some_and(|since| since <= SOON), "{hang:#}");
        // Once the records are read, the finding names the work before the collective on its stream.
        let behind = "on the GPUs: rank 1: behind work up to GEMM 2000000x2000000x2000000 bf16, launched ";
        let gpus = until("the states of the GPUs", || {
            let findings = job.host.status()["findings"].clone();
            let found = findings.as_array()?.iter().find(|one| one["kind"] == "hang")?.clone();
            found["evidence"].as_str()?.contains(behind).then(|| found["gpus"].clone())
        });
        let of = |group: usize| {
            (gpus[group]["ranks"].clone(), gpus[group]["state"].clone(), gpus[group]["by"].clone())
        };
        let ranks = |of: Vec<usize>| Value::from(of);
        let others = (0..world).filter(|&rank| rank != 1).collect();
        assert_eq!(of(0), (ranks(vec![1]), "behind".into(), "events".into()), "{gpus}");
        assert_eq!(of(1).0, ranks(others), "{gpus}");
        let states = |rank: usize| -> Value {
            let asked = job.host.ask(&format!("collectives --json --rank {rank}"));
            let document: Value = serde_json::from_str(&asked.stdout).expect("a document");
            let calls = document["ranks"][0]["calls"].as_array().expect("calls");
            calls.iter().rev().take(2).map(|call| call["state"].clone()).collect()
        };
        assert_eq!(states(0), serde_json::json!(["queued", "begun"]));
        assert_eq!(states(1), serde_json::json!(["queued", "queued"]));
    }
}

/// A job of two ranks with an endless kernel on rank 1. The environment is as `xpu-top run --gpu-core` sets it.
fn with_gpu_cores() -> Hung {
    let script = script("", &format!("    if differs: ok(gemm_ex(2000000, 2000000, 2000000))\n{SAME}"));
    let host = Host::new();
    let (pipe, file) = (host.place.path("gpu-pipe.%p"), host.place.path("gpu-core.%p"));
    let set = [
        ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1"),
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1"),
        ("CUDA_COREDUMP_PIPE", pipe.to_str().expect("a name")),
        ("CUDA_COREDUMP_FILE", file.to_str().expect("a name")),
    ];
    let ranks = (0..2).map(|rank| host.rank_of_where((rank, 2), &set, &script)).collect();
    Hung { host, ranks }
}

#[test]
fn the_kernels_on_the_gpu_of_one_rank_are_named() {
    let mut job = with_gpu_cores();
    job.hang();
    let unconfirmed = job.host.ask("gpu-core --rank 1");
    assert_eq!(unconfirmed.status.code(), Some(64), "{unconfirmed:?}");
    let asked = job.host.ask("gpu-core --rank 1 --yes");
    assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""), "{asked:?}");
    assert!(
        asked.stdout.starts_with("GPU: rank 1\n") && asked.stdout.contains("nvjet_hsh_256x128"),
        "{asked:?}"
    );
    assert!(!asked.stdout.contains("ncclDevKernel"), "only the kernels of rank 1: {asked:?}");
    // The GPU of rank 0 was not read, so rank 0 still waits.
    let one = job.ranks.pop().expect("rank 1");
    assert!(!one.end().status.success());
    let state = |rank: usize| job.host.status()["ranks"][rank]["state"].clone();
    until("the end of rank 1", || (state(1) == "exited").then_some(()));
    assert_ne!(state(0), "exited");
}

#[test]
fn the_kernels_on_the_gpus_of_a_job_that_hangs_are_named() {
    let job = with_gpu_cores();
    // Before the endless kernel is launched, the request is refused.
    let early = until("both ranks to be read", || {
        let asked = job.host.ask("stacks --gpus --yes");
        (asked.stderr.matches("it makes progress").count() > 0).then_some(asked)
    });
    assert!(!early.stdout.contains("GPU: "), "{early:?}");
    let unconfirmed = job.host.ask("stacks --gpus");
    assert_eq!(unconfirmed.status.code(), Some(64), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("confirm with --yes"), "{unconfirmed:?}");

    job.hang();
    let asked = job.host.ask("stacks --gpus --yes");
    assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""), "{asked:?}");
    let begin = "GPU: ranks 0-1\n  ├─ rank 0; not 1\n  │  ncclDevKernel_AllReduce";
    assert!(asked.stdout.starts_with(begin) && asked.stdout.contains("main thread: "), "{}", asked.stdout);
    let [other, kernel] = ["└─ rank 1; not 0", "nvjet_hsh_256x128"].map(|text| asked.stdout.find(text));
    assert!(other.is_some() && other < kernel, "{}", asked.stdout);

    // Reading the GPU state ended the ranks; their stacks remain.
    for rank in job.ranks {
        assert!(!rank.end().status.success());
    }
    let stacks = job.host.status()["stacks"]["folded"].clone();
    assert!(stacks.as_str().is_some_and(|text| text.contains(";ncclDevKernel_AllReduce")), "{stacks}");
    let left = fs::read_dir(job.host.place.path("")).expect("a folder");
    let cores = left.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("gpu-core"));
    assert_eq!(cores.count(), 0, "what was read is removed");
}

#[test]
fn a_call_of_another_size_is_named() {
    let script = script("", &format!("    size = 1001 if differs else 1000\n{SAME}"));
    named(
        2,
        &script,
        "mismatch",
        "size",
        &["rank 1 called AllReduce (2,002 B of bf16)", "rank 0 called AllReduce (2,000 B of bf16)"],
    );
    named(
        8,
        &script,
        "mismatch",
        "size",
        &["rank 1 called AllReduce (2,002 B of bf16)", "the 7 others called"],
    );
}

#[test]
fn a_call_of_another_type_is_named() {
    let script = script("", &format!("    kind = NCCL_FLOAT if differs else NCCL_BF16\n{SAME}"));
    named(2, &script, "mismatch", "type", &["rank 1 called AllReduce (4,000 B of f32)"]);
    named(
        8,
        &script,
        "mismatch",
        "type",
        &["rank 1 called AllReduce (4,000 B of f32)", "the 7 others called"],
    );
}

#[test]
fn another_order_of_two_communicators_is_named() {
    let two = "    for on in (other, comm) if differs else (comm, other):
        ok(process.ncclAllReduce(memory, memory, c_size_t(500), NCCL_BF16, 0, on, stream))
        sync()";
    let script = script("", two);
    named(
        2,
        &script,
        "deadlock",
        "order",
        &["rank 1 called AllReduce (1000 B of bf16)", "but rank 0 called"],
    );
    named(
        8,
        &script,
        "deadlock",
        "order",
        &["rank 1 called AllReduce (1000 B of bf16)", "but ranks 0, 2-7 called"],
    );
}

#[test]
fn a_receive_without_its_send_is_named() {
    let pair = "    if RANK == 0: ok(process.ncclSend(memory, c_size_t(64), NCCL_BF16, 1, comm, stream))
    if RANK == 1: ok(process.ncclRecv(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))
    if differs: drain()";
    let drain = "def drain():\n    ok(process.ncclRecv(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))\n    sync()";
    let script = script(drain, pair);
    let words = [
        "rank 1 called Recv from 0 (128 B of bf16) at <string>:",
        "drain, for the first time, and rank 0 has no send for it",
    ];
    named(2, &script, "unmatched", "unmatched", &words);
    named(8, &script, "unmatched", "unmatched", &words);
}

/// A rank exits in an orderly way, and the others wait for it.
#[test]
fn a_rank_that_left_is_named() {
    // By this step the collector knows the rank.
    let script = script("", &format!("    if (RANK, at) == (1, 150): os._exit(0)\n{SAME}"));
    for world in [2, 8] {
        let job = named(
            world,
            &script,
            "not_entered",
            "not_entered",
            &["rank 1 did not enter AllReduce number 300 of", "it has ended"],
        );
        let text = job.host.ask("collectives").stdout;
        assert!(text.starts_with("rank 1 did not enter AllReduce (2,000 B of bf16) at <string>:"), "{text}");
    }
}

/// With pauses, occasional calls, two communicators and messages, no divergence is reported, whenever the
/// records are read.
#[test]
fn equal_calls_are_never_reported_as_divergence() {
    let rare = "def log_metrics():\n    ok(process.ncclAllReduce(memory, memory, c_size_t(123), NCCL_FLOAT, 0, comm, stream))";
    let step = format!(
        "    if at % 7 == 3: log_metrics()
    if at == 60: time.sleep(4)
    ok(process.ncclAllReduce(memory, memory, c_size_t(5), NCCL_BF16, 0, other, stream))
    if RANK == 0: ok(process.ncclSend(memory, c_size_t(64), NCCL_BF16, 1, comm, stream))
    if RANK == 1: ok(process.ncclRecv(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))
{SAME}"
    );
    for world in [2, 8] {
        let job = Hung::of(world, &script(rare, &step));
        until("the job to run", || (job.host.status()["steps"]["max"].as_u64()? > 20).then_some(()));
        for _ in 0..8 {
            let document: Value = serde_json::from_str(&job.host.ask("collectives --json --last 1").stdout)
                .expect("a document");
            assert_eq!(document["divergence"], Value::Null);
            assert_eq!(document["no_answer"], serde_json::json!([]));
            let status = job.host.status();
            assert_eq!(
                status["findings"]
                    .as_array()
                    .map(|found| found.iter().filter(|one| one["kind"] == "hang").count()),
                Some(0)
            );
        }
        let text = job.host.ask("collectives").stdout;
        assert!(text.starts_with(&format!("the recorded calls of {world} ranks do not diverge")), "{text}");
    }
}

/// Without a job, the remedy is printed.
#[test]
fn without_a_job_the_remedy_is_printed() {
    let host = Host::new();
    let outcome = host.ask("collectives");
    assert!(
        outcome.status.code() == Some(3) && outcome.stderr.contains("start one under `xpu-top run`"),
        "{outcome:?}"
    );
}
