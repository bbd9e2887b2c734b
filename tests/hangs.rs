//! Jobs that hang and ranks that fail, in real processes under the real hook and collector. Their state is on
//! disk after all of them have ended, and the user's program runs once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    place::Place,
    port,
    program::{Outcome, Program, run, until},
    pty::Terminal,
};
use xpu_wire::endpoint::{BasePort, RuntimeDir};

/// The longest time from the start of the ranks to the folder, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// All ranks train together until rank 1 runs `fault` in step 60.
fn script(fault: &str) -> String {
    format!(
        "
comm = communicator()
def fault():
    {fault}
for at in range(100000):
    if (RANK, at) == (1, 60): fault()
    ok(gemm_ex(256, 256, 256))
    ok(all_reduce(comm, 1000))
    sync()
    step()
    time.sleep(0.02)
"
    )
}

const STUCK: &str = "time.sleep(10000)";
/// The script of a job with one rank.
const ENDS: &str = "
for at in range(60):
    ok(gemm_ex(256, 256, 256))
    sync()
    step()
    time.sleep(0.02)
os._exit(3)";
const RAISES: &str = "raise ValueError('bad \\x1b[2J loss')";

/// Polls as [`until`] does, but for longer.
#[track_caller]
fn at_last<T>(what: &str, log: impl Fn() -> String, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what}: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn folders(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path("state/xpu-top/hangs")).into_iter().flatten().flatten();
    let finished = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut all: Vec<_> = finished.map(|entry| entry.path()).collect();
    all.sort();
    all
}

fn kept_status(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join("status.json")).ok()?).ok()
}

/// A shell line for the job's environment: it stores its input, and notes that it ran.
fn notes(place: &Place) -> String {
    let (reported, runs) = (place.path("told"), place.path("runs"));
    format!(
        "cat > '{}'; echo \"$XPU_TOP_EVENT $XPU_TOP_HANG_DIR\" | tee -a '{}'",
        reported.display(),
        runs.display()
    )
}

fn runs(place: &Place) -> Vec<String> {
    let runs = fs::read_to_string(place.path("runs")).unwrap_or_default();
    runs.lines().map(str::to_owned).collect()
}

fn reported(place: &Place) -> Value {
    serde_json::from_slice(&fs::read(place.path("told")).unwrap()).unwrap()
}

/// `xpu-top` with these arguments and its own home folder.
fn xpu_top(place: &Place, line: &str) -> Command {
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").args(line.split_whitespace());
    command
}

/// A text on one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The arguments of each command in a text: those of the `next:` lines, then those in sentences, which may go
/// over several lines. `run` and `doctor` are left out: they concern a job that is not started yet.
fn commands(text: &str) -> Vec<String> {
    let (next, sentences): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("next: xpu-top "));
    let next = next.into_iter().filter_map(|line| line.strip_prefix("next: xpu-top ")).map(str::to_owned);
    let sentences = words(&sentences.join(" "));
    let quoted = sentences.split("xpu-top ").skip(1);
    let within = quoted.filter_map(|rest| rest.split(['`', ',', ';', ':', ')']).next()).map(str::to_owned);
    let concerns_job = |line: &String| !["run", "doctor"].iter().any(|word| line.starts_with(word));
    next.chain(within.filter(concerns_job)).collect()
}

#[test]
fn all_commands_of_a_text_are_found() {
    let text = "! it hangs
  next: look at the calls (xpu-top collectives, xpu-top
  stacks; with --gpus the kernel), or start it under `xpu-top run`
next: xpu-top stacks --hosts 'a,b'
";
    assert_eq!(commands(text), ["stacks --hosts 'a,b'", "collectives", "stacks"]);
}

/// Runs each command that a status advises, and checks that none is refused. Returns the outcome of the first.
#[track_caller]
fn follow(place: &Place, said: &Outcome) -> Outcome {
    let mut outcomes = commands(&said.stdout).into_iter().map(|line| {
        let outcome = run(&mut xpu_top(place, &line));
        assert!(!matches!(outcome.status.code(), Some(3 | 64)), "{line}: {outcome:?}");
        outcome
    });
    let first = outcomes.next().unwrap_or_else(|| panic!("nothing is advised: {said:?}"));
    assert!(outcomes.count() < 2);
    first
}

