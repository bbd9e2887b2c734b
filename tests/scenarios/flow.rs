//! The timing of a simulated job: operation by operation, with dependencies, without frames.

use xpu_wire::collective::Operation;

use crate::{
    chance::Chance,
    fault::{Fault, Stall},
    program::{CommunicatorKind, Layout, Op},
    scenario::Setting,
};

/// What happened on a rank, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub at: f64,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Entered {
        kind: usize,
        operation: Operation,
        bytes: u64,
        launched: bool,
    },
    Done {
        kind: usize,
        number: u64,
        operation: Operation,
        bytes: u64,
        duration: f64,
    },
    Computed {
        seconds: f64,
    },
    /// The GPU's compute stream waited for communication.
    Exposed {
        seconds: f64,
    },
    Passed,
    Step {
        seconds: f64,
    },
    /// A wait for the GPU has ended.
    Waited {
        seconds: f64,
        /// Whether it was a wait for a copy.
        copies: bool,
    },
}

/// The operation that begins the backward pass in data parallel.
const BACKWARD: usize = 1;

/// The CPU time that launching one operation takes, in seconds.
const LAUNCH: f64 = 0.0003;

/// GB/s of an undisturbed transfer, the same on all ranks.
pub(crate) const BANDWIDTH: f64 = 180.0;

