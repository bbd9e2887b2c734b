//! A viewer that connects to a collector after hours shows the same as a viewer from the start, even after
//! the collector was killed or crashed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_tests::{
    built,
    host::{Host, TRAINS},
    past,
    place::Place,
    port,
    program::{Outcome, Program, run, until},
};
use xpu_wire::{
    codec,
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, Frame, HookHealth, RankDigest, RankInfo, Summary},
    id::{HostName, Pid, Rank},
    unit::Moment,
};
use zmq::{Context, DONTWAIT, Socket};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600;

/// Seconds for which the job has run when its test begins.
const JOB_AGE: u64 = 25 * HOUR;

/// In seconds before now: rank 1 was late during this period.
const WAS_LATE: std::ops::Range<u64> = 4 * HOUR..5 * HOUR;
const IS_LATE: u64 = 90 * 60;

/// A job that began some time ago, with the collector of each host.
struct Job {
    simulation: Simulation,
    machines: Vec<Machine>,
    base: BasePort,
    stop: Arc<AtomicBool>,
    ranks: Option<JoinHandle<()>>,
}

/// A host with its own folders and its own loopback address.
struct Machine {
    name: HostName,
    place: Place,
    address: String,
    collector: Option<Program>,
}

/// Makes the digest equal to what the simulated hook reports.
fn without_device(frame: &mut Frame) {
    let Body::Digest(digest) = &mut frame.body else { unreachable!() };
    for digest in &mut digest.ranks {
        digest.pid = Pid(std::process::id());
        digest.device = None;
    }
}

impl Machine {
    fn begin_collector(&mut self, base: BasePort) {
        let mut command = self.place.command(built::artifact("xpu-collector"));
        command.args(["--no-key", "--bind", &self.address, "--base-port", &base.0.to_string()]);
        command.args(["--host-name", &self.name.0]);
        self.collector = Some(Program::start(command.env("HOME", self.place.path(""))));
    }
}

impl Job {
    /// Four ranks on one host, for a day.
    fn of_a_day() -> Self {
        let mut simulation = Simulation::new(7, 1, 4);
        let was_late = JOB_AGE - WAS_LATE.end..JOB_AGE - WAS_LATE.start;
        simulation.late = vec![(Rank(1), was_late), (Rank(2), JOB_AGE - IS_LATE..u64::MAX)];
        Self::start(simulation, JOB_AGE)
    }

    fn start(mut simulation: Simulation, age: u64) -> Self {
        let base = BasePort::new(port::free_base()).expect("a port");
        let now = Moment(Moment::now().0 / SECOND * SECOND);
        simulation.started = Moment(now.0 - age * SECOND);
        let machine = |host| {
            let place = Place::bare();
            past::leave(&place.path("run"), base, now, age, |ago| {
                let mut frame = simulation.digest_of(host, age - ago);
                without_device(&mut frame);
                frame
            });
            let name = simulation.host(host);
            let mut machine =
                Machine { name, place, address: format!("127.0.0.{}", host + 1), collector: None };
            machine.begin_collector(base);
            machine
        };
        let machines: Vec<_> = (0..simulation.hosts).map(machine).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let ranks = Some(thread::spawn({
            let (simulation, stop) = (simulation.clone(), Arc::clone(&stop));
            let socket = |machine: &Machine| {
                let path = RuntimeDir::at(machine.place.path("run")).socket(base).expect("a short path");
                path.display().to_string()
            };
            let paths: Vec<_> = machines.iter().map(socket).collect();
            move || speak(&simulation, &paths, &stop)
        }));
        Self { simulation, machines, base, stop, ranks }
    }

    fn begin_collector(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.begin_collector(self.base));
    }

    fn kill_collector(&mut self) {
        for collector in self.machines.iter_mut().filter_map(|machine| machine.collector.take()) {
            collector.signal("KILL");
            collector.end();
        }
    }

    fn xpu_top(&self, line: &str) -> Command {
        let place = &self.machines[0].place;
        let mut command = place.command(built::artifact("xpu-top"));
        command.env("HOME", place.path("")).args(line.split_whitespace());
        command
    }

    fn ask(&self, line: &str) -> Outcome {
        let hosts: Vec<_> =
            self.machines.iter().map(|machine| format!("{}:{}", machine.address, self.base.0)).collect();
        run(self.xpu_top(line).args(["--hosts", &hosts.join(",")]))
    }

    /// The output of `status` in a new process.
    fn status(&self) -> Value {
        let outcome = self.ask("status --json --now");
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }

    /// The text of a page over HTTP.
    fn page(&self, path: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.base.0)).expect("a collector");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(ranks) = self.ranks.take() {
            let _ = ranks.join();
        }
        self.kill_collector();
    }
}

