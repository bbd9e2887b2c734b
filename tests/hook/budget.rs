//! The hook's share of a program's time stays within its budget.

use xpu_tests::program::until;
use xpu_wire::{frame::Summary, sampling::Rate};

use crate::Job;

/// Runs up to 2,500 GEMMs a second until the input ends. Each input line sets a new budget.
const BUSY: &str = "
import threading
busy = True
def listen():
    global busy
    for line in sys.stdin: ok(process.xpu_top_set_budget(ctypes.c_double(float(line))))
    busy = False
listener = threading.Thread(target=listen)
listener.start()
while busy:
    for _ in range(25): ok(gemm_ex(256, 256, 256))
    time.sleep(0.01)
listener.join()";

impl Job {
    /// Waits for a summary, from number `from` on, that satisfies `check`. Returns all summaries up to it.
    #[track_caller]
    fn says(&self, what: &str, from: usize, check: impl Fn(&Summary) -> bool) -> Vec<Summary> {
        until(what, || {
            let said = self.listener.sender(self.ranks[0].pid())?.summaries;
            let at = from + said.get(from..)?.iter().position(&check)?;
            Some(said[..=at].to_vec())
        })
    }
}

fn timed(summary: &Summary) -> u64 {
    summary.gemms.iter().map(|gemm| gemm.timed).sum()
}

#[test]
fn the_timed_share_follows_the_budget() {
    let mut job = Job::of(1, &[("XPU_TOP_BUDGET", "1")], BUSY);
    let said = job.says("GEMMs timed more often", 0, |summary| {
        summary.hook.gemm_rate < Rate(4) && summary.hook.event_cost.0 > 0
    });
    assert_eq!(said.last().unwrap().hook.budget_ppm, Some(10_000));

    job.ranks[0].write_line("0.02");
    let is_settled =
        |summary: &Summary| summary.hook.budget_ppm == Some(200) && summary.hook.gemm_rate > Rate(4);
    let settled = job.says("GEMMs timed more seldom", said.len(), is_settled).len();
    // The change of the budget takes effect within one summary.
    let said = job.says("six summaries", settled + 6, |_| true);
    let (first, rest) = said[settled + 1..].split_first().unwrap();
    let spent = rest.last().unwrap().hook.spent.0 - first.hook.spent.0;
    let passed: u64 = rest.iter().map(|summary| summary.interval.0).sum();
    let share = spent as f64 / passed as f64;
    assert!(share > 0.0 && share <= 200e-6, "{share} of wall time");

    job.ranks[0].write_line("-1");
    let off = job.says("no bound", said.len(), |summary| summary.hook.budget_ppm.is_none());
    assert_eq!(off.last().unwrap().hook.gemm_rate, Rate::EVERY);

    job.ranks[0].write_line("0");
    let never = job.says("nothing timed", off.len(), |summary| summary.hook.gemm_rate == Rate::NEVER);
    let quiet = job.says("a summary later", never.len() + 1, |_| true);
    let [before, after] = [&quiet[never.len()], quiet.last().unwrap()].map(timed);
    assert!(before == after && before > 0);
    job.end();
}

#[test]
fn an_invalid_budget_is_reported() {
    let script = "
ok(gemm_ex(512, 512, 512))
sync()
step(1)
hold()";
    let job = Job::of(1, &[("XPU_TOP_BUDGET", "little"), ("XPU_TOP_SAMPLE", "gemm=3")], script);
    let health = job.after_step(0, 1).summaries.last().unwrap().hook.clone();
    assert_eq!(health.budget_ppm, Some(1_000));
    assert_eq!(health.blind.len(), 2);
    assert!(health.blind[0].starts_with("XPU_TOP_BUDGET: 'little'"), "{:?}", health.blind);
    job.end();
}
