//! The hosts of a simulated job. Simulated hooks send messages, and a real roster per host turns them into
//! frames. Each host reports once a second.

use std::time::Instant;

use xpu_collector::Offline;
use xpu_net::recall::{self, Recall};
use xpu_wire::{
    frame::{Body, DeviceReading, Frame, GpuProcess, RankCpu},
    id::{Pid, Rank},
    ledger::Call,
    unit::Nanoseconds,
};

use crate::{
    chance::Chance,
    device,
    fault::{Fault, Stall},
    flow::Flow,
    hook::{Hook, uuid},
    moment,
    scenario::Setting,
};

/// How often a collector checks its processes, per second.
const CHECKS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Collectors<'a> {
    setting: &'a Setting,
    flow: Flow<'a>,
    chance: Chance,
    hooks: Vec<Hook>,
    /// Whether each rank has introduced itself, and whether it has said goodbye.
    came: Vec<bool>,
    left: Vec<bool>,
    hosts: Vec<Offline>,
    second: u64,
}

impl<'a> Collectors<'a> {
    pub(crate) fn new(setting: &'a Setting) -> Self {
        let hosts = setting.ranks.div_ceil(8);
        let ranks = setting.ranks as usize;
        Self {
            setting,
            flow: Flow::new(setting),
            chance: Chance(setting.seed).of(2),
            hooks: (0..setting.ranks).map(|rank| Hook::new(setting, rank)).collect(),
            came: vec![false; ranks],
            left: vec![false; ranks],
            hosts: (0..hosts)
                .map(|host| Offline::new(format!("gpu-{host:03}").into(), moment(0.0)))
                .collect(),
            second: 0,
        }
    }

    /// The frames of the next second, and the time when the last of them was sent.
    pub(crate) fn second(&mut self) -> (Vec<Frame>, f64) {
        self.second += 1;
        let end = self.second as f64 + 1.0;
        while self.flow.known_until() < end + 0.5 {
            self.flow.step();
        }
        let frames = (0..self.setting.ranks.div_ceil(8)).flat_map(|host| self.host(host)).collect();
        (frames, end)
    }

    /// When the fault begins. A stall begins with the step that stalls.
    pub(crate) fn trouble_at(&self) -> f64 {
        self.flow.stalled.unwrap_or(self.setting.from)
    }

    /// The frames that a new viewer folds: the merged history of all hosts, then their state. It asks for as much
    /// as one of `asked` hosts.
    pub(crate) fn for_new_viewer(&mut self, at: f64, asked: Option<usize>) -> Vec<Frame> {
        let (digests, now) = (recall::digests(asked.unwrap_or(self.hosts.len())), Instant::now());
        let mut recall = Recall::begin(now);
        for frame in self.hosts.iter_mut().flat_map(|host| host.for_new_viewer(digests, moment(at))) {
            recall.take(Vec::new(), frame, now);
        }
        recall.frames().map(|(_, frame)| frame).collect()
    }

    fn host(&mut self, host: u32) -> Vec<Frame> {
        let chance = self.chance.of(u64::from(host));
        let at = self.second as f64 + chance.share(0) + 0.004 * chance.normal(self.second);
        let mut frames = Vec::new();
        for rank in host * 8..((host + 1) * 8).min(self.setting.ranks) {
            if at > self.comes(rank) {
                frames.extend(self.say(rank, at));
            }
        }
        let collector = &mut self.hosts[host as usize];
        for check in (0..CHECKS).rev() {
            frames.extend(collector.check(moment(at - f64::from(check) / f64::from(CHECKS))));
        }
        let (setting, chance) = (self.setting, self.chance);
        let device = |found| -> Option<DeviceReading> {
            let rank = (0..setting.ranks).find(|&rank| uuid(rank) == found)?;
            Some(device::reading(setting, chance, rank, at))
        };
        let cpu = |rank: Rank, pid: Pid| -> Option<RankCpu> { stopped(setting, rank, pid, at) };
        let processes = |found| -> Vec<GpuProcess> {
            let rank = (0..setting.ranks).find(|&rank| uuid(rank) == found);
            rank.map_or_else(Vec::new, |rank| device::neighbours(setting, rank, at))
        };
        frames.extend(collector.digest(moment(at), device, cpu, processes));
        let lost = self.chance.of(u64::from(host)).share(self.second | 1 << 32) < self.setting.noise.lost;
        frames.retain(|frame| !lost || !matches!(frame.body, Body::Digest(_)));
        frames
    }

    /// When a rank's process starts.
    fn comes(&self, rank: u32) -> f64 {
        match self.setting.fault {
            Fault::LateStart { rank: late, seconds } if late == rank => seconds,
            _ => 0.0,
        }
    }

