//! Ranks that stop in their own code, and healthy ranks that others wait for. Real Python processes run under
//! the hook on the simulated GPU, with a real collector.

use std::fs;

use serde_json::json;
use xpu_tests::{
    causes::causes,
    healthy,
    host::Host,
    hung::{Hung, SOON},
    port::free_base,
    program::{Program, until},
    torch,
};

/// Runs this cause with each of these numbers of ranks, and checks the report.
fn right(name: &str, worlds: &[usize]) {
    let cause = causes().into_iter().find(|cause| cause.name == name).expect("it is one of them");
    for &world in worlds {
        let verdict = cause.run(world);
        assert!(verdict.is_right(), "{name}, {world} ranks: {verdict:#?}");
        // Many processes on few cores delay each other and the viewer.
        let soon = if world > 8 { SOON + 5.0 } else { SOON };
        assert!(verdict.seconds <= soon, "{name}, {world} ranks: {verdict:#?}");
    }
}

#[test]
fn a_lock_taken_twice_is_named() {
    right("a lock taken twice", &[2, 8]);
}

#[test]
fn a_stuck_loader_is_named() {
    right("a loader that is stuck", &[2, 8]);
}

#[test]
fn an_exception_swallowed_on_one_rank_is_named() {
    right("an exception swallowed", &[2, 8]);
}

#[test]
fn an_asynchronous_call_left_out() {
    right("an asynchronous call left out", &[2, 8]);
}

/// `cargo run --release -p xpu-tests --example hang_table` has the other causes: all of them with 64 processes
/// take minutes.
#[test]
fn causes_among_sixty_four_ranks_are_named() {
    right("one call too many", &[64]);
    right("a kernel without end", &[64]);
}

/// A stand-in for PyTorch's module: rank 0 waits there as for connections to its store.
const C10D: &str = "
import socket
def init_process_group():
    with socket.create_server(('127.0.0.1', 0)) as server: server.accept()
";

/// Both ranks have launched work, and have no communicator yet.
const MEETS: &str = "
sys.path.insert(0, os.environ['RENDEZVOUS'] + '/torch/distributed')
import distributed_c10d
def load_weights(): hold()
ok(gemm_ex(256, 256, 256))
sync()
if RANK == 1: load_weights()
distributed_c10d.init_process_group()
";

/// Rank 0 is in `ncclCommInitRank`, and rank 1 does something else before.
fn joins_after(otherwise: &str) -> String {
    format!(
        "
def load_weights(): hold()
ok(gemm_ex(256, 256, 256))
sync()
if RANK == 1: {otherwise}
communicator()
"
    )
}

/// Both jobs run at once, because each takes a minute.
#[test]
fn a_rank_that_never_comes_to_the_rendezvous() {
    let host = Host::new();
    let package = host.place.path("torch/distributed");
    fs::create_dir_all(&package).expect("a folder in a fresh folder");
    fs::write(package.join("distributed_c10d.py"), C10D).expect("a file there");
    let ranks = (0..2).map(|rank| host.rank(rank, MEETS)).collect();
    let (meets, joins) = (Hung { host, ranks }, Hung::of(2, &joins_after("load_weights()")));
    let doing = ["waited for other ranks in init_process_group", "been creating a communicator"];
    for (job, doing) in [meets, joins].into_iter().zip(doing) {
        let (found, status) = job.hang();
        let evidence = found["evidence"].as_str().unwrap_or_default();
        assert_eq!((&found["class"], &found["ranks"]), (&"init".into(), &json!([1])), "{status:#}");
        let begin = format!("rank 1 did not join: 1 rank has {doing}");
        assert!(evidence.starts_with(&begin), "{evidence}");
        let since = found["since_s"].as_f64().expect("a time");
        assert!((60.0..75.0).contains(&since), "{since}: {evidence}");
        assert!(
            status["stacks"]["folded"].as_str().unwrap_or_default().contains("load_weights"),
            "{status:#}"
        );
    }
}

