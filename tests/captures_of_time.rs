//! `xpu-top capture --for`: captures a period instead of steps, for programs without known steps. A real
//! collector and real hooks.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xpu_model::figure;
use xpu_tests::{
    host::{BASE, Host, TRAINS},
    program::{Outcome, Program, run, until},
};
use xpu_tui::file_loader::{FolderReader, Loaded, Order, What};
use xpu_wire::unit::Nanoseconds;

/// An inference server: it launches work and has no steps.
const SERVES: &str = "
comm = communicator()
def work():
    for side in (256, 512): ok(gemm_ex(side, side, side))
    ok(kernel())
    ok(all_reduce(comm, 1000))
    sync()
    time.sleep(0.005)
while True: work()
";

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    fn new(script: &str) -> Self {
        let host = Host::new();
        let set = [("XPU_TOP_STEPS", "off"), ("XPU_TOP_SAMPLE", "gemm=64,collective=16")];
        let set = if script == TRAINS { &set[1..] } else { &set[..] };
        let ranks = (0..2).map(|rank| host.rank_where(rank, set, script)).collect();
        until("both ranks to be there", || (host.status()["coverage"]["ranks_seen"] == 2).then_some(()));
        Self { host, ranks }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.host.place.path(name)
    }

    fn capture(&self, name: &str, more: &str) -> Outcome {
        self.host.ask(&format!("capture --no-watch --job train -o {} {more}", self.file(name).display()))
    }

    fn say(&self, command: &str, name: &str) -> Outcome {
        run(self.host.xpu_top(command).arg(self.file(name)))
    }

    /// The period of a file in the list of files on the screen.
    fn label(&self, name: &str) -> String {
        let mut reader = FolderReader::new(self.host.place.path(""));
        let Loaded::Listed(listing) = reader.follow(Order::List) else { panic!("no list") };
        let file = listing.files.into_iter().find(|file| file.path.ends_with(name)).expect("the file");
        match file.label.expect("a label").what {
            What::Capture { of, .. } => of.short(),
            other => panic!("{other:?}"),
        }
    }

    fn report(&self, name: &str) -> Value {
        let done = self.say("report --json", name);
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    /// Starts a capture of one minute, and waits until both ranks have agreed.
    fn begin(&self, name: &str) -> Program {
        let line = format!("capture --no-watch --for 1m --job train -o {}", self.file(name).display());
        let at = format!("{}:{BASE}", self.host.address);
        let mut command = self.host.xpu_top(&line);
        let capturing = Program::start(command.args(["--hosts", &at, "--key-file"]).arg(self.host.key()));
        until("both to agree", || capturing.said().contains("2 of 2 ranks agreed").then_some(()));
        capturing
    }

    /// Reads one column of an exported table.
    fn column(&self, name: &str, table: &str, column: &str) -> Vec<String> {
        let dir = self.file(&format!("{name}-{table}"));
        let done = run(self.host.xpu_top("export --csv").arg(&dir).arg(self.file(name)));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let text = fs::read_to_string(dir.join(table).with_extension("csv")).expect("a table");
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let place = lines.next().expect("a head").iter().position(|&name| name == column).expect("a column");
        lines.map(|cells| cells[place].to_owned()).collect()
    }
}

