//! A test lab: a simulated cluster, a clock that the test sets, and an app. The test presses keys and reads
//! screens.
//!
//! ```
//! # use xpu_tests::Lab;
//! # use xpu_simulation::Simulation;
//! let mut lab = Lab::new(Simulation::new(1, 2, 4));
//! assert!(lab.keys("jj").screen(80, 24).text().contains("2 hosts"));
//! ```
#![forbid(unsafe_code)]

pub mod built;
pub mod causes;
mod change;
pub mod core_time;
pub mod crowd;
pub mod described;
pub mod film;
pub mod healthy;
pub mod host;
pub mod hung;
pub mod listener;
pub mod past;
pub mod place;
pub mod port;
pub mod program;
pub mod pty;
pub mod relay;
pub mod skip;
mod stall;
pub mod torch;

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use change::Change;
use core_time::on_core;
use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::{buffer::Buffer, layout::Rect};
use stall::Stall;
use xpu_client::arrival::{Arrival, Endpoint, Link};
use xpu_recording::{Header, Packer, Writer};
use xpu_simulation::Simulation;
use xpu_tui::{
    action::{Action, Effect},
    app::App,
    key::Key,
    look::Look,
    palette::{Depth, Theme},
    svg,
    update::update,
    view,
};
use xpu_wire::{
    endpoint::BasePort,
    frame::{Body, Frame, StackFrame, ThreadStack},
    id::Rank,
    unit::Moment,
};

/// How many seconds the job has run when it is first seen.
const BEFORE: u64 = 1_800;
/// How many seconds of the job are watched.
const WATCHED: u64 = 40;

#[derive(Debug)]
pub struct Lab {
    simulation: Simulation,
    /// Seconds since the job began.
    second: u64,
    app: App,
    effects: Vec<Effect>,
    change: Change,
    stall: Option<Stall>,
    /// Every frame that arrived, and when, by the viewer's clock.
    heard: Option<Vec<(Moment, Frame)>>,
}

impl Lab {
    /// A job that has been watched for a while, in true colour.
    pub fn new(simulation: Simulation) -> Self {
        Self::with_depth(simulation, Depth::True)
    }

    pub fn with_depth(simulation: Simulation, look: impl Into<Look>) -> Self {
        let mut lab = Self::at_rest(simulation, look);
        for host in 0..lab.simulation.hosts {
            lab.link(host, Link::Up);
        }
        let simulation = lab.simulation.clone();
        lab.arrive(simulation.snapshots(BEFORE));
        lab.run(WATCHED)
    }

    /// An app whose hosts are named and have not answered.
    pub fn at_rest(simulation: Simulation, look: impl Into<Look>) -> Self {
        let endpoints = (0..simulation.hosts).map(|host| endpoint(&simulation, host)).collect();
        let app = App::new(endpoints, None, look, simulation.started);
        let mut lab = Self {
            simulation,
            second: BEFORE,
            app,
            effects: Vec::new(),
            change: Change::default(),
            stall: None,
            heard: None,
        };
        lab.set_clock();
        lab
    }

    /// A new job. The lab keeps every frame that arrives.
    pub fn recorded(simulation: Simulation) -> Self {
        let mut lab = Self::at_rest(simulation, Depth::True);
        lab.heard = Some(Vec::new());
        let snapshots = lab.simulation.snapshots(BEFORE);
        lab.arrive(snapshots);
        lab
    }

    /// The frames that [`Lab::recorded`] kept, in the format of a file.
    ///
    /// # Panics
    /// If nothing was kept.
    pub fn recording(&self) -> Vec<u8> {
        self.recording_of(Duration::MAX)
    }

    /// As [`Lab::recording`], with only the frames of the last `long`.
    ///
    /// # Panics
    /// If nothing was kept.
    pub fn recording_of(&self, long: Duration) -> Vec<u8> {
        let now = self.now();
        let heard = self.heard.as_ref().expect("a recorded lab").iter();
        let heard = heard.filter(|(at, _)| now.since(*at) <= long);
        let mut writer = Writer::begin(Vec::new(), &Header::default()).expect("memory takes all");
        let mut packer = Packer::default();
        for (at, frame) in heard {
            let due = packer.due(*at).expect("it compresses");
            let full = packer.push(*at, frame).expect("it compresses");
            due.iter().chain(&full).for_each(|block| writer.write(block).expect("memory takes all"));
        }
        packer.rest().iter().flatten().for_each(|block| writer.write(block).expect("memory takes all"));
        writer.finish().expect("memory takes all").0
    }

    /// The time of the viewer's clock.
    pub fn now(&self) -> Moment {
        // The viewer's clock differs from the hosts': no result may depend on it.
        self.simulation.started.after(Duration::from_secs(self.second + 7))
    }