/// A rank that has ended cannot join, so nobody waits for a minute.
#[test]
fn a_rank_that_ends_before_it_joins_a_communicator() {
    let waits =
        "for _ in iter(lambda: os.path.exists(os.environ['RENDEZVOUS'] + '/seen'), True): time.sleep(0.01)";
    let ends = format!("def ends():\n    {waits}\n    sys.exit()\n{}", joins_after("ends()"));
    let job = Hung::of(2, &ends);
    until("both ranks to be seen", || (job.host.status()["ranks"].as_array()?.len() == 2).then_some(()));
    fs::write(job.host.place.path("seen"), "").expect("the place takes a file");
    let (found, status) = job.hang();
    assert_eq!((&found["class"], &found["ranks"]), (&"init".into(), &json!([1])), "{status:#}");
    let since = found["since_s"].as_f64().expect("a time");
    assert!(since < 30.0, "{since}: {found:#}");
}

/// Of three ranks, rank 1 is never started.
#[test]
fn a_rank_that_is_missing_in_the_rendezvous_of_pytorch() {
    let Some(python) = torch::program("python") else { return };
    let (host, port) = (Host::new(), free_base().to_string());
    let waits = "import torch
import torch.distributed as dist
weights = torch.ones(4, requires_grad=True)
weights.sum().backward()
torch.optim.SGD([weights], 0.1).step()
dist.init_process_group('gloo')";
    let start = |rank| {
        let mut command = host.place.watched(&python);
        command
            .env_remove("LD_LIBRARY_PATH")
            .env("XPU_TOP_SOCKET", host.socket())
            .env("XPU_TOP_JOB", "train");
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())]);
        Program::start(command.envs([("RANK", rank), ("WORLD_SIZE", "3")]).args(["-c", waits]))
    };
    let ranks = ["0", "2"].map(start).into();
    let (found, status) = Hung { ranks, host }.hang();
    assert_eq!((&found["class"], &found["ranks"]), (&"init".into(), &json!([1])), "{status:#}");
    let evidence = found["evidence"].as_str().unwrap_or_default();
    assert!(
        evidence.starts_with("2 ranks have waited for other ranks in init_process_group for "),
        "{evidence}"
    );
    assert!(evidence.contains("1 rank of the job was never seen: rank 1"), "{evidence}");
}

/// A stand-in for a module of PyTorch: rank 1 calls its function in the first step.
const FIRST_STEP: &str = "
import importlib.util
at = os.environ['RENDEZVOUS'] + '/' + os.environ['MODULE']
spec = importlib.util.spec_from_file_location('module', at)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
comm = communicator()
ok(gemm_ex(256, 256, 256))
sync()
if RANK == 1: module.main()
ok(all_reduce(comm, 1000))
sync()
hold()
";

/// Rank 1 stays in the module, and the finding says `says` of it.
fn first_step(module: &str, source: &str, says: &str) {
    let host = Host::new();
    let file = host.place.path(module);
    fs::create_dir_all(file.parent().expect("its package")).expect("a folder in a fresh folder");
    fs::write(file, source).expect("a file there");
    let set = [("MODULE", module)];
    let job = Hung { ranks: (0..2).map(|rank| host.rank_where(rank, &set, FIRST_STEP)).collect(), host };
    let (found, status) = job.hang();
    assert_eq!((&found["class"], &found["ranks"]), (&"not_entered".into(), &json!([1])), "{status:#}");
    // The stacks may arrive after the first report.
    until(says, || {
        let findings = job.host.status()["findings"].as_array()?.clone();
        findings.iter().find(|one| one["evidence"].as_str().unwrap_or_default().contains(says)).map(|_| ())
    });
}

#[test]
fn a_rank_that_compiles_in_the_first_step() {
    let waits =
        "import subprocess\ndef main(): _compile()\ndef _compile(): subprocess.run(['sleep', '1000'])\n";
    let says = "it is in no CUDA or NCCL call, and compiles kernels (torch.compile); rank 1 is in ";
    first_step("torch/_dynamo/convert_frame.py", waits, says);
}

/// The process that made the lock file was killed.
#[test]
fn a_rank_that_waits_for_a_lock_file_does_not_compile() {
    let waits = "
import time
class FileBaton:
    def wait(self):
        while True: time.sleep(0.1)
def main(): FileBaton().wait()
";
    let says =
        "it is in no CUDA or NCCL call, and waits for the lock file of another process (FileBaton.wait)";
    first_step("torch/utils/file_baton.py", waits, says);
}

#[test]
fn compiling_evaluating_and_saving_are_not_reported_as_a_hang() {
    assert_eq!(healthy::run(2, &healthy::script(2, 25)), Ok(()));
}