#[test]
fn a_program_without_steps_is_captured_by_time() {
    let job = Job::new(SERVES);
    let steps = job.capture("steps.bin", "--steps 3 --wait 5");
    assert!(steps.status.code() == Some(3) && steps.stderr.contains("--for 500ms"), "{steps:?}");
    assert!(!steps.stderr.contains("try again"), "it would never be otherwise: {steps:?}");

    let done = job.capture("c.bin", "--for 300ms --kernels");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stdout.contains(": 300 ms of 2 of 2 ranks, "), "{done:?}");
    let report = job.report("c.bin");
    assert_eq!((&report["steps"], &report["asked"]), (&json!([]), &Value::Null), "{report:#}");
    assert_eq!((&report["window"]["length_ns"], &report["untimed"]), (&json!(300_000_000), &json!(0)));
    let begin = report["window"]["begin"].as_u64().expect("a time");
    for rank in report["ranks"].as_array().expect("ranks") {
        assert_eq!((&rank["ended"], &rank["seen"]), (&json!("Done"), &json!("kernels")), "{report:#}");
        let [window] = &rank["steps"].as_array().expect("one")[..] else { panic!("{report:#}") };
        assert_eq!((&window["step"], &window["took_ns"]), (&Value::Null, &json!(300_000_000)));
        assert!(window["begin"].as_u64().expect("a time").abs_diff(begin) < 20_000_000, "{report:#}");
        assert!(window["operations"]["gemm"].as_u64() > Some(4), "{report:#}");
        assert!(window["operations"]["activity_kernel"].as_u64() > Some(4), "{report:#}");
    }
    // Both ranks recorded the same period, and nothing outside it.
    let launched = job.column("c.bin", "gemms", "launched_ns");
    let offsets = report["clock"]["offsets_ns"]["sim"].as_i64().unwrap_or(0);
    assert!(launched.len() > 8);
    for at in launched {
        let after = at.parse::<i64>().expect("a time") - offsets - begin as i64;
        assert!((-20_000_000..320_000_000).contains(&after), "{after} ns after the begin");
    }
    assert!(job.column("c.bin", "steps", "step").iter().all(String::is_empty), "a time has no number");

    let text = job.say("report", "c.bin").stdout;
    assert!(text.contains("a window of 300 ms") && text.contains("time of the window"), "{text}");
    assert!(!text.contains("step"), "there is none: {text}");
    let html = job.file("c.html");
    run(job.host.xpu_top("report --html").arg(&html).arg(job.file("c.bin")));
    let page = fs::read_to_string(html).expect("a page");
    assert!(page.contains("the window, ") && !page.contains("step "), "it has the timeline of a time");
    let replayed = job.say("status --json --replay", "c.bin");
    assert!(replayed.stdout.contains("\"ranks_seen\": 2"), "{replayed:?}");
    let chrome = job.file("c.json");
    run(job.host.xpu_top("export --chrome").arg(&chrome).arg(job.file("c.bin")));
    let events = fs::read_to_string(chrome).expect("a timeline");
    assert!(events.contains("\"name\":\"window\"") && !events.contains("step 1"), "it is one slice");
}