/// Simulates the hooks of all ranks, which send once a second to their host's socket.
fn speak(simulation: &Simulation, paths: &[String], stop: &AtomicBool) {
    let context = Context::new();
    let connected = |path: &String| {
        let socket = socket::worker(&context).expect("a ZeroMQ socket");
        socket.connect(&format!("ipc://{path}")).expect("an address");
        socket
    };
    let sockets: Vec<Vec<Socket>> =
        paths.iter().map(|path| (0..simulation.ranks_per_host).map(|_| connected(path)).collect()).collect();
    let mut number = 0;
    while !stop.load(Relaxed) {
        let now = Moment::now();
        let second = now.since(simulation.started).as_secs();
        for ((mut frame, sockets), host) in simulation.digests(second).into_iter().zip(&sockets).zip(0..) {
            without_device(&mut frame);
            let Body::Digest(digests) = &mut frame.body else { unreachable!() };
            for (socket, digest) in sockets.iter().zip(&mut digests.ranks) {
                let say = |body, number| {
                    let frame = Frame { host: simulation.host(host), number, now, lost: 0, body };
                    let _ = socket.send(codec::encode(&frame), DONTWAIT);
                };
                // A collector that has just started learns who the senders are.
                say(Body::Hello(info(simulation, digest.rank)), number);
                say(Body::Summary(summary(simulation, digest, second)), number + 1);
                while socket.recv_bytes(DONTWAIT).is_ok() {}
            }
        }
        number += 2;
        thread::sleep(Duration::from_secs(1).saturating_sub(Moment::now().since(now)));
    }
}

fn info(simulation: &Simulation, rank: Rank) -> RankInfo {
    RankInfo {
        job: simulation.job.clone(),
        rank,
        world_size: simulation.world_size(),
        local_rank: None,
        pid: Pid(std::process::id()),
        started: simulation.started,
        program: "python train.py".to_owned(),
        version: "1".to_owned(),
        ledger: None,
    }
}

/// The hook's summary from which a collector makes this digest.
fn summary(simulation: &Simulation, digest: &RankDigest, second: u64) -> Summary {
    let Body::Detail(detail) = simulation.details(second, [digest.rank]).remove(0).body else {
        unreachable!()
    };
    let mut samples = digest.samples.clone();
    for sample in &mut samples {
        sample.communicator = 0;
    }
    Summary {
        communicators: digest.communicators.clone(),
        samples,
        launches: digest.launches,
        exposed_for: digest.exposed_for,
        gemms: Vec::new(),
        hook: HookHealth { enabled: true, ..detail.summary.hook.clone() },
        ..detail.summary
    }
}

/// The kind, class and ranks of each finding, and the seconds since it began.
fn findings(document: &Value) -> Vec<(String, Value, f64)> {
    let all = document["findings"].as_array().into_iter().flatten();
    all.map(|finding| {
        let name = format!("{} {}", finding["kind"], finding["class"]);
        (name, finding["ranks"].clone(), finding["since_s"].as_f64().unwrap_or(0.0))
    })
    .collect()
}

#[track_caller]
fn is_reported(found: &[(String, Value, f64)]) {
    let [(name, ranks, since)] = found else { panic!("one rank is late: {found:?}") };
    assert!(name.contains("slow_rank") && ranks[0] == 2, "{found:?}");
    let really = IS_LATE as f64;
    assert!((since / really - 1.0).abs() < 0.1, "since {since} s, really {really}: {found:?}");
}