    /// From now on the rank is slower by this factor.
    pub fn slow_down(mut self, rank: Rank, factor: f64) -> Self {
        let before = self.digests();
        self.simulation.slow.push((rank, factor));
        self.change = Change::default();
        let after = self.simulation.digests(self.second);
        self.change = Change::between(&before, &after);
        self
    }

    /// From now on `missing` does not enter the next collective, and all other ranks wait.
    pub fn hang(mut self, missing: Rank) -> Self {
        self.stall = Some(Stall { since: self.second, missing });
        self
    }

    /// The missing rank enters the collective after all.
    pub fn go_on(mut self) -> Self {
        self.stall = None;
        self
    }

    /// The stacks of these ranks arrive, as collectors read them.
    ///
    /// # Panics
    /// If the job does not hang.
    pub fn read_stacks(&mut self, ranks: impl IntoIterator<Item = u32>) -> &mut Self {
        self.read_stacks_with(ranks, |_| Vec::new())
    }

    /// As [`Self::read_stacks`], with the kernel on the GPU of each rank.
    pub fn read_stacks_with(
        &mut self,
        ranks: impl IntoIterator<Item = u32>,
        kernel: impl Fn(u32) -> Vec<StackFrame>,
    ) -> &mut Self {
        let stall = self.stall.expect("the job hangs");
        let job = self.simulation.job.clone();
        let frame = self.simulation.digests(self.second).remove(0);
        let stacks = ranks.into_iter().map(|rank| {
            let mut stacks = stall.stacks(&job, Rank(rank), frame.now);
            let name = format!("{} 0", ThreadStack::GPU);
            let gpu = ThreadStack { name, frames: kernel(rank), ..ThreadStack::default() };
            stacks.threads.extend(Some(gpu).filter(|gpu| !gpu.frames.is_empty()));
            stacks
        });
        self.arrive(stacks.map(|stacks| Frame { body: Body::Stacks(stacks), ..frame.clone() }).collect());
        self
    }

    fn digests(&self) -> Vec<Frame> {
        let at = self.stall.map_or(self.second, |stall| stall.since);
        let mut frames = self.simulation.digests(at);
        self.change.apply(&mut frames);
        if let Some(stall) = self.stall {
            stall.apply(&self.simulation.digests(self.second), &mut frames, self.second);
        }
        frames
    }

    /// Runs the job for this many seconds.
    pub fn run(self, seconds: u64) -> Self {
        self.run_only(seconds, |_| true)
    }

    /// Runs one more second, and returns the CPU time spent on its frames.
    pub fn timed_second(&mut self) -> Duration {
        self.second += 1;
        self.set_clock();
        let frames = self.digests();
        let began = on_core();
        self.arrive(frames);
        on_core().saturating_sub(began)
    }

    /// Runs one more second, in which the hosts report in `parts` groups, one after the other. Calls `after`
    /// after each group. Returns the time spent on the frames.
    pub fn timed_parts(&mut self, parts: usize, mut after: impl FnMut(&mut App)) -> Duration {
        self.second += 1;
        self.set_clock();
        let mut frames = self.digests();
        let each = frames.len().div_ceil(parts).max(1);
        let mut taken = Duration::ZERO;
        while !frames.is_empty() {
            let rest = frames.split_off(each.min(frames.len()));
            let began = Instant::now();
            self.arrive(std::mem::replace(&mut frames, rest));
            taken += began.elapsed();
            after(&mut self.app);
        }
        taken
    }

    /// Lets time pass; only frames for which `heard` returns `true` arrive.
    pub fn run_only(mut self, seconds: u64, heard: impl Fn(&Frame) -> bool) -> Self {
        for _ in 0..seconds {
            self.second += 1;
            // A viewer looks at the screen, which updates the derived figures once a second.
            self.app.settle();
            self.set_clock();
            let mut frames = self.digests();
            frames.extend(self.simulation.details(self.second, self.app.watched().ranks.clone()));
            self.arrive(frames.into_iter().filter(&heard).collect());
        }
        self
    }

    pub fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    pub fn app(&mut self) -> &mut App {
        &mut self.app
    }

    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    pub fn link(&mut self, host: u32, link: Link) {
        let arrival = Arrival::Link(endpoint(&self.simulation, host), link);
        update(&mut self.app, Action::Arrive(arrival));
    }

    pub fn arrive(&mut self, frames: Vec<Frame>) {
        let now = self.now();
        for frame in frames {
            if let Some(heard) = &mut self.heard {
                heard.push((now, frame.clone()));
            }
            update(&mut self.app, Action::Arrive(Arrival::Frame(Box::new(frame))));
        }
    }

    /// The load of hosts, processes and GPUs arrives too.
    pub fn load(&mut self) -> &mut Self {
        let frames = self.simulation.loads(self.second);
        self.arrive(frames);
        self
    }

