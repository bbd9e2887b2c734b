//! Runs `xpu-top demo` to its end, and checks its report of each fault.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use serde_json::{Value, json};
use xpu_tests::{
    built,
    place::Place,
    program::{Outcome, Program, run, until},
    pty::Terminal,
};

struct Demo {
    place: Place,
    program: Program,
    /// A lock, so that one demo runs at a time: each demo takes all cores of a small machine.
    _turn: File,
}

impl Demo {
    fn start(line: &str) -> Self {
        Self::start_in(Place::new(), line)
    }

    fn start_in(place: Place, line: &str) -> Self {
        let turn = File::create(std::env::temp_dir().join("xpu-top-demo-tests")).expect("a file");
        turn.lock().expect("a lock");
        let mut command = place.command(built::artifact("xpu-top"));
        command.env("HOME", place.path("")).env("TMPDIR", place.path("")).env_remove("XDG_CONFIG_HOME");
        command.args(["demo", "--headless", "--json"]).args(line.split_whitespace());
        Self { program: Program::start(&mut command), place, _turn: turn }
    }

    /// The status as seen from another terminal, which takes the ports from the demo's standard error.
    fn status(&self) -> Option<Value> {
        let said = self.program.said();
        let base = said.strip_prefix("demo: ports ")?.split(' ').next()?.to_owned();
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME");
        command.args(["status", "--json", "--hosts", "127.0.0.[1-2]", "--base-port", &base]);
        serde_json::from_str(&run(&mut command).stdout).ok()
    }

    /// The status as seen by a viewer that has just connected.
    fn fresh_status(&self) -> Option<Value> {
        serde_json::from_str(&self.ask("status --now --json").stdout).ok()
    }

    /// Kills the collectors, and restarts them with the same command line and environment.
    fn restart_collectors(&self) -> Vec<Program> {
        let read = |process: &Path, what: &str| -> Vec<String> {
            let bytes = fs::read(process.join(what)).unwrap_or_default();
            let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        };
        let home = self.place.path("").display().to_string();
        let mut started = Vec::new();
        for process in fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path()) {
            let line = read(&process, "cmdline");
            let is_one = line.first().is_some_and(|program| program.ends_with("/xpu-collector"));
            if !is_one || !line.iter().any(|word| word.contains(&home)) {
                continue;
            }
            let set = read(&process, "environ");
            let pid = process.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(
                Command::new("kill").args(["-s", "KILL", &pid]).status().is_ok_and(|sent| sent.success())
            );
            // A dying process releases its memory first, then its files and the lock: only a zombie without
            // other threads has released both.
            until("it to be gone", || {
                let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
                let ended = fs::read_to_string(process.join("status"))
                    .map_or(true, |status| status.contains("State:\tZ"));
                (ended && threads <= 1).then_some(())
            });
            let mut again = Command::new(&line[0]);
            again.args(&line[1..]).env_clear().envs(set.iter().filter_map(|word| word.split_once('=')));
            started.push(Program::start(&mut again));
        }
        started
    }

    /// Sends a signal to the process of a rank, once the job trains.
    fn signal(&self, rank: usize, signal: &str) {
        let pid = until("the job to train", || {
            let status = self.status()?;
            (status["steps"]["min"].as_u64()? >= 3).then(|| status["ranks"][rank]["pid"].as_u64()).flatten()
        });
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
    }

    /// Runs this `xpu-top` command on the job, once it trains.
    fn ask(&self, line: &str) -> Outcome {
        until("the job to train", || (self.status()?["steps"]["min"].as_u64()? >= 3).then_some(()));
        let said = self.program.said();
        let base = said
            .strip_prefix("demo: ports ")
            .and_then(|said| said.split(' ').next())
            .expect("it says its ports");
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME");
        command.args(line.split_whitespace()).args(["--hosts", "127.0.0.[1-2]", "--base-port", base]);
        run(&mut command)
    }

    /// Runs this `xpu-top` command on files, without a job.
    fn ask_of_file(&self, line: &str) -> Outcome {
        run(self.place.command(built::artifact("xpu-top")).args(line.split_whitespace()))
    }

    /// The final status in a recording of this demo.
    fn replayed(&self, file: &Path) -> Value {
        let mut command = self.place.command(built::artifact("xpu-top"));
        let said = run(command.args(["status", "--json", "--rank", "5", "--replay"]).arg(file));
        serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
    }

    fn report(&self, file: &Path) -> Value {
        let mut command = self.place.command(built::artifact("xpu-top"));
        let said = run(command.args(["report", "--json"]).arg(file));
        serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
    }

    /// As [`Self::end`], and checks the flame graph.
    fn end_of(self, svg: &Path) -> (Option<i32>, Value) {
        let Self { place, program, _turn } = self;
        let Outcome { stdout, stderr, status } = program.end();
        let picture = fs::read_to_string(svg).unwrap_or_else(|_| panic!("no picture: {stderr}"));
        assert!(picture.contains("wait_for_shard_that_never_comes"), "{picture}");
        drop(place);
        (status.code(), serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}")))
    }

    fn end(self) -> (Option<i32>, Value) {
        let Outcome { stdout, stderr, status } = self.program.end();
        let document = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
        (status.code(), document)
    }
}