/// Checks that the document shows when rank 1 was late.
#[track_caller]
fn is_gone(document: &Value) {
    let gone = document["ended_findings"].as_array().expect("something has ended");
    let one = gone.iter().find(|gone| gone["ranks"][0] == 1).unwrap_or_else(|| panic!("{gone:?}"));
    let now = Moment::now().0 as f64 / 1e9;
    for (end, ago) in [("began_at", WAS_LATE.end), ("ended_at", WAS_LATE.start)] {
        let reported = now - one[end].as_f64().expect("a time");
        assert!((reported - ago as f64).abs() < 20.0 * 60.0, "{end} {reported} s ago, really {ago}");
    }
    assert!(gone.len() <= 3, "nothing else was wrong for long: {gone:#?}");
}

#[test]
fn all_viewers_have_the_same_begin_and_the_same_past_findings() {
    let mut job = Job::of_a_day();
    until("the ranks to be heard", || (job.status()["coverage"]["ranks_seen"] == 4).then_some(()));
    for killed in [false, true] {
        if killed {
            job.kill_collector();
            job.begin_collector();
            until("the ranks to be heard again", || {
                (job.status()["coverage"]["ranks_seen"] == 4).then_some(())
            });
        }
        let status = job.status();
        is_reported(&findings(&status));
        is_gone(&status);

        let text = job.ask("status --now").stdout;
        assert!(text.lines().any(|line| line.starts_with("past, from ")), "{text}");
        for path in ["/api/v1/jobs/llama-70b", "/api/v1/findings"] {
            // The thread that serves pages is a viewer too. It takes a moment to read the history.
            let document = until("the page to know the whole history", || {
                let page = job.page(path);
                let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                let document: Value =
                    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {page}"));
                let since = findings(&document).first()?.2;
                (since > 0.9 * IS_LATE as f64).then_some(document)
            });
            is_reported(&findings(&document));
            is_gone(&document);
        }
        let metrics = job.page("/metrics");
        let age = metrics.lines().find(|line| line.starts_with("xpu_top_finding_age_seconds"));
        let age = age.unwrap_or_else(|| panic!("{metrics}"));
        let since: f64 = age.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number");
        assert!((since / IS_LATE as f64 - 1.0).abs() < 0.1, "{age}");

        let file = job.machines[0].place.path(&format!("replay-{killed}.xpurec"));
        let outcome = job.ask(&format!("record --for 4s -o {}", file.display()));
        assert!(outcome.status.success(), "{outcome:?}");
        let replayed = run(job.xpu_top("status --json --replay").arg(&file));
        is_reported(&findings(&serde_json::from_str(&replayed.stdout).expect("a document")));
        for list in [job.ask("findings --json"), run(job.xpu_top("findings --json").arg(&file))] {
            let list: Value = serde_json::from_str(&list.stdout).expect("a document");
            let with = |state: &str| {
                let all = list["findings"].as_array().expect("findings");
                all.iter().filter(|one| one["state"] == state).cloned().collect::<Vec<_>>()
            };
            is_reported(&findings(&json!({ "findings": with("present") })));
            is_gone(&json!({ "ended_findings": with("ended") }));
        }
    }
}

/// A viewer of this number of hosts gets 200 digests of each rank, of which the older ones are merged.
#[test]
fn status_of_twenty_hosts_knows_when_a_fault_of_minutes_ago_began() {
    let (age, is_late) = (600, 200);
    let mut simulation = Simulation::new(7, 20, 1);
    simulation.late = vec![(Rank(2), age - is_late..u64::MAX)];
    let job = Job::start(simulation, age);
    let (status, really) = until("all ranks to be heard", || {
        let really = Moment::now().since(job.simulation.started).as_secs_f64() - (age - is_late) as f64;
        let status = job.status();
        (status["coverage"]["ranks_seen"] == 20).then_some((status, really))
    });
    let found = findings(&status);
    let [(name, ranks, since)] = &found[..] else { panic!("one rank is late: {status:#}") };
    assert!(name.contains("slow_rank") && ranks == &json!([2]), "{found:?}");
    assert!((since / really - 1.0).abs() < 0.1, "since {since} s, really {really}: {found:?}");
}

/// Two ranks that train under the real hook. Each step sleeps for `rest` seconds.
fn trains(host: &Host, rest: &str) -> Vec<Program> {
    let script = TRAINS.replace("0.02", rest);
    (0..2).map(|rank| host.rank(rank, &script)).collect()
}