#[derive(Debug)]
pub(crate) struct Flow<'a> {
    setting: &'a Setting,
    ops: Vec<Op>,
    kinds: &'static [CommunicatorKind],
    chance: Chance,
    /// Per rank: until when its GPU computes and communicates, and when its current and its previous step
    /// began.
    at: Vec<f64>,
    beside: Vec<f64>,
    begun: Vec<f64>,
    before: Vec<f64>,
    /// Per rank: when its CPU began to call the step's operations.
    called: Vec<f64>,
    /// Per rank: when its CPU has called all operations, where this takes longer than the GPU needs.
    free: Vec<f64>,
    /// Per rank: whether it has stopped calling.
    gone: Vec<bool>,
    /// Per kind of communicator: the number of the next collective.
    numbers: Vec<u64>,
    pub(crate) events: Vec<Vec<Event>>,
    step: u64,
    /// The operation of a step at which the rank stalls.
    stall_at: usize,
    /// When the hang began, if there is one.
    pub(crate) stalled: Option<f64>,
    /// When each step ended on the last rank.
    pub(crate) ends: Vec<f64>,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(setting: &'a Setting) -> Self {
        let ranks = setting.ranks as usize;
        let ops = setting.layout.step();
        let chance = Chance(setting.seed).of(1);
        let start = if let Fault::LateStart { seconds, .. } = setting.fault { seconds + 2.0 } else { 3.0 };
        let kinds = setting.layout.kinds();
        let stall_at = stall_at(setting, &ops, chance);
        Self {
            setting,
            ops,
            kinds,
            chance,
            at: vec![start; ranks],
            beside: vec![start; ranks],
            begun: vec![start; ranks],
            before: vec![start; ranks],
            called: vec![start; ranks],
            free: vec![start; ranks],
            gone: vec![false; ranks],
            numbers: vec![0; kinds.len()],
            events: vec![Vec::new(); ranks],
            step: 0,
            stall_at,
            stalled: None,
            ends: Vec::new(),
        }
    }

    /// The time up to which all ranks are simulated.
    pub(crate) fn known_until(&self) -> f64 {
        self.at.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn ranks(&self) -> std::ops::Range<usize> {
        0..self.at.len()
    }

    fn push(&mut self, rank: usize, at: f64, what: What) {
        if at.is_finite() {
            self.events[rank].push(Event { at, what });
        }
    }

    /// The rank that stalls, and how, if it stalls in this step.
    fn stall(&self) -> Option<(usize, Stall)> {
        match self.setting.fault {
            Fault::Stall { rank, how } if self.begun[rank as usize] >= self.setting.from => {
                Some((rank as usize, how))
            }
            _ => None,
        }
    }

    pub(crate) fn step(&mut self) {
        let stall = self.stall();
        let chance = self.chance.of(self.step);
        for rank in self.ranks() {
            self.begin(rank, chance);
        }
        if let Some((rank, how @ (Stall::Init | Stall::Finalize))) = stall {
            return self.create_or_end_communicator(rank, how);
        }
        for index in 0..self.ops.len() {
            if index == BACKWARD {
                self.begin_backward();
            }
            self.await_host(index);
            let stall = stall.filter(|_| index == self.stall_at);
            if let Some((rank, _)) = stall {
                let at = self.at[rank].min(self.begun[rank] + self.setting.step);
                self.stalled.get_or_insert(at);
            }
            match self.ops[index] {
                Op::Compute(share) => {
                    for rank in self.ranks() {
                        self.compute(rank, share, chance.of(index as u64));
                    }
                }
                Op::Pass { forward, share } => self.pass(forward, share, chance.of(index as u64), stall),
                Op::Collective { .. } => self.collective(index, chance.of(index as u64), stall),
                Op::Join => {
                    for rank in self.ranks() {
                        let waited = self.beside[rank] - self.at[rank];
                        if waited > 0.0 {
                            self.at[rank] = self.beside[rank];
                            self.push(rank, self.at[rank], What::Exposed { seconds: waited });
                        }
                    }
                }
            }
        }
        for rank in self.ranks() {
            let (begun, end) = (self.begun[rank], self.at[rank]);
            if !self.setting.host_bound && self.is_last_of_burst() {
                self.push(
                    rank,
                    end,
                    What::Waited { seconds: 0.9 * (end - self.called[rank]), copies: false },
                );
            }
            self.push(rank, end, What::Step { seconds: end - begun });
        }
        self.ends.push(self.at.iter().copied().fold(0.0, f64::max));
        self.step += 1;
    }

    fn is_last_of_burst(&self) -> bool {
        (self.step + 1).is_multiple_of(self.setting.burst)
    }

    fn begin(&mut self, rank: usize, chance: Chance) {
        let setting = self.setting;
        let now = self.at[rank];
        let since = |at: f64| at - setting.from;
        let lost = if now < setting.to {
            let step = (self.step, setting.step);
            setting.fault.lost(rank as u32, step, since(self.begun[rank]), since(now))
        } else {
            0.0
        };
        let copied = setting.fault.copied(rank as u32, lost);
        if copied > 0.0 {
            self.push(rank, now + lost, What::Waited { seconds: copied, copies: true });
        }
        let warming = match self.step {
            0 if setting.warm_up => chance.between(rank as u64, 12.0, 24.0),
            1 | 2 if setting.warm_up => chance.between(rank as u64, 1.0, 5.0),
            _ => 0.0,
        };
        let mut piece = now + 0.4;
        while lost > 1.0 && piece < now + lost && matches!(setting.fault, Fault::Checkpoint { .. }) {
            self.push(rank, piece, What::Waited { seconds: 0.05, copies: false });
            piece += 0.5;
        }
        let jitter = setting.noise.host * setting.step * chance.normal(rank as u64 | 1 << 40).abs();
        (self.before[rank], self.begun[rank]) = (self.begun[rank], now);
        self.at[rank] = now + lost + warming + jitter;
        self.called[rank] = if self.step.is_multiple_of(setting.burst) {
            self.at[rank]
        } else {
            self.called[rank] + LAUNCH * self.ops.len() as f64
        };
        if setting.host_bound {
            self.call(rank, chance);
        }
    }

    /// The time that the host loses delays the GPU and later operations.
    fn begin_backward(&mut self) {
        for rank in self.ranks() {
            if self.setting.has_fault_at(self.at[rank]) {
                let lost = self.setting.fault.lost_in_backward(rank as u32, self.setting.step);
                self.at[rank] += lost;
                self.called[rank] += lost;
            }
        }
    }

    /// The CPU calls the operations of a step. Every tenth step it first waits for the GPU.
    fn call(&mut self, rank: usize, chance: Chance) {
        let waits =
            if self.step.is_multiple_of(10) { (self.at[rank] - self.free[rank]).max(0.0) } else { 0.0 };
        if self.step.is_multiple_of(10) {
            self.push(rank, self.free[rank] + waits, What::Waited { seconds: waits, copies: false });
        }
        self.called[rank] = self.free[rank] + waits;
        let own = 1.0 + 0.06 * (self.chance.share(rank as u64 | 1 << 43) - 0.5);
        let jitter = (1.0 + 0.1 * chance.normal(rank as u64 | 1 << 44)).max(0.5);
        self.free[rank] = self.called[rank] + self.setting.step * own * jitter;
    }

    /// No GPU begins work that its host has not launched.
    fn await_host(&mut self, index: usize) {
        if !self.setting.host_bound {
            return;
        }
        let part = index as f64 / self.ops.len() as f64;
        for rank in self.ranks() {
            let called = self.called[rank] + part * (self.free[rank] - self.called[rank]);
            self.at[rank] = self.at[rank].max(called);
        }
    }

    fn compute(&mut self, rank: usize, share: f64, chance: Chance) {
        let setting = self.setting;
        let now = setting.has_fault_at(self.at[rank]);
        let fault = &setting.fault;
        let (slowness, work) = if now {
            let uneven = fault.unevenness(rank as u32);
            let drawn = 1.0 + uneven * (2.0 * chance.share(rank as u64 | 1 << 45) - 1.0);
            let since = self.at[rank] - setting.from;
            (fault.slowness(rank as u32) * drawn, fault.work(rank as u32, since))
        } else {
            (1.0, 1.0)
        };
        let noise = 1.0 + setting.noise.compute * chance.normal(rank as u64);
        let load = self.load(rank, chance);
        let busy = if setting.host_bound { 0.3 } else { 0.85 };
        let seconds = share * setting.step * busy * noise * slowness * work * load;
        self.at[rank] += seconds;
        self.push(rank, self.at[rank], What::Computed { seconds });
    }

    /// The load of an expert: it differs a little between experts, and varies with the tokens of a step.
    fn load(&self, rank: usize, chance: Chance) -> f64 {
        if self.setting.layout != Layout::Experts {
            return 1.0;
        }
        let always = 0.04 * self.chance.normal(rank as u64 | 1 << 41);
        1.0 + always + 0.12 * chance.normal(rank as u64 | 1 << 42)
    }

    /// Passes a micro-batch from stage to stage.
    fn pass(&mut self, forward: bool, share: f64, chance: Chance, stall: Option<(usize, Stall)>) {
        let ranks = self.setting.ranks as usize;
        let stage = ranks / Layout::STAGES as usize;
        for n in 0..Layout::STAGES as usize {
            let at = if forward { n } else { Layout::STAGES as usize - 1 - n };
            for rank in at * stage..(at + 1) * stage {
                let from = if forward { rank.checked_sub(stage) } else { Some(rank + stage) };
                let unsent = stall.is_some_and(|(who, how)| how == Stall::Unsent && Some(who) == from);
                if let Some(from) = from.filter(|&from| from < ranks) {
                    let sent = if unsent { f64::INFINITY } else { self.at[from] + 0.0004 };
                    self.at[rank] = self.at[rank].max(sent);
                }
                if !self.gone[rank] {
                    let calls = 2 - usize::from(n == 0 || n + 1 == Layout::STAGES as usize);
                    let silent = stall.is_some_and(|(who, how)| how == Stall::Unsent && who == rank);
                    for _ in 0..calls - usize::from(silent) {
                        self.push(rank, self.called[rank] + LAUNCH, What::Passed);
                    }
                }
                self.compute(rank, share, chance);
            }
        }
    }

    fn collective(&mut self, index: usize, chance: Chance, stall: Option<(usize, Stall)>) {
        let Op::Collective { kind, operation, bytes, beside } = self.ops[index] else { return };
        let place = self.kinds.iter().position(|known| *known == kind).unwrap_or(0);
        let number = self.numbers[place];
        self.numbers[place] += 1;
        let ranks = self.setting.ranks;
        for rank in self.ranks() {
            self.enter(rank, index, place, (operation, bytes), stall);
        }
        let bytes_moved = operation.bus_factor(kind.size(ranks)) * bytes as f64;
        for group in 0..kind.count(ranks) {
            let members: Vec<usize> = (0..ranks)
                .filter(|&rank| kind.index(rank, ranks) == group)
                .map(|rank| rank as usize)
                .collect();
            let arrival = |flow: &Self, rank: usize| {
                if flow.gone[rank] {
                    f64::INFINITY
                } else {
                    flow.at[rank].max(if beside { flow.beside[rank] } else { 0.0 })
                }
            };
            let last = members.iter().map(|&rank| arrival(self, rank)).fold(0.0, f64::max);
            let broken = stall.filter(|&(who, how)| members.contains(&who) && how.breaks());
            let slow = if self.setting.has_fault_at(last) {
                self.setting.fault.congestion(members.iter().map(|&rank| rank as u32 / 8))
            } else {
                1.0
            };
            let noise = (self.setting.noise.network * chance.normal(u64::from(group))).exp();
            let transfer = bytes_moved / (BANDWIDTH * 1e9) * slow * noise + 20e-6;
            for &rank in &members {
                if broken == Some((rank, Stall::Order)) {
                    continue;
                }
                let only = broken.is_some_and(|(who, how)| how == Stall::Partial && who != rank);
                let end = if broken.is_some() && !only { f64::INFINITY } else { last + transfer };
                let came = arrival(self, rank);
                let end_here = end + 3e-6 * chance.share(rank as u64);
                if beside {
                    self.beside[rank] = end_here;
                } else {
                    self.at[rank] = end_here;
                    self.push(rank, end_here, What::Exposed { seconds: end_here - came });
                }
                if end_here.is_finite() {
                    let what = What::Done {
                        kind: place,
                        number,
                        operation,
                        bytes: bytes_moved as u64,
                        duration: end_here - came,
                    };
                    self.push(rank, end_here, what);
                }
            }
        }
    }

    /// A rank calls a collective, some time before its GPU reaches it.
    fn enter(
        &mut self,
        rank: usize,
        index: usize,
        kind: usize,
        (operation, bytes): (Operation, u64),
        stall: Option<(usize, Stall)>,
    ) {
        let how = stall.filter(|&(who, _)| who == rank).map(|(_, how)| how);
        if how.is_some_and(Stall::leaves) {
            self.gone[rank] = true;
        }
        let early = self.called[rank] + LAUNCH * index as f64;
        let at = if self.setting.ahead { early } else { self.at[rank] };
        if how == Some(Stall::Skip) {
            return self.go_on_without(rank, index, at);
        }
        if self.gone[rank] || (how == Some(Stall::Order)) {
            return;
        }
        let (operation, bytes) = match how {
            Some(Stall::Operation) => (Operation::Broadcast, bytes),
            Some(Stall::Bytes) => (operation, bytes / 2),
            _ => (operation, bytes),
        };
        let launched = how != Some(Stall::InCall);
        self.push(rank, at, What::Entered { kind, operation, bytes, launched });
        // A rank that does not return makes no more calls.
        if how == Some(Stall::InCall) {
            self.gone[rank] = true;
        }
    }

    /// The rank omits collective `left_out`, the last of a step, and calls those of the next step up to the
    /// same one.
    fn go_on_without(&mut self, rank: usize, left_out: usize, at: f64) {
        for index in 0..left_out {
            let Op::Collective { kind, operation, bytes, .. } = self.ops[index] else { continue };
            let place = self.kinds.iter().position(|known| *known == kind).unwrap_or(0);
            let what = What::Entered { kind: place, operation, bytes, launched: true };
            self.push(rank, at + LAUNCH * index as f64, what);
        }
    }

    /// All ranks but one create or end a communicator.
    fn create_or_end_communicator(&mut self, absent: usize, how: Stall) {
        let at = self.at.iter().copied().fold(0.0, f64::max);
        self.stalled.get_or_insert(at);
        debug_assert!(matches!(how, Stall::Init | Stall::Finalize) && absent < self.at.len());
        self.at.fill(f64::INFINITY);
    }

    pub(crate) fn is_gone(&self, rank: usize) -> bool {
        self.gone[rank]
    }

    /// When the step that the rank runs at `at` began.
    pub(crate) fn begun(&self, rank: usize, at: f64) -> f64 {
        if self.begun[rank] <= at { self.begun[rank] } else { self.before[rank] }
    }
}