#[test]
fn captures_of_periods_are_compared_by_the_second_and_not_with_steps() {
    let job = Job::new(TRAINS);
    until("steps", || (job.host.status()["steps"]["min"].as_u64()? >= 3).then_some(()));
    // A longer capture is not reported as a changed job.
    for (name, length) in [("short.bin", "250ms"), ("long.bin", "500ms")] {
        let done = job.capture(name, &format!("--light --for {length}"));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    }
    let diff = |one: &str, other: &str, more: &str| {
        run(job.host.xpu_top(&format!("diff {more}")).arg(job.file(one)).arg(job.file(other)))
    };
    let compared = diff("short.bin", "long.bin", "--json");
    let rows: Value = serde_json::from_str(&compared.stdout).unwrap_or_else(|_| panic!("{compared:?}"));
    assert_eq!(rows["per"], "second");
    let rows = rows["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["kind"] != "step"), "{rows:#?}");
    let gemm = rows.iter().find(|row| row["kind"] == "gemm").expect("a GEMM");
    let (before, after) = (gemm["before_count"].as_f64().unwrap(), gemm["after_count"].as_f64().unwrap());
    assert!((0.6..1.6).contains(&(after / before)), "as many a second: {gemm:#}");
    let text = diff("short.bin", "long.bin", "").stdout;
    assert!(text.contains("times in ms per second and rank") && !text.contains("per step"), "{text}");

    let steps = job.capture("steps.bin", "--light --steps 2 --wait 25");
    assert_eq!(steps.status.code(), Some(0), "{steps:?}");
    for (one, other) in [("short.bin", "steps.bin"), ("steps.bin", "short.bin")] {
        let refused = diff(one, other, "");
        assert!(refused.status.code() == Some(64) && refused.stderr.contains("(--for)"), "{refused:?}");
    }
    let refused = diff("short.bin", "long.bin", "--fail-on 3%");
    assert!(refused.status.code() == Some(64) && refused.stderr.contains("compute=3%"), "{refused:?}");
}

#[test]
fn a_shortened_period_has_its_true_length_in_the_file() {
    let job = Job::new(SERVES);
    let capturing = job.begin("c.bin");
    until("something to be recorded", || {
        let ranks = job.host.status()["ranks"].clone();
        ranks.as_array()?.iter().all(|rank| rank["collective_timed_one_in"] == 1).then_some(())
    });
    job.ranks[1].signal("KILL");
    let done = capturing;
    until("the end of the rank to be known", || {
        (job.host.status()["ranks"].as_array()?.iter().any(|rank| rank["state"] != "ok")).then_some(())
    });
    done.signal("INT");
    let done = done.end();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("rank 1: it died before it had recorded the whole period"), "{done:?}");
    assert!(done.stderr.contains("rank 0: it did not finish in time: it recorded "), "{done:?}");
    let report = job.report("c.bin");
    let took = report["ranks"][0]["steps"][0]["took_ns"].as_u64().expect("a window");
    assert!((1_000_000..50_000_000_000).contains(&took), "{report:#}");
    let said = figure::short_time(Nanoseconds(took));
    assert!(
        done.stdout.contains(&format!("c.bin: {said} of the requested 60.0 s of 1 of 2 ranks, ")),
        "{done:?}"
    );
    let text = job.say("report", "c.bin").stdout;
    assert!(text.contains(&format!("{said} of the requested 60.0 s were recorded")), "{text}");
    assert_eq!(job.label("c.bin"), said, "the list of files has the recorded period");
    assert_eq!(
        (&report["window"]["length_ns"], &report["window"]["asked_ns"]),
        (&json!(took), &json!(60_000_000_000_u64))
    );
    assert!(!text.contains("a window of 60.0 s"), "{text}");
}

/// The stopped rank does not answer, like a rank with an older hook that does not know captures by time.
#[test]
fn a_silent_rank_is_not_awaited_after_the_period() {
    let job = Job::new(SERVES);
    job.ranks[1].signal("STOP");
    let asked = Instant::now();
    let done = job.capture("c.bin", "--for 300ms --ranks 0,1");
    job.ranks[1].signal("CONT");
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("rank 1: it did not answer: "), "{done:?}");
    assert!(asked.elapsed() < Duration::from_mins(1), "it waited {:?}", asked.elapsed());
    // Rank 0 waits in a collective for the stopped rank, but its window has its full length.
    let ranks = job.report("c.bin")["ranks"].clone();
    assert_eq!(
        (ranks.as_array().map(Vec::len), &ranks[0]["steps"][0]["took_ns"]),
        (Some(1), &json!(300_000_000))
    );
}

#[test]
fn a_period_and_steps_exclude_each_other() {
    let job = Job::new(SERVES);
    for line in ["--for 0ms", "--for 11m", "--for 1s --steps 3", "--for 1s --before 3", "--for soon", ""] {
        let done = job.capture("c.bin", line);
        assert_eq!(done.status.code(), Some(64), "{line}: {done:?}");
        assert!(!job.file("c.bin").exists());
    }
    // A capture of one rank alone works. A second capture is refused while the first one runs.
    let one = job.capture("one.bin", "--for 100ms --ranks 1");
    assert_eq!(one.status.code(), Some(0), "{one:?}");
    assert_eq!(job.report("one.bin")["ranks"].as_array().map(Vec::len), Some(1));
    let first = job.begin("first.bin");
    let second = job.capture("second.bin", "--for 100ms");
    assert!(second.status.code() == Some(3) && second.stderr.contains("another capture"), "{second:?}");
    first.signal("INT");
    assert_eq!(first.end().status.code(), Some(1));
}
