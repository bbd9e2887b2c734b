//! `xpu-top stacks` on a real collector and real Python processes under the hook, on the simulated GPU.

use std::{fs, process::id};

use serde_json::Value;
use xpu_tests::{
    host::{BASE, Host},
    program::{Program, run, until},
};

const WORLD: usize = 3;

/// All ranks reduce together for a while. Then rank 1 is held, and the others wait for it in the last
/// collective.
const HOLDS: &str = "
import threading
comm = communicator()
def load(): threading.Event().wait()
threading.Thread(target=load, name=f'loader-{RANK}', daemon=True).start()
def hold_back():
    Path(os.environ['RENDEZVOUS'], 'held').write_text('')
    hold()
def train():
    for step in range(12):
        if (RANK, step) != (1, 11):
            ok(all_reduce(comm, 1000))
            sync()
        else:
            hold_back()
            ok(all_reduce(comm, 1000))
            sync()
train()";

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    /// Starts the job, and waits until two ranks are in the collective that rank 1 has not entered.
    fn held() -> Self {
        let new = Self::unseen();
        until("two ranks in the collective", || {
            let text = new.host.ask("stacks").stdout;
            (text.matches("in cudaStreamSynchronize").count() == 1 && text.contains("ranks 0,2; not 1"))
                .then_some(())
        });
        new
    }

    /// Starts the same job, without any request to the collector.
    fn unseen() -> Self {
        let host = Host::new();
        let ranks = (0..WORLD).map(|rank| host.rank_of(rank, WORLD, HOLDS)).collect();
        host.wait_for_file("held");
        Self { host, ranks }
    }
}