#[test]
fn a_hang_is_kept_after_the_job_and_its_collector_have_ended() {
    let mut host = Host::new();
    let line = notes(&host.place);
    let set = [("XPU_TOP_ON_HANG", line.as_str())];
    let ranks: Vec<_> = (0..2).map(|rank| host.rank_where(rank, &set, &script(STUCK))).collect();
    let log = || host.collector_log();
    let folder = at_last("a folder with stacks", log, || {
        let folder = folders(&host.place).pop()?;
        kept_status(&folder)?["stacks"].is_object().then_some(folder)
    });
    at_last("the program to be done", log, || log().contains("train: on-hang: done").then_some(()));

    assert_eq!(runs(&host.place), [format!("hang {}", folder.display())]);
    let document = reported(&host.place);
    let found = &document["findings"][0];
    assert_eq!((&found["kind"], &found["ranks"]), (&"hang".into(), &serde_json::json!([1])), "{document:#}");
    assert!(document["stacks"].is_object() && document["ranks"].as_array().map(Vec::len) == Some(2));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&folder), mode(&folder.join("status.json")), mode(&folder.join("recording.xpurec"))),
        (0o700, 0o600, 0o600)
    );
    let name = folder.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("train-20") && name.ends_with("Z-sim"), "{name}");

    host.end_collector();
    drop(ranks);
    let of = |line: &str| run(&mut xpu_top(&host.place, &format!("{line} --replay {}", folder.display())));
    let stacks = of("stacks");
    assert!(stacks.status.success() && stacks.stdout.contains("fault"), "{stacks:?}");
    let collectives = of("collectives");
    assert!(
        collectives.status.success() && collectives.stdout.starts_with("rank 1 did not enter AllReduce"),
        "{collectives:?}"
    );
    let dumps = host.place.path("fr");
    let exported = run(&mut xpu_top(
        &host.place,
        &format!("export {} --flight-recorder {}", folder.display(), dumps.display()),
    ));
    let dump = |rank: u32| fs::metadata(dumps.join(format!("nccl_trace_rank_{rank}"))).unwrap().len();
    assert!(exported.status.success() && dump(0) > 0 && dump(1) > 0, "{exported:?}");
    let status = of("status --json");
    assert_eq!(status.status.code(), Some(2), "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["findings"][0]["ranks"], serde_json::json!([1]), "{status:#}");
    assert_eq!(status["divergence"]["ranks"], serde_json::json!([1]), "{status:#}");
    // The folder also has the minutes before the hang.
    let before = of("status --json --at +1s");
    let before: Value = serde_json::from_str(&before.stdout).unwrap();
    assert_eq!(
        (&before["findings"], &before["world_size"]),
        (&serde_json::json!([]), &2.into()),
        "{before:#}"
    );

    let screen = xpu_top(&host.place, &format!("--replay {}", folder.display()));
    let screen = Terminal::start(screen, 120, 40);
    screen.shows("REPLAY").shows("rank 1 (sim) did not enter");
    // The screen opens at the moment the hang was found. On a busy machine the stacks were read later.
    screen.keys("}").keys("4").shows("fault");
    screen.keys("q");

    // A user who runs `status` the next morning gets the folder, with commands that are not refused.
    let nobody = host.ask("status");
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
    let again = follow(&host.place, &nobody);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(again.stdout.contains("rank 1 is in fault (<string>:"), "{again:?}");
    assert!(again.stdout.contains("next: xpu-top collectives --replay "), "{again:?}");
    let stacks = follow(&host.place, &again);
    assert!(stacks.status.success() && stacks.stdout.contains("fault"), "{stacks:?}");
    let nobody = host.ask("stacks");
    assert!(nobody.stderr.contains(&format!("xpu-top stacks --replay {}", folder.display())), "{nobody:?}");
}

/// A waiting rank is ended as by PyTorch's watchdog, and the rank that caused the hang after it.
#[test]
fn a_hang_stays_the_reason_if_a_watchdog_ends_the_job() {
    let host = Host::new();
    let ranks: Vec<_> = (0..2).map(|rank| host.rank_where(rank, &[], &script(STUCK))).collect();
    let log = || host.collector_log();
    let folder = at_last("a folder with stacks", log, || {
        let folder = folders(&host.place).pop()?;
        kept_status(&folder)?["stacks"].is_object().then_some(folder)
    });
    ranks[0].signal("ABRT");
    at_last("the first end to be kept too", log, || {
        kept_status(&folder)?["ranks"][0]["exit"].is_object().then_some(())
    });
    ranks[1].signal("KILL");
    at_last("the second end to be known", log, || {
        (host.status()["ranks"][1]["state"] == "exited").then_some(())
    });
    let of = |line: &str| run(&mut xpu_top(&host.place, &format!("{line} --replay {}", folder.display())));
    for status in [of("status --json"), host.ask("status --json --now")] {
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        let found = &status["findings"][0];
        assert_eq!(
            (&found["kind"], &found["ranks"]),
            (&"hang".into(), &serde_json::json!([1])),
            "{status:#}"
        );
        let evidence = found["evidence"].as_str().unwrap();
        assert!(evidence.contains("; then rank 0 (sim, pid "), "{evidence}");
    }
    let stacks = of("stacks");
    assert!(stacks.status.success() && stacks.stdout.contains("fault"), "{stacks:?}");
}

/// The environment is as `xpu-top run --gpu-core-on-hang` sets it. The folder shows the hang, and not the
/// exits that reading the kernels caused.
#[test]
fn the_kernels_of_a_hang_are_named_automatically_if_the_job_requests_it() {
    let host = Host::new();
    let (pipe, file, line) =
        (host.place.path("gpu-pipe.%p"), host.place.path("gpu-core.%p"), notes(&host.place));
    let set = [
        ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1"),
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1"),
        ("CUDA_COREDUMP_PIPE", pipe.to_str().unwrap()),
        ("CUDA_COREDUMP_FILE", file.to_str().unwrap()),
        ("XPU_TOP_GPU_CORE", "on-hang"),
        ("XPU_TOP_ON_HANG", line.as_str()),
    ];
    let script = script("ok(gemm_ex(2000000, 2000000, 2000000))");
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_where(rank, &set, &script)).collect();
    let log = || host.collector_log();
    let kernels = |folder: &Path| {
        let status = kept_status(folder)?;
        let folded = status["stacks"]["folded"].as_str()?.to_owned();
        (folded.contains("ncclDevKernel") && folded.contains("nvjet")).then_some(status)
    };
    let folder = at_last("a folder", log, || folders(&host.place).pop());
    let status = at_last("the kernels in it", log, || kernels(&folder));
    assert_eq!(status["findings"][0]["kind"], "hang", "{status:#}");
    at_last("both to have ended", log, || {
        let ranks = host.status()["ranks"].as_array()?.clone();
        ranks.iter().all(|rank| rank["exit"].is_object()).then_some(())
    });
    assert_eq!(runs(&host.place), [format!("hang {}", folder.display())]);
    // The collector would have written these exits before it reports the end of another job.
    let other =
        host.alone_under("python3", &[("XPU_TOP_ON_HANG", line.as_str()), ("XPU_TOP_JOB", "other")], ENDS);
    at_last("the other job's program", log, || log().contains("other: on-hang: done").then_some(()));
    drop(other);
    let kept = kernels(&folder).expect("it stays");
    assert_eq!((&kept["findings"][0]["kind"], &kept["ranks"][0]["exit"]), (&"hang".into(), &Value::Null));
    let replay =
        |what: &str| run(&mut xpu_top(&host.place, &format!("{what} --replay {}", folder.display())));
    let (stacks, status) = (replay("stacks"), replay("status --json"));
    assert!(stacks.stdout.starts_with("GPU: ranks 0-1\n") && stacks.stdout.contains("nvjet"), "{stacks:?}");
    assert_eq!(status.status.code(), Some(2), "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let found = &status["findings"][0];
    assert_eq!((&found["kind"], &found["ranks"]), (&"hang".into(), &serde_json::json!([1])), "{status:#}");
    assert_eq!(runs(&host.place).len(), 2, "one for each job");
}

#[test]
fn a_rank_that_ends_badly_is_kept_and_reported_once() {
    let host = Host::new();
    let line = notes(&host.place);
    let set = [("XPU_TOP_ON_HANG", line.as_str())];
    let ranks: Vec<_> = (0..2).map(|rank| host.rank_where(rank, &set, &script(RAISES))).collect();
    let log = || host.collector_log();
    at_last("the program to be done", log, || log().contains("train: on-hang: done").then_some(()));
    let report = reported(&host.place);
    assert_eq!(
        (&report["job"], &report["rank"], &report["host"], &report["exit"]["class"]),
        (&"train".into(), &1.into(), &"sim".into(), &"exception".into()),
        "{report:#}"
    );
    assert!(!report.to_string().contains('\u{1b}') && !report.to_string().contains("u001b"), "{report}");
    // The waiting rank ends too, as if by a watchdog.
    ranks[0].signal("ABRT");
    let folder = folders(&host.place).pop().unwrap();
    at_last("its end to be kept too", log, || {
        kept_status(&folder)?["ranks"][0]["exit"].is_object().then_some(())
    });
    let status = run(&mut xpu_top(&host.place, &format!("status --json --replay {}", folder.display())));
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let found = &status["findings"][0];
    assert_eq!((&found["kind"], &found["ranks"]), (&"exited".into(), &serde_json::json!([1])), "{status:#}");
    // The collector would have reported the second rank before the end of another job.
    let _other = host.alone_under("python3", &[set[0], ("XPU_TOP_JOB", "other")], ENDS);
    at_last("the other job's program", log, || log().contains("other: on-hang: done").then_some(()));
    let of_it = format!("exit {}", folder.display());
    assert_eq!((runs(&host.place).len(), &runs(&host.place)[0]), (2, &of_it), "{}", log());
    assert_eq!(folders(&host.place).len(), 2);
    // All ranks have ended. A request to the collector gets the stacks that it kept.
    let outcome = until("the collector to know", || {
        let outcome = host.ask("status --now");
        (!outcome.stdout.contains("waiting")).then_some(outcome)
    });
    assert!(
        !outcome.stdout.contains("\nnext:") || follow(&host.place, &outcome).status.success(),
        "{outcome:?}"
    );
}

/// `scancel`, a launcher or Ctrl-C ends the job: no notification.
#[test]
fn a_cancelled_job_leaves_no_incident() {
    let host = Host::new();
    let line = notes(&host.place);
    let set = [("XPU_TOP_ON_HANG", line.as_str())];
    // The ranks of one run meet in their own folder.
    let trains = |host: &Host, run: &str| {
        let meets = host.place.path(run);
        fs::create_dir(&meets).unwrap();
        let set = [set[0], ("RENDEZVOUS", meets.to_str().unwrap())];
        (0..2).map(|rank| host.rank_where(rank, &set, &script("pass"))).collect()
    };
    // The previous run has figures too. The process ids distinguish the runs.
    let runs_on = |ranks: &[Program]| {
        until("it to train", || {
            let known = host.status()["ranks"].as_array()?.clone();
            let trains = |rank: &Program| {
                known.iter().any(|one| one["pid"] == rank.pid() && one["step"].as_u64() >= Some(1))
            };
            ranks.iter().all(trains).then_some(())
        });
    };
    let ranks: Vec<Program> = trains(&host, "first");
    runs_on(&ranks);
    let log = || host.collector_log();
    ranks[1].signal("INT");
    at_last("one to end", log, || log().contains("train: rank 1 was ended by SIGINT").then_some(()));
    ranks[0].signal("TERM");
    at_last("both to end", log, || log().contains("train: rank 0 was ended by SIGTERM").then_some(()));
    drop(ranks);
    // The second run of the same job fails: only its data is kept and reported.
    let ranks: Vec<Program> = trains(&host, "second");
    runs_on(&ranks);
    ranks[1].signal("SEGV");
    at_last("the program to be done", log, || log().contains("train: on-hang: done").then_some(()));
    assert_eq!(
        (reported(&host.place)["exit"]["signal"].clone(), runs(&host.place).len()),
        ("SIGSEGV".into(), 1)
    );
    assert_eq!(folders(&host.place).len(), 1);
}

#[test]
fn an_unwritable_folder_is_logged_once_and_the_rest_continues() {
    let host = Host::new();
    fs::write(host.place.path("state"), "a file in its place").unwrap();
    let line = notes(&host.place);
    let set = [("XPU_TOP_ON_HANG", line.as_str())];
    let ranks: Vec<_> = (0..2).map(|rank| host.rank_where(rank, &set, &script(RAISES))).collect();
    let log = || host.collector_log();
    at_last("the program to be done", log, || log().contains("train: on-hang: done").then_some(()));
    ranks[0].signal("ABRT");
    at_last("the other end", log, || log().contains("train: rank 0 was ended").then_some(()));
    assert_eq!(runs(&host.place), ["exit "]);
    assert_eq!(host.status()["findings"][0]["kind"], "exited");
    assert_eq!(log().matches("cannot write the incident folder").count(), 1, "{}", log());
}

/// The collector of a second host, which shares the home folder; its first port, and its socket for ranks.
fn other_host(host: &Host) -> (Program, BasePort, PathBuf) {
    let base = BasePort::new(port::free_base()).unwrap();
    let runtime = host.place.path("other");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
    let mut other = host.place.command(built::artifact("xpu-collector"));
    other.args(["--bind", "127.0.0.1", "--host-name", "other", "--base-port", &base.0.to_string()]);
    other.arg("--key-file").arg(host.key()).arg("--runtime-dir").arg(&runtime);
    let other = Program::start(other.env("HOME", host.place.path("")));
    let socket = RuntimeDir::at(&runtime).socket(base).unwrap();
    until("the other collector to listen", || socket.exists().then_some(()));
    (other, base, socket)
}

/// The rank for which the others wait is alone on its host, so neither host alone knows the cause. The program gets
/// what both know.
#[test]
fn the_program_hears_of_a_culprit_on_another_host() {
    let host = Host::new();
    let line = notes(&host.place);
    let (other, base, socket) = other_host(&host);
    let hosts = host.place.path("hosts.txt");
    fs::write(&hosts, format!("{}\n127.0.0.1:{}\n", host.address, base.0)).unwrap();
    let set = [
        ("XPU_TOP_ON_HANG", line.as_str()),
        ("XPU_TOP_JOB_HOSTS", hosts.to_str().unwrap()),
        ("XPU_TOP_SOCKET", socket.to_str().unwrap()),
    ];
    let _ranks = [host.rank_where(0, &set[..2], &script(STUCK)), host.rank_where(1, &set, &script(STUCK))];
    let log = || format!("{}\n--\n{}", host.collector_log(), other.said());
    at_last("the program to be done", log, || {
        host.collector_log().contains("train: on-hang: done").then_some(())
    });
    let document = reported(&host.place);
    let found = &document["findings"][0];
    assert_eq!(
        (&found["kind"], &found["class"], &found["ranks"]),
        (&"hang".into(), &"not_entered".into(), &serde_json::json!([1])),
        "{document:#}"
    );
    let sentence = document["hang"].as_str().unwrap();
    assert!(sentence.contains("rank 1 is in fault") && sentence.ends_with("; host other"), "{sentence}");
    assert_eq!(document["coverage"]["hosts_unreachable"], serde_json::json!([]));
}

/// One rank per host, with a common home folder. Both hosts save their data, one sends the notification, and
/// both folders are replayed together.
#[test]
fn one_of_two_hosts_notifies_and_both_are_replayed() {
    let host = Host::new();
    let line = notes(&host.place);
    let (other, _, socket) = other_host(&host);
    let its = [("XPU_TOP_ON_HANG", line.as_str()), ("XPU_TOP_SOCKET", socket.to_str().unwrap())];
    let _ranks = [host.rank_where(0, &its[..1], &script(RAISES)), host.rank_where(1, &its, &script(RAISES))];
    let log = || format!("{}\n--\n{}", host.collector_log(), other.said());
    at_last("the other host to tell", log, || other.said().contains("train: on-hang: done").then_some(()));
    at_last("this host to leave it at that", log, || {
        host.collector_log().contains("on-hang skipped: another host of the job ran it").then_some(())
    });
    assert_eq!(runs(&host.place).len(), 1);
    let folders = folders(&host.place);
    assert_eq!(folders.len(), 2, "{folders:?}");
    for folder in folders {
        let status = run(&mut xpu_top(&host.place, &format!("status --json --replay {}", folder.display())));
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        let hosts: Vec<_> = status["ranks"].as_array().unwrap().iter().map(|rank| &rank["host"]).collect();
        assert_eq!(hosts, ["sim", "other"]);
        let found = &status["findings"][0];
        assert_eq!(
            (&found["kind"], &found["ranks"]),
            (&"exited".into(), &serde_json::json!([1])),
            "{status:#}"
        );
    }
}

#[test]
fn run_passes_the_on_hang_command_to_the_job() {
    let place = Place::new();
    let mut command = xpu_top(&place, "run --no-collector --on-hang");
    command.args(["curl -d @- 'http://a'", "--", "sh", "-c", "echo $XPU_TOP_ON_HANG"]);
    let outcome = run(&mut command);
    assert_eq!(outcome.stdout, "curl -d @- 'http://a'\n", "{outcome:?}");
}

/// The awaited rank and ranks that ended in an orderly way have no stacks. The stacks of the others are
/// shown.
#[test]
fn the_advice_of_status_for_a_rank_that_left_works() {
    let host = Host::new();
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &script("os._exit(0)"))).collect();
    let status = at_last(
        "the hang",
        || host.collector_log(),
        || {
            let status = host.ask("status --now");
            status.stdout.contains("it has ended").then_some(status)
        },
    );
    let stacks = follow(&host.place, &status);
    assert!(
        stacks.status.success() && stacks.stdout.contains("cudaStreamSynchronize"),
        "{status:?} {stacks:?}"
    );
}