/// The kind, class and ranks of each finding.
fn findings(document: &Value) -> Vec<(&str, &str, Vec<u64>)> {
    let of = |finding: &'_ Value| {
        finding["ranks"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let all = document["findings"].as_array().expect("findings").iter();
    all.map(|finding| {
        let word = |name: &str| finding[name].as_str().unwrap_or_default();
        (word("kind"), word("class"), of(finding))
    })
    .collect()
}

#[test]
fn a_healthy_job_has_no_finding() {
    let (code, document) = Demo::start("--ranks 4 --nodes 2").end();
    assert_eq!((code, findings(&document)), (Some(0), vec![]), "{document:#}");
    assert!(document.get("stacks").is_none());
}

/// Each of 14 layers runs two GEMMs forward and four backward. A step also reduces four buckets of gradients,
/// copies a batch in and a loss out, and waits for the loss.
#[test]
fn the_same_steps_of_all_ranks_are_captured_whole() {
    let demo = Demo::start("--ranks 8 --nodes 2 --steps 100000");
    let file = demo.place.path("c.bin");
    let done = demo.ask(&format!("capture --steps 3 -o {} --wait 60", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let report = demo.report(&file);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ranks = list(&report["ranks"]);
    assert_eq!((ranks.len(), list(&report["steps"]).len()), (8, 3), "{report:#}");
    for rank in &ranks {
        let steps: Vec<_> = list(&rank["steps"]).iter().map(|step| step["step"].clone()).collect();
        assert_eq!(Value::from(steps), report["steps"], "all ranks have the same steps");
        for mut step in list(&rank["steps"]) {
            // The number of functions varies: Python may collect garbage in any step.
            step["operations"].as_object_mut().expect("kinds").remove("function");
            let counts = serde_json::json!({ "gemm": 84, "collective": 4, "copy": 2, "blocked": 1 });
            assert_eq!(step["operations"], counts, "{rank:#}");
            let time = |name: &str| step["summary"][name].as_f64().expect("a time");
            let part = |name: &str| time(name) / time("took_ns");
            assert!(part("compute_ns") > 0.2 && part("compute_ns") <= 1.0, "{step:#}");
            assert!(
                part("communication_ns") > 0.0 && part("exposed_ns") <= part("communication_ns"),
                "{step:#}"
            );
        }
        assert_eq!((&rank["dropped"], &rank["untimed"]), (&Value::from(0), &Value::from(0)), "{rank:#}");
    }
    assert!(report["clock"]["error_ns"].as_u64().is_some_and(|error| error < 50_000_000), "{report:#}");
    assert_eq!(
        (report["missing"].as_array().map(Vec::len), &report["closed"]),
        (Some(0), &Value::from(true))
    );
    let size = fs::metadata(&file).expect("it is there").len();
    assert!(size <= 20 * 1024 * 8 * 3, "{size} bytes");
    let folded = demo.place.path("folded");
    let mut export = demo.place.command(built::artifact("xpu-top"));
    run(export.arg("export").arg(&file).arg("--folded").arg(&folded));
    let folded = fs::read_to_string(folded).expect("it is written");
    let mut svg = Vec::new();
    let options = &mut inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(options, folded.lines(), &mut svg).expect("a flame graph");
    let export = |line: &str| {
        let mut command = demo.place.command(built::artifact("xpu-top"));
        run(command.arg("export").arg(&file).args(line.split_whitespace()).current_dir(demo.place.path("")))
    };
    // A name ending in `.gz` is compressed. The export has only the requested kinds, and lists ranks by name
    // in the order of their groups.
    let done = export("--chrome x.json.gz --csv tables --kind gemm --groups tp2-dp4");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let packed = File::open(demo.place.path("x.json.gz")).expect("it is written");
    let chrome: Value = serde_json::from_reader(flate2::read::GzDecoder::new(packed)).expect("packed JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    let sliced: std::collections::BTreeSet<_> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .filter_map(|event| event["name"].as_str()?.split(' ').next())
        .collect();
    assert_eq!(sliced.into_iter().collect::<Vec<_>>(), ["gemm", "step"]);
    let named = |rank: u64, what: &str| {
        let event = events.iter().find(|event| event["name"] == what && event["pid"] == rank);
        event.expect("it is reported for each rank")["args"].clone()
    };
    assert!(
        named(5, "process_name")["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("rank 5 (tp1 dp2) on "))
    );
    assert_eq!(named(2, "process_sort_index")["sort_index"], 1, "along tp first");
    let tables = fs::read_dir(demo.place.path("tables")).expect("tables").flatten();
    let mut tables: Vec<_> = tables.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    tables.sort();
    assert_eq!(tables, ["gemms.csv", "steps.csv"]);
    // Existing files are not overwritten, also not through a link.
    std::os::unix::fs::symlink("folded", demo.place.path("link")).expect("a link");
    for line in ["--folded folded", "--folded link", "--csv tables", "--perfetto new --chrome link"] {
        let refused = export(line);
        assert_eq!(refused.status.code(), Some(64), "{line}: {refused:?}");
        assert!(refused.stderr.contains("it exists: choose another name, or remove it"), "{refused:?}");
    }
    assert!(!demo.place.path("new").exists(), "nothing is written where not all can be");
    let mut page = demo.place.command(built::artifact("xpu-top"));
    let refused = run(page.arg("report").arg(&file).arg("--html").arg(demo.place.path("link")));
    assert!(refused.status.code() == Some(64) && refused.stderr.contains("it exists"), "{refused:?}");
    let svg = String::from_utf8(svg).expect("text");
    assert!(svg.contains("<title>rank 7 (") && svg.contains("<title>gemm ("), "{svg:.2000}");
    let again = demo.ask(&format!("capture --steps 3 -o {}", file.display()));
    assert_eq!(again.status.code(), Some(64), "what is there is not written over: {again:?}");
    let replayed = demo.replayed(&file);
    assert_eq!(replayed["coverage"]["ranks_seen"], 8, "{replayed:#}");
}

/// At its end a recording shows what a live viewer saw, GEMMs included: the same kind, class, ranks and
/// confidence.
#[test]
fn a_capture_has_the_findings_of_the_live_job() {
    let demo = Demo::start("--ranks 8 --nodes 2 --steps 100000 --slow 5:1.5");
    let file = demo.place.path("c.bin");
    let done = demo.ask(&format!("capture --steps 3 -o {} --wait 60", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let live = demo.status().expect("it runs");
    let replayed = demo.replayed(&file);
    assert_eq!(findings(&live), [("slow_rank", "compute", vec![5])], "{live:#}");
    assert_eq!(findings(&replayed), findings(&live), "{replayed:#}");
    assert_eq!(replayed["findings"][0]["confidence"], live["findings"][0]["confidence"], "{replayed:#}");
    let rate = |document: &Value| document["ranks"][5]["gemm_tflops"].as_f64().expect("a rate");
    assert!((rate(&replayed) / rate(&live) - 1.0).abs() < 0.02, "{replayed:#}");
    let shapes = replayed["ranks"][5]["gemms"].as_array().map_or(0, Vec::len);
    assert!(shapes > 0, "its GEMMs are not in the file: {replayed:#}");
    let size = fs::metadata(&file).expect("it is there").len();
    assert!(size <= 20 * 1024 * 8 * 3, "{size} bytes");
}

#[test]
fn a_capture_of_a_hung_job_ends_early_and_names_the_hang() {
    let demo = Demo::start("--ranks 8 --nodes 2 --hang 20:6 --stay");
    until("the hang to be named", || (!findings(&demo.status()?).is_empty()).then_some(()));
    let file = demo.place.path("c.bin");
    let done = demo.ask(&format!("capture --steps 3 --before 5 -o {} --wait 600", file.display()));
    assert_eq!(done.status.code(), Some(1), "all gave what they had, and no step of those: {done:?}");
    assert!(done.stderr.contains("the job hangs: rank 6 "), "{done:?}");
    assert!(done.stdout.contains("8 of 8 ranks completed no step after "), "{done:?}");
    let report = demo.report(&file);
    assert!(report["hang"].as_str().is_some_and(|why| why.starts_with("rank 6 ")), "{report:#}");
    let ranks = report["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 8, "{report:#}");
    for rank in ranks {
        assert!(rank["ended"] == "TimeUp" && rank["operations"].as_u64() > Some(0), "{rank:#}");
    }
    assert_eq!(findings(&demo.replayed(&file)), [("hang", "not_entered", vec![6])]);
    let stacks = demo.ask_of_file(&format!("stacks --json --replay {}", file.display()));
    let document: Value = serde_json::from_str(&stacks.stdout).unwrap_or_else(|_| panic!("{stacks:?}"));
    assert_eq!(document["tree"]["ranks"], "0-7", "{document:#}");
    let early = demo.ask_of_file(&format!("stacks --at 0% --replay {}", file.display()));
    assert!(
        early.status.code() == Some(3) && early.stderr.contains("it has no stacks at that time"),
        "{early:?}"
    );
    let text = demo.ask_of_file(&format!("report {}", file.display())).stdout;
    assert!(text.contains("not recorded completely") && !text.contains("   0.00   0.00"), "{text}");
    // The job has hung since then. This second request sets no first step, so it captures the step in which
    // the job hangs.
    let again = demo.place.path("again.bin");
    let done = demo.ask(&format!("capture --steps 3 -o {} --wait 600", again.display()));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let report = demo.report(&again);
    // The missing rank has launched nothing in that step.
    let ranks = report["ranks"].as_array().expect("ranks");
    assert!(ranks.iter().any(|rank| rank["operations"].as_u64() > Some(0)), "{report:#}");
}

#[test]
fn a_slow_gpu_is_named() {
    let (code, document) = Demo::start("--ranks 8 --nodes 2 --steps 60 --slow 5:1.5").end();
    assert_eq!(
        (code, findings(&document)),
        (Some(1), vec![("slow_rank", "compute", vec![5])]),
        "{document:#}"
    );
}

/// The job has two ranks. Each status is that of a viewer that has not watched before.
#[test]
fn a_late_viewer_has_all_findings_with_their_begin_even_after_a_restart() {
    let demo = Demo::start("--ranks 2 --nodes 2 --steps 100000 --slow-host 1:40ms");
    let reported = |least: f64| {
        let status = demo.fresh_status()?;
        let finding = status["findings"][0].clone();
        (finding["since_s"].as_f64()? >= least).then_some((finding, status))
    };
    let (finding, status) = until("the slow host to be named", || reported(15.0));
    assert_eq!(findings(&status), [("slow_rank", "host", vec![1])], "{status:#}");
    let cost = |finding: &Value| finding["cost_ms_per_step"].as_f64().expect("a cost");
    let before = finding["since_s"].as_f64().expect("a time");
    let collectors = demo.restart_collectors();
    assert_eq!(collectors.len(), 2);
    let (again, status) = until("the same finding again", || reported(before));
    assert_eq!(findings(&status), [("slow_rank", "host", vec![1])], "{status:#}");
    assert!((cost(&again) / cost(&finding) - 1.0).abs() < 0.5, "{finding:#} {again:#}");
}

/// One GPU's clock is a little lower: every place shows the same rank, cause and cost. The test compares
/// views of a recording, because its figures no longer change.
#[test]
fn the_cost_of_a_lower_clock_is_the_same_on_all_pages_in_the_report_and_in_the_document() {
    let demo = Demo::start("--ranks 8 --nodes 2 --steps 100000 --throttle 5:1800");
    until("enough steps", || (demo.fresh_status()?["steps"]["min"].as_u64()? >= 100).then_some(()));
    // On a busy machine, the rank can be named before its cost is known.
    until("the rank to be named with its cost", || {
        let status = demo.fresh_status()?;
        let is_named = findings(&status) == [("slow_rank", "clocks", vec![5])];
        (is_named && status["findings"][0]["cost_ms_per_step"].is_number()).then_some(())
    });
    let file = demo.place.path("night.xpurec");
    let done = demo.ask(&format!("record --for 3s -o {}", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let document = demo.replayed(&file);
    let [found] = &document["findings"].as_array().expect("findings")[..] else { panic!("{document:#}") };
    assert_eq!(
        (&found["kind"], &found["class"], &found["ranks"]),
        (&"slow_rank".into(), &"clocks".into(), &json!([5]))
    );
    let evidence = found["evidence"].as_str().expect("a sentence");
    let ms = found["cost_ms_per_step"].as_f64().expect("a cost");
    let cost = format!("{ms:.1} ms a step");
    // Costs of 10 ms or more have no decimal in a headline.
    let headline = if ms >= 10.0 { format!("costs {ms:.0} ms a step") } else { format!("costs {cost}") };
    let text = demo.ask_of_file(&format!("status --replay {}", file.display())).stdout;
    let flat = |screen: &str| screen.replace('\n', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    // Status and screen have a headline, and below it the clauses that the headline omits.
    let cause = evidence.rsplit(", and ").next().expect("a clause");
    let text = flat(&text);
    for part in [cause, &headline, &format!("lost to 1 finding: {cost}")] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let mut command = demo.place.command(built::artifact("xpu-top"));
    command.env("HOME", demo.place.path("")).env_remove("XDG_CONFIG_HOME").arg("--replay").arg(&file);
    // The command also writes the report into the working directory.
    command.current_dir(demo.place.path(""));
    let mut terminal = Terminal::start(command, 200, 50);
    let overview = format!("the overview with `{cause}` and `{headline}`");
    let says_it = |screen: &str| {
        let screen = flat(screen);
        screen.contains("rank 5 (node-2): GEMMs") && screen.contains(cause) && screen.contains(&headline)
    };
    terminal.shows("REPLAY").keys("}").wait(&overview, says_it);
    terminal.keys("7").wait("page 7", says_it);
    terminal.keys("y").wait("the report", |_| !terminal.copied().is_empty());
    let report = terminal.copied();
    assert!(report.contains(evidence) && report.contains(&cost), "{evidence} {cost}: {report}");
    terminal.keys("q");
    assert!(terminal.end().success());
}

#[test]
fn a_slow_host_is_named() {
    let (code, document) = Demo::start("--ranks 8 --nodes 2 --steps 60 --slow-host 3:40ms").end();
    assert_eq!((code, findings(&document)), (Some(1), vec![("slow_rank", "host", vec![3])]), "{document:#}");
}

/// The viewer has not watched the job before.
#[test]
fn a_slow_host_among_sixteen_ranks_is_named() {
    let demo = Demo::start("--ranks 16 --nodes 2 --steps 100000 --slow-host 13:80ms");
    until("steps", || (demo.fresh_status()?["steps"]["min"].as_u64()? >= 30).then_some(()));
    until("the slow host to be named", || {
        (findings(&demo.fresh_status()?) == [("slow_rank", "host", vec![13])]).then_some(())
    });
}

#[test]
fn a_hang_is_named_with_the_stacks_of_all_ranks() {
    let place = Place::new();
    let svg = place.path("stacks.svg");
    let line = format!("--ranks 8 --nodes 2 --hang 20:6 --svg {}", svg.display());
    let demo = Demo::start_in(place, &line);
    let Outcome { stdout, status, .. } = demo.program.end();
    let (code, document) = (status.code(), serde_json::from_str(&stdout).unwrap_or_default());
    let svg = fs::read_to_string(svg).expect("it was written");
    assert!(svg.contains("<svg") && svg.contains("wait_for_shard_that_never_comes"), "{svg}");
    assert_eq!(
        (code, findings(&document)),
        (Some(2), vec![("hang", "not_entered", vec![6])]),
        "{document:#}"
    );
    let folded = document["stacks"]["folded"].as_str().expect("stacks");
    let held = folded.lines().find(|line| line.contains(";wait_for_shard_that_never_comes@"));
    assert!(held.is_some_and(|line| line.contains("@6|0-5,7")), "{folded}");
    let waits = folded.lines().find(|line| line.contains("in cudaStreamSynchronize@0-5,7|6"));
    assert!(waits.is_some_and(|line| line.contains(";read_loss@")), "{folded}");
    assert_eq!(document["stacks"]["tree"]["ranks"], "0-7");
}

#[test]
fn stopped_and_killed_ranks_are_named() {
    let demo = Demo::start("--ranks 4 --nodes 2 --steps 100000");
    demo.signal(2, "STOP");
    let (code, document) = demo.end();
    assert_eq!((code, findings(&document)), (Some(2), vec![("hang", "stopped", vec![2])]), "{document:#}");
    assert!(
        document["stacks"]["folded"].as_str().is_some_and(|f| f.contains("stopped by a signal@2|")),
        "{document:#}"
    );

    let demo = Demo::start("--ranks 4 --nodes 2 --steps 100000");
    demo.signal(1, "KILL");
    let (code, document) = demo.end();
    assert_eq!((code, findings(&document)), (Some(2), vec![("exited", "dead", vec![1])]), "{document:#}");
}

/// The user has seen the hang, and ends the capture to get the data so far.
#[test]
fn a_demo_left_in_a_hang_reports_it_at_its_end() {
    let place = Place::new();
    let svg = place.path("stacks.svg");
    let demo =
        Demo::start_in(place, &format!("--ranks 4 --nodes 2 --hang 20:2 --stay --svg {}", svg.display()));
    until("the hang to be named", || (!findings(&demo.status()?).is_empty()).then_some(()));
    demo.program.signal("INT");
    let (code, document) = demo.end_of(&svg);
    assert_eq!(
        (code, findings(&document)),
        (Some(2), vec![("hang", "not_entered", vec![2])]),
        "{document:#}"
    );
}