#[test]
fn a_blocked_rank_is_separate_from_those_that_wait_for_it() {
    let job = Job::held();
    let outcome = job.host.ask("stacks");
    assert_eq!((outcome.status.code(), outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let text = outcome.stdout;
    assert!(text.starts_with("main thread: ranks 0-2\n  <module> (<string>:"), "{text}");
    let [train, alone, together] =
        ["  train (<string>:", "├─ rank 1; not 0,2", "└─ ranks 0,2; not 1"].map(|line| text.find(line));
    // The stacks differ from `train` on, where rank 1 is at another line.
    assert!(alone.is_some() && alone < together, "the fewest come first: {text}");
    assert!(train.is_some(), "{text}");
    let [held, waits] = ["hold_back (<string>:", "in cudaStreamSynchronize"].map(|line| text.find(line));
    assert!(alone < held && held < together && together < waits, "{text}");
    assert!(text.contains("thread loader-*: ranks 0-2\n"), "threads of one role are together: {text}");

    let only = job.host.ask("stacks --rank 1 --rank 2").stdout;
    assert!(only.starts_with("main thread: ranks 1-2\n"), "{only}");

    let document: Value = serde_json::from_str(&job.host.ask("stacks --json").stdout).expect("a document");
    assert_eq!((&document["job"], &document["tree"]["ranks"]), (&"train".into(), &"0-2".into()));
    let rank = &document["ranks"][1];
    assert_eq!(
        (&rank["rank"], &rank["host"], &rank["reading"]),
        (&1.into(), &"sim".into(), &"running".into())
    );

    // The reading did no harm: once rank 1 is released, all ranks train to the end.
    let mut ranks = job.ranks;
    assert!(ranks.remove(1).end().status.success());
    for rank in ranks {
        assert!(rank.end().status.success());
    }
}

/// Nobody watches during the hang. A later viewer still sees where the ranks were.
#[test]
fn stacks_of_a_hung_job_are_read_automatically_and_kept_after_its_end() {
    let mut job = Job::unseen();
    until("the collector to read all ranks", || {
        (job.host.collector_log().matches("the stacks of rank").count() >= WORLD).then_some(())
    });
    for rank in &job.ranks {
        rank.signal("KILL");
    }
    job.ranks.clear();
    let status = until("their death to be seen", || {
        let status = job.host.status();
        let ranks = status["ranks"].as_array()?;
        ranks.iter().all(|rank| rank["state"] == "exited").then_some(status)
    });
    let folded = status["stacks"]["folded"].as_str().expect("stacks");
    assert!(folded.contains(";hold_back@"), "{folded}");
    assert!(folded.contains(";in cudaStreamSynchronize@0,2|1;"), "{folded}");
}

#[test]
fn files_are_written_in_both_forms() {
    let job = Job::held();
    let [svg, folded] = ["f.svg", "f.txt"].map(|name| job.host.place.path(name));
    let line = format!("stacks --svg {} --folded {}", svg.display(), folded.display());
    let outcome = job.host.ask(&line);
    assert_eq!((outcome.status.code(), outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
    let folded = fs::read_to_string(folded).expect("it was written");
    let held = folded.lines().find(|line| line.contains(";hold_back@")).expect("the held rank is there");
    assert!(held.starts_with("main thread@0-2|;<module>@<string>:"), "{held}");
    assert!(held.ends_with("|0,2 1") && held.contains("@1|0,2"), "{held}");
    let svg = fs::read_to_string(svg).expect("it was written");
    assert!(svg.contains("<svg") && svg.contains("[1] not [0,2]") && svg.contains("hold_back"), "{svg}");
}

#[test]
fn stopped_and_dead_ranks_are_reported() {
    let job = Job::held();
    job.ranks[0].signal("STOP");
    until("it to stop", || (job.ranks[0].state() == Some('T')).then_some(()));
    let stopped = job.host.ask("stacks");
    assert_eq!(stopped.status.code(), Some(0));
    let text = stopped.stdout;
    assert!(
        text.starts_with("process: rank 0; not 1-2\n  stopped by a signal\nmain thread: ranks 0-2\n"),
        "{text}"
    );

    job.ranks[2].signal("KILL");
    let dead = until("its end to be seen", || {
        let outcome = job.host.ask("stacks");
        outcome.stderr.contains("is gone").then_some(outcome)
    });
    assert_eq!(dead.status.code(), Some(0));
    assert!(dead.stderr.contains(&format!("rank 2: its process {} is gone", job.ranks[2].pid())), "{dead:?}");
    assert!(dead.stdout.contains("main thread: ranks 0-1; not 2\n"), "{dead:?}");
}

#[test]
fn an_unreachable_rank_is_reported_and_the_others_are_shown() {
    let job = Job::held();
    let host = &job.host;
    let mut command = host.xpu_top("stacks --key-file");
    let [_, _, high, low] = id().to_be_bytes();
    let nobody = format!("127.91.{high}.{}", low.max(1));
    command.arg(host.key()).args(["--hosts", &format!("{}:{BASE},{nobody}:{BASE}", host.address)]);
    let some = run(&mut command);
    assert_eq!(some.status.code(), Some(0), "{some:?}");
    assert!(some.stderr.contains(&nobody) && some.stderr.contains("its ranks are not shown"), "{some:?}");
    assert!(some.stdout.starts_with("main thread: ranks 0-2\n"), "{some:?}");

    let unknown = host.ask("stacks --rank 1 --rank 7 --wait 2");
    assert_eq!(unknown.status.code(), Some(0), "{unknown:?}");
    assert!(unknown.stderr.contains("rank 7: no answer"), "{unknown:?}");
    assert!(unknown.stdout.starts_with("main thread: rank 1; not 7\n"), "{unknown:?}");
}

#[test]
fn empty_results_and_usage_errors_have_their_own_exit_codes() {
    let host = Host::new();
    let nobody = host.ask("stacks --job gone");
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
    assert!(nobody.stderr.contains("job gone has no rank on these hosts"), "{nobody:?}");
    let stranger = run(host.xpu_top("stacks --hosts").arg(format!("{}:{BASE}", host.address)));
    assert_eq!(stranger.status.code(), Some(3), "{stranger:?}");
    for line in ["stacks --rank first", "stacks --json --text", "stacks --job a/b", "stacks --svg"] {
        assert_eq!(run(&mut host.xpu_top(line)).status.code(), Some(64), "{line}");
    }
}

/// As a new user writes it.
#[test]
fn a_folder_without_the_option_is_refused_with_the_option() {
    let host = Host::new();
    let folder = host.place.path("");
    let refused = host.ask(&format!("stacks {}", folder.display()));
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    let hint = format!("write --replay {}", folder.display());
    assert!(refused.stderr.contains(&hint), "{refused:?}");
    let unknown = host.ask("stacks no-such-folder");
    assert!(unknown.status.code() == Some(64) && !unknown.stderr.contains("--replay"), "{unknown:?}");
}