    /// A rank's hook summary of the second before `at`, and its ledger at `at`.
    fn say(&mut self, rank: u32, at: f64) -> Vec<Frame> {
        let phase = self.chance.share(u64::from(rank) | 1 << 50);
        // The hook makes a summary once a second, at its own time. The ledger is read when the digest is
        // made.
        let late = 0.002 * self.chance.share(u64::from(rank) << 20 | self.second);
        let summed = ((at - phase).floor() + phase + late).min(at);
        let stalled = self.stalls(rank, at);
        let frozen = match stalled {
            Some((Stall::Stops | Stall::Dies, since)) => since,
            Some((Stall::Ends, since)) => since + 0.5,
            _ => f64::INFINITY,
        };
        let index = rank as usize;
        let (setting, host) = (self.setting, (rank / 8) as usize);
        let mut frames = Vec::new();
        let mut send = |hosts: &mut Vec<Offline>, hook: &mut Hook, body, when: f64| {
            let frame = Frame { host: "".into(), number: hook.next(), now: moment(when), lost: 0, body };
            frames.extend(hosts[host].take(rank, frame, moment(when)));
        };
        let hook = &mut self.hooks[index];
        if !self.came[index] {
            self.came[index] = true;
            let info = hook.info(setting);
            send(&mut self.hosts, hook, Body::Hello(info), summed.min(at));
        }
        if summed <= frozen && summed > 0.0 {
            hook.take(setting, &mut self.flow.events[index], summed, summed);
            let summary = hook.summary(setting, summed);
            send(&mut self.hosts, hook, Body::Summary(summary), summed);
        } else if matches!(stalled, Some((Stall::Ends, _))) && !self.left[index] {
            self.left[index] = true;
            hook.take(setting, &mut self.flow.events[index], frozen, frozen);
            let summary = hook.summary(setting, frozen);
            send(&mut self.hosts, hook, Body::Summary(summary), frozen);
            send(&mut self.hosts, hook, Body::Goodbye, frozen);
        }
        if matches!(stalled, Some((Stall::Dies, _))) {
            hook.die();
        }
        hook.take(setting, &mut self.flow.events[index], at.min(frozen), summed.min(frozen));
        let is_there = !matches!(stalled, Some((Stall::Dies | Stall::Ends, _)));
        let inside = if is_there { self.inside(rank, at.min(frozen), stalled) } else { None };
        self.hooks[index].be_inside(inside);
        frames
    }

    /// How this rank stalls, and since when.
    fn stalls(&self, rank: u32, at: f64) -> Option<(Stall, f64)> {
        let Fault::Stall { rank: who, how } = self.setting.fault else { return None };
        let since = self.flow.stalled.filter(|since| *since < at)?;
        (who == rank).then_some((how, since))
    }

    /// The call of its main thread, and since when: mostly it waits for the step that it has launched.
    fn inside(&self, rank: u32, at: f64, stalled: Option<(Stall, f64)>) -> Option<(Call, f64)> {
        let within = |call, since: f64| Some((call, since.min(at)));
        if at < 3.0 {
            return None;
        }
        if let Fault::LateStart { rank: late, seconds } = self.setting.fault
            && at < seconds + 2.0
        {
            return if rank == late { None } else { within(Call::CommunicatorInit, 3.0) };
        }
        match stalled {
            Some((Stall::OnCpu | Stall::Init | Stall::Finalize | Stall::Ends, _)) => return None,
            Some((Stall::InCall, since)) => return within(Call::GroupEnd, since),
            Some((_, since)) => return within(Call::StreamSynchronize, since),
            None => {}
        }
        if let Fault::Stall { how, .. } = self.setting.fault
            && let Some(since) = self.flow.stalled.filter(|since| *since < at)
        {
            match how {
                Stall::Init => return within(Call::CommunicatorInit, since),
                Stall::Finalize => return within(Call::CommunicatorEnd, since),
                _ => {}
            }
        }
        let begun = self.flow.begun(rank as usize, at);
        let pausing = self.setting.fault.lost(rank, (1, self.setting.step), -1.0, 0.0) > 0.0;
        let launched = begun + 0.1 * self.setting.step;
        if at < launched || self.flow.is_gone(rank as usize) || (pausing && at - begun < 0.5) {
            return None;
        }
        within(Call::StreamSynchronize, launched)
    }
}

/// What the kernel reports of a process that is repeatedly stopped.
fn stopped(setting: &Setting, rank: Rank, pid: Pid, at: f64) -> Option<RankCpu> {
    let share = setting.fault.stopped(rank.0).filter(|_| setting.has_fault_at(at))?;
    Some(RankCpu {
        rank,
        pid,
        interval: Nanoseconds(1_000_000_000),
        waited: Nanoseconds(0),
        thread: String::new(),
        throttled: None,
        stopped: Chance(setting.seed).of(4).share(at as u64) < share,
    })
}
