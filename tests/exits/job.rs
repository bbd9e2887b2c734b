//! A job with one rank that ends as a script says, and the report of its end.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    process::ExitStatus,
};

use serde_json::Value;
use xpu_tests::{
    host::Host,
    program::{Outcome, Program, until},
};

/// Trains one step, and continues on request.
pub(super) const BEGIN: &str = "
def inner(how): how()
def outer(how): inner(how)
ok(gemm_ex(256, 256, 256))
sync()
step()
next_line()
";

/// A plugin that logs its called functions and their arguments.
pub(super) const PLUGIN: &str = r#"
import json, os, traceback

def note(what, **reported):
    with open(os.path.join(os.path.dirname(__file__), "told"), "a") as file:
        file.write(json.dumps({"what": what, **reported}) + "\n")
    print("the plugin was here")

def xpu_top_exit(report):
    note("exit", rank=report["rank"], host=report["host"], exit=report["exit"])

def xpu_timer_parse_python_exception(exc_type, exc_value, exc_traceback, infos):
    frames = [[frame.name, frame.lineno] for frame in traceback.extract_tb(exc_traceback)]
    note("python", kind=exc_type.__name__, value=str(exc_value), frames=frames, infos=infos)

def xpu_timer_parse_cpp_exception(stack_infos):
    note("cpp", infos=stack_infos)
"#;

pub(super) struct Job {
    pub(super) host: Host,
    pub(super) rank: Program,
}

impl Job {
    /// A job with one rank that, on request, ends as the script says.
    pub(super) fn new(set: &[(&str, &str)], script: &str) -> Self {
        let host = Host::new();
        let plugin = host.place.path("plugin.py");
        fs::write(&plugin, PLUGIN).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o600)).unwrap();
        let all = [&[("XPU_TOP_EXIT_PLUGIN", plugin.to_str().unwrap())], set].concat();
        let rank = host.alone_under("python3", &all, &format!("{BEGIN}{script}"));
        let job = Self { host, rank };
        until("it to train", || (job.host.status()["steps"]["min"].as_u64()? >= 1).then_some(()));
        job
    }

    pub(super) fn ends(mut self) -> (Ended, Host) {
        self.rank.write_line("go");
        let outcome = self.rank.end();
        (Ended::seen(&self.host, outcome), self.host)
    }
}

/// The report of an end.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) finding: Value,
    pub(super) exit: Value,
    pub(super) reported: Vec<Value>,
}

impl Ended {
    pub(super) fn seen(host: &Host, outcome: Outcome) -> Self {
        let log = "exit plugin";
        until("the plugin to be done", || host.collector_log().contains(log).then_some(()));
        until("its last word", || host.collector_log().contains("plugin.py: done").then_some(()));
        // The first report of an end may lack details.
        let status = until("the report of the end", || {
            let status = host.status();
            let reported =
                status["findings"][0]["kind"].is_string() && status["ranks"][0]["exit"].is_object();
            reported.then_some(status)
        });
        let lines = fs::read_to_string(host.place.path("told")).unwrap_or_default();
        let reported = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (finding, exit) = (status["findings"][0].clone(), status["ranks"][0]["exit"].clone());
        Self { outcome, finding, exit, reported }
    }

    pub(super) fn evidence(&self) -> &str {
        self.finding["evidence"].as_str().unwrap()
    }

    pub(super) fn functions(&self) -> Vec<&str> {
        self.exit["frames"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|frame| frame["function"].as_str())
            .collect()
    }

    /// How often each function of the plugin was called.
    #[track_caller]
    pub(super) fn plugin_was_called_with(&self, what: &[&str]) {
        let called: Vec<_> =
            self.reported.iter().map(|reported| reported["what"].as_str().unwrap()).collect();
        assert_eq!(called, what);
        assert_eq!(self.reported[0]["rank"], 0);
    }
}

pub(super) fn died_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}