    fn set_clock(&mut self) {
        let now = self.now();
        self.effects.extend(update(&mut self.app, Action::Time(now)));
    }

    /// Presses keys, such as `jj?`, `<Enter>`, `<Esc>`, `<Tab>`, `<PgDn>`, `<C-c>`.
    ///
    /// # Panics
    /// If a key has an unknown name.
    pub fn keys(&mut self, keys: &str) -> &mut Self {
        let mut rest = keys;
        while let Some(first) = rest.chars().next() {
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            let name = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
            let name = name.filter(|(name, _)| is_name(name));
            let (key, after) = name.map_or_else(
                || {
                    (
                        Key { code: KeyCode::Char(first), control: false, shift: false },
                        &rest[first.len_utf8()..],
                    )
                },
                |(name, after)| (named(name), after),
            );
            if let Some(action) = self.app.means(key) {
                self.effects.extend(update(&mut self.app, action));
            }
            rest = after;
        }
        self
    }

    /// Clicks on the first letter of this text. `nth` selects among several places, counted from the top.
    ///
    /// # Panics
    /// If it is not on the screen.
    #[track_caller]
    pub fn click(&mut self, size: (u16, u16), text: &str, nth: usize) -> &mut Self {
        let shown = self.screen(size.0, size.1).text();
        let places = shown.lines().enumerate().flat_map(|(y, line)| {
            line.match_indices(text).map(move |(at, _)| (line[..at].chars().count() as u16, y as u16))
        });
        let place = places.collect::<Vec<_>>().get(nth).copied();
        let place = place.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{shown}"));
        self.mouse(size, MouseEventKind::Down(MouseButton::Left), place)
    }

    /// Sends a mouse event at a place on a screen of this size.
    pub fn mouse(
        &mut self,
        (width, height): (u16, u16),
        kind: MouseEventKind,
        (x, y): (u16, u16),
    ) -> &mut Self {
        self.app.settle();
        let area = Rect::new(0, 0, width, height);
        let hits = view::draw(&self.app, area, &mut Buffer::empty(area));
        let event = MouseEvent { kind, column: x, row: y, modifiers: KeyModifiers::NONE };
        for action in hits.actions(event, &self.app) {
            self.effects.extend(update(&mut self.app, action));
        }
        self
    }

    /// The screen at this size.
    pub fn screen(&mut self, width: u16, height: u16) -> Screen {
        self.app.settle();
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        view::draw(&self.app, buffer.area, &mut buffer);
        Screen { buffer, theme: self.app.palette().theme() }
    }
}

fn endpoint(simulation: &Simulation, host: u32) -> Endpoint {
    Endpoint { host: simulation.host(host).to_string(), base: BasePort::DEFAULT, ssh: None }
}

fn named(name: &str) -> Key {
    let plain = |code| Key { code, control: false, shift: false };
    match name {
        "Enter" => plain(KeyCode::Enter),
        "Esc" => plain(KeyCode::Esc),
        "BS" => plain(KeyCode::Backspace),
        "Space" => plain(KeyCode::Char(' ')),
        "Tab" => plain(KeyCode::Tab),
        "Left" => plain(KeyCode::Left),
        "Right" => plain(KeyCode::Right),
        "S-Left" => Key { shift: true, ..plain(KeyCode::Left) },
        "S-Right" => Key { shift: true, ..plain(KeyCode::Right) },
        "Up" => plain(KeyCode::Up),
        "Down" => plain(KeyCode::Down),
        "PgUp" => plain(KeyCode::PageUp),
        "PgDn" => plain(KeyCode::PageDown),
        "Home" => plain(KeyCode::Home),
        "End" => plain(KeyCode::End),
        "F1" => plain(KeyCode::F(1)),
        "F10" => plain(KeyCode::F(10)),
        control if control.starts_with("C-") && control.len() == 3 => Key {
            code: KeyCode::Char(control.chars().next_back().unwrap_or_default()),
            control: true,
            shift: false,
        },
        other => panic!("no key is named <{other}>"),
    }
}

/// The content of a terminal.
#[derive(Debug)]
pub struct Screen {
    pub buffer: Buffer,
    theme: Theme,
}

impl Screen {
    pub fn svg(&self) -> String {
        svg::picture(&self.buffer, self.theme)
    }

    /// The letters alone, one text line per screen line, without trailing blanks.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for y in self.buffer.area.rows() {
            let line: String = y.positions().map(|position| self.buffer[position].symbol()).collect();
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// # Panics
    /// If the text is nowhere on the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> &Self {
        assert!(self.text().contains(text), "{text:?} is not on the screen:\n{}", self.text());
        self
    }

    /// # Panics
    /// If the text is on the screen.
    #[track_caller]
    pub fn hides(&self, text: &str) -> &Self {
        assert!(!self.text().contains(text), "{text:?} is on the screen:\n{}", self.text());
        self
    }
}
