//! Simulates a process under the plan, and checks the spent time and the stability of the rates.

use super::*;

const BUDGET: f64 = 1e-3;
const PRICE: f64 = 5_000.0;
const SECOND: u64 = 1_000_000_000;
const VISIT: u64 = 10_000_000;

const GEMM: Subject = Subject::Class(Class::Gemm);
const GRAPH: Subject = Subject::Class(Class::Graph);
const ALL_RANKS: Subject = Subject::Communicator(0);

/// A process with a number of operations a second for each subject. An operation is timed if its number is
/// selected.
struct Load {
    plan: Plan,
    now: u64,
    done: Done,
    due: BTreeMap<Subject, f64>,
}

impl Load {
    fn new() -> Self {
        let done = Done { pairs: 0, counting: 0, waits: 0, chances: Vec::new() };
        Self { plan: Plan::new(0), now: 0, done, due: BTreeMap::new() }
    }

    fn rate(&self, subject: Subject) -> Rate {
        self.plan.claims.get(&subject).map_or(FIRST, |claim| claim.rate)
    }

    /// Runs the process, and returns the share of wall time that was spent. `wavering` is by how much the
    /// number of operations differs from the mean at each visit.
    fn run(&mut self, seconds: f64, loads: &[(Subject, f64)], counting: f64, wavering: f64) -> f64 {
        let (begun, until) = (self.now, self.now + (seconds * SECOND as f64) as u64);
        let before = self.spent();
        while self.now < until {
            self.now += VISIT;
            self.done.counting += (counting * VISIT as f64) as u64;
            for &(subject, per_second) in loads {
                self.launch(subject, per_second, wavering);
            }
            self.plan.look(self.now, BUDGET, PRICE, &self.done);
        }
        (self.spent() - before) / (self.now - begun) as f64
    }

    fn launch(&mut self, subject: Subject, per_second: f64, wavering: f64) {
        let rate = self.rate(subject);
        let noise = xpu_wire::sampling::priority(self.now) as f64 / u64::MAX as f64 * 2.0 - 1.0;
        let due = self.due.entry(subject).or_default();
        *due += per_second * VISIT as f64 / SECOND as f64 * (1.0 + wavering * noise);
        let chances = &mut self.done.chances;
        if !chances.iter().any(|chances| chances.subject == subject) {
            chances.push(Chances { subject, count: 0, fixed: None });
        }
        let chances = chances.iter_mut().find(|chances| chances.subject == subject).unwrap();
        while *due >= 1.0 {
            *due -= 1.0;
            self.done.pairs += u64::from(rate.times(chances.count));
            chances.count += 1;
        }
    }

    fn spent(&self) -> f64 {
        self.done.pairs as f64 * PRICE + self.done.counting as f64
    }
}

/// 96 GEMMs and 24 collectives in a step of 26 ms.
const JOB: [(Subject, f64); 2] = [(GEMM, 96.0 / 0.026), (ALL_RANKS, 24.0 / 0.026)];

#[test]
fn a_training_job_is_sampled_within_the_budget() {
    let mut load = Load::new();
    load.run(3.0, &JOB, 0.0, 0.0);
    let share = load.run(60.0, &JOB, 0.0, 0.0);
    assert!(share <= BUDGET && share > BUDGET * 0.4, "{share}");
    assert!((4..=6).contains(&load.rate(GEMM).0) && (3..=5).contains(&load.rate(ALL_RANKS).0));
}

#[test]
fn counting_leaves_less_for_timing_but_never_nothing() {
    let mut load = Load::new();
    let share = load.run(60.0, &JOB, BUDGET * 0.5, 0.0);
    assert!(share <= BUDGET, "{share}");
    let before = load.rate(GEMM);
    load.run(60.0, &JOB, BUDGET * 2.0, 0.0);
    assert!(load.rate(GEMM) > before && load.rate(GEMM) < Rate(10));
}

#[test]
fn a_tenfold_jump_is_answered_within_two_seconds() {
    let mut load = Load::new();
    load.run(30.0, &JOB, 0.0, 0.0);
    let more = JOB.map(|(subject, per_second)| (subject, per_second * 10.0));
    load.run(2.0, &more, 0.0, 0.0);
    let share = load.run(20.0, &more, 0.0, 0.0);
    assert!(share <= BUDGET, "{share}");
}

