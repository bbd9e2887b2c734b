//! Switching hooks from outside: `xpu-top ctl` on a real collector and real hooks on the simulated GPU.

use std::fs;

use serde_json::Value;
use xpu_tests::{
    host::{BASE, Host},
    program::{Program, run, until},
};
use xpu_wire::{id::Pid, ledger::LedgerPage};

const TRAINS: &str = "
comm, done = communicator(), 0
def work():
    global done
    ok(gemm_ex(512, 512, 512))
    ok(all_reduce(comm, 1000 + done))
    step()
    done += 1
    time.sleep(0.002)
def until(on):
    while bool(process.xpu_top_enabled()) != on: work()
def report(what, text=''):
    unfinished = Path(os.environ['RENDEZVOUS']) / f'{what}-{RANK}.new'
    unfinished.write_text(text)
    unfinished.rename(unfinished.with_suffix(''))
until(False)
before = counter('gemms')
for _ in range(20): work()
assert counter('gemms') == before > 0, (counter('gemms'), before)
report('quiet')
until(True)
for _ in range(20): work()
assert before + 20 <= counter('gemms') < done, (before, counter('gemms'), done)
report('done', str(done))
total = int(next_line())
while done < total: work()
sync()
report('numbered', str(counter('steps')))
hold()";

#[test]
fn a_job_is_switched_off_and_on_while_it_runs() {
    let host = Host::new();
    let mut ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
    until("both ranks to be seen", || (host.status()["coverage"]["ranks_seen"] == 2).then_some(()));
    assert_eq!(host.status()["coverage"]["ranks_off"], 0);

    let off = host.ask("ctl --hook off --job train --wait 25");
    assert_eq!((off.status.code(), off.stderr.as_str()), (Some(0), ""), "{off:?}");
    assert_eq!(off.stdout, "sim: 2 of 2 ranks off\ntrain: hook off on 2 of 2 ranks\n");
    let status = host.status();
    assert_eq!(status["coverage"]["ranks_off"], 2);
    assert_eq!(status["ranks"][1]["enabled"], false);
    assert!(host.ask("status --now").stdout.contains("2 hooks are off"), "it is said, and what to do");
    (0..2).for_each(|rank| drop(host.wait_for_file(&format!("quiet-{rank}"))));

    let on = host.ask("ctl --hook on --wait 25");
    assert_eq!(on.status.code(), Some(0), "{on:?}");
    assert_eq!(host.status()["coverage"]["ranks_off"], 0);

    let done =
        [0, 1].map(|rank| host.wait_for_file(&format!("done-{rank}")).parse::<u64>().expect("a number"));
    let total = done[0].max(done[1]) + 5;
    for rank in &mut ranks {
        rank.write_line(&total.to_string());
    }
    for (rank, program) in ranks.iter().enumerate() {
        let steps = host.wait_for_file(&format!("numbered-{rank}"));
        assert_eq!(steps, total.to_string(), "steps made while the hook was off keep their numbers");
        let entered = ledger(program).ledger().read().communicators[0].entered;
        assert_eq!(entered, total, "all ranks number collectives alike, whenever each was off");
    }
    for rank in ranks {
        let outcome = rank.end();
        assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

#[test]
fn figures_and_source_of_a_step_are_in_the_document() {
    let host = Host::new();
    let script = "
while not Path(os.environ['RENDEZVOUS'], 'enough').exists():
    ok(gemm_ex(512, 512, 512))
    sync()
    step_with(1000, 2, 1.25)
    time.sleep(0.01)";
    let rank = host.rank(0, script);
    let known = until("tokens a second", || {
        let status = host.status();
        let is_timed = status["steps"]["timed_by"] == "gpu";
        (is_timed && status["tokens_per_s"].as_f64()? > 0.0 && status["mfu"].as_f64()? > 0.0)
            .then_some(status)
    });
    let rates = [&known["tokens_per_s"], &known["samples_per_s"]].map(|rate| rate.as_f64().expect("a rate"));
    assert!((rates[0] / rates[1] - 500.0).abs() < 1e-6, "{rates:?}");
    assert_eq!((known["loss"].as_f64(), known["steps"]["source"].as_str()), (Some(1.25), Some("marked")));
    let [mean, p50, p99] =
        ["mean_ms", "p50_ms", "p99_ms"].map(|key| known["steps"][key].as_f64().expect("a time"));
    assert!(p50 <= p99 && p50 > 9.0 && mean > 9.0, "each waits for ten: {}", known["steps"]);
    // A GEMM takes half a microsecond at peak, and runs at most once in ten milliseconds.
    assert!(known["mfu"].as_f64() < Some(0.54e-6 / 10e-3 * 1.5), "{}", known["mfu"]);
    let detail: Value = serde_json::from_str(&host.ask("status --json --rank 0").stdout).expect("a document");
    assert!(detail["ranks"][0]["activity"]["memory"]["held_bytes"].is_u64(), "{detail}");
    fs::write(host.place.path("enough"), "").expect("the place takes it");
    assert!(rank.end().status.success());
}

/// Finds the ledger of a process among its descriptors.
fn ledger(program: &Program) -> LedgerPage {
    let pid = Pid(program.pid());
    (0..1024)
        .find_map(|descriptor| LedgerPage::open(pid, descriptor).ok())
        .expect("a watched process has one")
}

#[test]
fn an_impossible_switch_is_refused_with_advice() {
    let host = Host::new();
    let nobody = host.ask("ctl --hook off --job train");
    assert_eq!(nobody.status.code(), Some(3));
    assert!(nobody.stderr.contains("job train has no rank on these hosts"), "{nobody:?}");

    let rank = host.rank(0, "ok(gemm_ex(512, 512, 512)); sync(); step(); hold()");
    until("the rank", || (host.status()["coverage"]["ranks_seen"] == 1).then_some(()));
    rank.signal("STOP");
    until("it to stop", || (rank.state() == Some('T')).then_some(()));
    let stopped = host.ask("ctl --hook off --job train --wait 1");
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    assert!(stopped.stdout.contains("sim: 0 of 1 ranks off\n  rank 0 did not switch: "), "{stopped:?}");
    rank.signal("CONT");
    until("it to follow after all", || (host.status()["coverage"]["ranks_off"] == 1).then_some(()));

    let endpoint = format!("{}:{BASE}", host.address);
    let stranger = run(host.xpu_top("ctl --hook on --hosts").arg(&endpoint));
    assert_eq!(stranger.status.code(), Some(3), "{stranger:?}");
    assert_eq!(host.status()["coverage"]["ranks_off"], 1, "without the key nothing is switched");
    for line in ["ctl", "ctl --hook maybe", "ctl --hook on --job a/b"] {
        assert_eq!(run(&mut host.xpu_top(line)).status.code(), Some(64), "{line}");
    }
}

#[test]
fn a_rank_that_lacks_cpu_time_is_reported() {
    let host = Host::new();
    let _rank = host.rank_of(
        0,
        1,
        "
import subprocess
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = f'import os\\nwhile os.getppid() == {os.getpid()}: pass'
others = [subprocess.Popen([sys.executable, '-S', '-c', busy], env={}) for _ in range(3)]
while True:
    ok(gemm_ex(256, 256, 256))
    sync()
    step()
    until = time.thread_time() + 0.01
    while time.thread_time() < until: pass
",
    );
    let waits = || host.status()["ranks"][0]["cpu_wait_pct"].as_f64().filter(|pct| *pct > 30.0);
    let pct = until("it to wait for its core", waits);
    assert!(pct <= 100.0, "{pct}");
}