/// The operation at which the rank stalls, chosen among those that can stall.
fn stall_at(setting: &Setting, ops: &[Op], chance: Chance) -> usize {
    let Fault::Stall { how, .. } = setting.fault else { return usize::MAX };
    let fits = |op: &Op| match how {
        Stall::Unsent => matches!(op, Op::Pass { forward: true, .. }),
        _ => matches!(op, Op::Collective { .. }),
    };
    let places: Vec<_> = (0..ops.len()).filter(|&at| fits(&ops[at])).collect();
    match how {
        // The last but one of a step: a collective of another communicator follows it.
        Stall::Order => places[places.len() - 2],
        // The last of a step: operations launched after it would hide the stall.
        Stall::Operation | Stall::Bytes | Stall::Skip => places[places.len() - 1],
        _ => chance.one_of(77, &places),
    }
}

impl Stall {
    /// Whether the rank makes no more calls.
    fn leaves(self) -> bool {
        matches!(self, Self::OnCpu | Self::OnGpu | Self::Ends | Self::Stops | Self::Dies)
    }

    /// Whether all ranks enter the collective, but it does not complete.
    fn breaks(self) -> bool {
        matches!(
            self,
            Self::Operation
                | Self::Bytes
                | Self::Skip
                | Self::Kernel
                | Self::Partial
                | Self::InCall
                | Self::Order
        )
    }
}