/// A process that was idle and timed everything stays within the budget when load follows.
#[test]
fn a_burst_after_silence_is_noticed_at_once() {
    let mut load = Load::new();
    load.run(30.0, &[(GEMM, 1.0)], 0.0, 0.0);
    assert_eq!(load.rate(GEMM), Rate::EVERY);
    let share = load.run(1.0, &[(GEMM, 20_000.0)], 0.0, 0.0);
    assert!(share < 4.0 * BUDGET, "{share}");
}

#[test]
fn a_busy_minute_is_forgotten_in_the_next() {
    let mut load = Load::new();
    load.run(60.0, &[(GEMM, 20_000.0)], 0.0, 0.0);
    load.run(60.0, &[(GEMM, 4.0)], 0.0, 0.0);
    assert_eq!(load.rate(GEMM), Rate::EVERY);
}

#[test]
fn rare_calls_are_always_timed_and_frequent_ones_share_the_rest() {
    let mut load = Load::new();
    let loads = [(GRAPH, 4.0), (GEMM, 5_000.0), (ALL_RANKS, 5_000.0)];
    load.run(5.0, &loads, 0.0, 0.0);
    assert_eq!(load.rate(GRAPH), Rate::EVERY);
    assert_eq!(load.rate(GEMM), load.rate(ALL_RANKS));
    let share = load.run(60.0, &loads, 0.0, 0.0);
    assert!(share <= BUDGET && share > BUDGET * 0.4, "{share}");
}

#[test]
fn fluctuating_counts_do_not_make_rates_fluctuate() {
    for per_second in (0..40).map(|n| 1_000.0 * 1.05_f64.powi(n)) {
        let mut load = Load::new();
        load.run(10.0, &[(GEMM, per_second)], 0.0, 1.0);
        let mut changes = 0;
        for _ in 0..120 {
            let before = load.rate(GEMM);
            load.run(0.5, &[(GEMM, per_second)], 0.0, 1.0);
            changes += u32::from(load.rate(GEMM) != before);
        }
        assert!(changes <= 2, "{per_second}: {changes} changes in a minute");
    }
}

#[test]
fn fixed_rates_stay_and_count_against_the_budget() {
    let mut load = Load::new();
    load.run(5.0, &JOB, 0.0, 0.0);
    let before = load.rate(ALL_RANKS);
    for chances in load.done.chances.iter_mut().filter(|chances| chances.subject == GEMM) {
        chances.fixed = Some(Rate(0));
    }
    load.run(5.0, &JOB, 0.0, 0.0);
    assert!(load.rate(ALL_RANKS) > before);
}

#[test]
fn shapes_get_a_fifth_of_the_budget() {
    let mut load = Load::new();
    let mut allowed = 0;
    for _ in 0..600 {
        load.run(0.1, &JOB, 0.0, 0.0);
        allowed += load.plan.allowance().0;
    }
    assert!((allowed as f64 * PRICE / 60e9 / BUDGET - SHAPES).abs() < 0.01, "{allowed}");
}

#[test]
fn equal_shares_use_what_is_left() {
    assert_eq!(level(&mut [5.0, 1.0, 20.0], 11.0), 5.0);
    assert_eq!(level(&mut [1.0, 2.0], 4.0), f64::INFINITY);
    assert_eq!(level(&mut [], 4.0), f64::INFINITY);
}

/// A minute with a thousand waits a second, then a minute without waits.
#[test]
fn waits_are_timed_in_rounds_within_their_part_of_the_budget() {
    let mut load = Load::new();
    let mut timed = 0;
    for _ in 0..6_000 {
        load.now += VISIT;
        load.done.waits += 10;
        load.plan.look(load.now, BUDGET, PRICE, &load.done);
        let round = load.plan.round();
        assert!(round == 0 || round == ROUND);
        timed += round;
    }
    let share = timed as f64 * PRICE / load.now as f64;
    assert!(share > 0.7 * BUDGET * WAITS && share <= 1.1 * BUDGET * WAITS, "{share}");
    load.run(60.0, &[], 0.0, 0.0);
    assert_eq!(load.plan.round(), 0, "nobody waits");
}

#[test]
fn halving_agrees_with_the_c_library() {
    for n in 0..4_000 {
        let times = f64::from(n) * 0.01;
        let (ours, theirs) = (halved(times), 0.5_f64.powf(times));
        assert!((ours / theirs - 1.0).abs() < 1e-9, "{times}: {ours} {theirs}");
    }
    assert!(halved(5_000.0) < 1e-300);
}