/// The advice for a kernel without end, live and from the incident folder.
#[test]
fn the_advice_of_status_for_a_kernel_without_end_works() {
    let mut host = Host::new();
    let script = script("ok(gemm_ex(2000000, 2000000, 2000000))");
    let ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &script)).collect();
    let log = || host.collector_log();
    let status = at_last("the hang", log, || {
        let status = host.ask("status --now");
        words(&status.stdout).contains("what these ranks launched before it").then_some(status)
    });
    assert!(status.stdout.contains("next: xpu-top collectives"), "{status:?}");
    let stacks = follow(&host.place, &status);
    assert!(stacks.status.success() && stacks.stdout.contains("cudaStreamSynchronize"), "{stacks:?}");
    let folder = at_last("a folder with stacks", log, || {
        let folder = folders(&host.place).pop()?;
        kept_status(&folder)?["stacks"].is_object().then_some(folder)
    });
    host.end_collector();
    drop(ranks);
    let kept = run(&mut xpu_top(&host.place, &format!("status --replay {}", folder.display())));
    assert!(words(&kept.stdout).contains("what these ranks launched before it"), "{kept:?}");
    let stacks = follow(&host.place, &kept);
    assert!(stacks.status.success() && stacks.stdout.contains("cudaStreamSynchronize"), "{stacks:?}");
}