/// Waits until each rank of this run has completed a number of steps in this range. The ranks of an earlier
/// run have completed more.
fn done(host: &Host, steps: std::ops::Range<u64>) {
    until("steps to be done", || steps.contains(&host.status()["steps"]["min"].as_u64()?).then_some(()));
}

/// The signals imitate crashes of the driver's library. The collector restarts in the same process, a limited
/// number of times.
#[test]
fn a_collector_that_crashes_starts_again() {
    let mut host = Host::new();
    let _ranks = trains(&host, "0.02");
    let trains = |host: &Host| {
        until("both ranks to train", || {
            let status = host.status();
            let alive = |rank: &Value| rank["state"] == "ok" && rank["step"].as_u64() > Some(0);
            let ranks = status["ranks"].as_array()?;
            (ranks.len() == 2 && ranks.iter().all(alive)).then_some(())
        });
    };
    trains(&host);
    let count = |host: &Host, text: &str| host.collector_log().matches(text).count();
    for (number, signal) in (1..).zip(["SEGV", "BUS", "ABRT", "SEGV"]) {
        host.signal_collector(signal);
        until("it to start again", || (count(&host, "it starts again") == number).then_some(()));
        until("it to listen", || (count(&host, "in a row") == number).then_some(()));
        trains(&host);
    }
    host.signal_collector("SEGV");
    let ended = host.collector_ends();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(11), "{ended:?}");
    assert!(
        ended.stderr.contains("in thread xpu-collector: it crashed; it ends, after too many crashes"),
        "{ended:?}"
    );
}

#[test]
fn a_run_is_kept_and_the_next_is_compared_with_it() {
    let host = Host::new();
    let ranks = trains(&host, "0.02");
    // A run of less than a minute is not kept; these steps take at least 84 s.
    (1..=10).for_each(|part| done(&host, part * 420..u64::MAX));
    let first = host.ask("status --now --baseline last");
    assert!(
        first.stderr.contains("train is compared with nothing: no earlier run with 2 ranks"),
        "{first:?}"
    );
    for rank in ranks {
        rank.signal("TERM");
        rank.end();
    }
    let folder = host.place.path("state/xpu-top/runs");
    let file = until("what was normal of the run", || {
        let all = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path());
        all.into_iter().find(|path| path.extension().is_some_and(|is| is == "json"))
    });
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let kept: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("a document");
    assert_eq!((&kept["job"], &kept["world_size"]), (&"train".into(), &2.into()), "{kept:#}");
    let figures = ["step_ms_mean", "step_ms_p50", "step_ms_p99", "gemm_tflops", "bus_gb_s"];
    assert!(figures.iter().all(|figure| kept["ranks"][1][figure].is_number()), "{kept:#}");
    // A truncated file is skipped.
    fs::write(folder.join("train-2-9999999999-sim.json"), "{\"job\": \"tra").expect("a file");

    // Otherwise a rank 1 that starts before rank 0 would read the unique id of the first run.
    fs::remove_file(host.place.path("unique_id")).expect("the unique id of the first run");
    let _ranks = trains(&host, "0.06");
    let past_run = |line: &str| {
        let outcome = host.ask(&format!("status --json --now --baseline {line}"));
        let document: Value = serde_json::from_str(&outcome.stdout).expect("a document");
        let found = document["findings"].as_array()?.iter().find(|it| it["class"] == "past_run")?.clone();
        Some((outcome.status.code(), found))
    };
    (1..=4).for_each(|part| done(&host, part * 100..4000));
    let (code, found) = until("it to be held against the run before", || past_run("last"));
    let evidence = found["evidence"].as_str().expect("a sentence");
    assert_eq!(code, Some(1), "{found:#}");
    assert!(evidence.contains("from the first step"), "{evidence}");
    assert!(found["cost_pct"].as_f64().is_some_and(|cost| (20.0..90.0).contains(&cost)), "{found:#}");
    assert!(past_run(&file.display().to_string()).is_some(), "named by its file");
    let plain: Value = host.status();
    assert!(plain["findings"].as_array().expect("a list").iter().all(|it| it["class"] != "past_run"));
}
