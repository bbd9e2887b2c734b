//! Everything the screen is made from. [`crate::update`] changes it, [`crate::view`] draws it.
#![forbid(unsafe_code)]

mod choices;
mod communicators;
mod connections;
mod files;
mod fold;
mod gemms;
mod history;
mod hosts;
mod incident;
mod inspection;
mod invitation;
mod job_view;
mod metric;
mod order;
mod others;
mod outlier;
mod page;
mod past;
mod picker;
mod seats;
mod settle;
mod since;
mod sort;
mod stacks;
mod steps;
mod watched;
mod whereabouts;
mod zoom;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

pub use communicators::{Communicator, Communicators, Entered, Traffic};
pub use connections::{Connections, Standing};
pub use files::{Files, Opened};
pub use fold::{Bundle, Fold, kinds};
pub use gemms::{Basis, Gemm, GemmColumn, Gemms};
pub use history::{COLUMNS, History, PERIOD, PastValue};
pub use hosts::{Gpus, Health, Host, HostColumn, Hosts};
pub use incident::Incident;
pub use inspection::{Comparison, Inspection, Membership};
use invitation::Invitation;
pub use job_view::{Headline, JobView, Row, Sifted, Urgency};
pub use metric::{Maps, Metric};
pub(crate) use order::Order;
pub use others::Others;
pub use outlier::Outlier;
pub use page::Page;
pub(crate) use past::Parked;
pub use picker::Choosing;
pub(crate) use picker::{Item, Picker};
pub use seats::{Seat, Seats};
pub use sort::{Column, Sort};
pub use stacks::{Shown, StackRow, StackState, Stacks};
pub use steps::{StepColumn, Steps};
pub use watched::Watched;
pub use whereabouts::{Group, Whereabouts};
use xpu_analysis::capture::Groups;
use xpu_client::{arrival::Endpoint, filter::Filter, inquiry::Inquiry, kineto, screen_capture};
pub use xpu_model::step_times::{Point, StepTimes};
use xpu_model::{
    baseline::Runs,
    finding::{Log, Price},
    job::{Job, Jobs},
    peak::Peaks,
};
use xpu_wire::{
    id::{HostName, JobName, Rank},
    unit::Moment,
};
pub use zoom::{Columns, Zoom, ZoomAction};

use crate::{
    action::Action,
    keymap::{Key, Keymap, Scope},
    look::Look,
    palette::Palette,
    prompt::{Lines, Prompt},
    recorder::Standing as Recording,
    replay::Playback,
};

/// Warnings kept for the screen; the oldest give way.
const WARNINGS: usize = 16;

#[derive(Debug)]
pub struct App {
    pub(crate) jobs: Jobs,
    pub(crate) connections: Connections,
    pub(crate) choice: Choice,
    pub(crate) selected: Option<Rank>,
    pub(crate) sort: Sort,
    /// Which ranks are listed; all where there is none.
    pub(crate) filter: Option<Filter>,
    /// The line that is being typed.
    pub(crate) prompt: Option<Prompt>,
    /// The list that one of is being chosen from.
    pub(crate) picker: Option<Picker>,
    /// Lines that were typed before.
    pub(crate) lines: Lines,
    pub(crate) fold: Fold,
    /// How ranks are laid out, if the user said so.
    pub(crate) groups: Option<Groups>,
    /// The rank others are compared with.
    pub(crate) pinned: Option<Rank>,
    pub(crate) keymap: Keymap,
    pub(crate) page: Page,
    /// The view from which one rank was gone to.
    pub(crate) back: Page,
    pub(crate) overlay: Overlay,
    pub(crate) note: Option<Note>,
    pub(crate) warnings: VecDeque<String>,
    /// How others can look as well, while there is a way worth telling.
    pub(crate) invitation: Option<Invitation>,
    pub(crate) now: Moment,
    /// When a frame of each host came in last, by this machine's clock.
    pub(crate) arrived: HashMap<HostName, Moment>,
    pub(crate) job_view: JobView,
    inquiry: Inquiry,
    pub(crate) stacks: Stacks,
    pub(crate) whereabouts: Whereabouts,
    pub(crate) log: Log,
    /// Past runs that the job is held against.
    pub(crate) runs: Option<Arc<Runs>>,
    pub(crate) incident: Option<Incident>,
    pub others: Others,
    /// When the incident began that was shown by itself last: each is shown so once.
    pub(crate) alarmed: Option<Moment>,
    /// By its index among the findings.
    pub(crate) finding: usize,
    /// Only while they are looked at.
    pub(crate) communicators: Communicators,
    /// Each has a line, however many there are.
    pub(crate) every_communicator: bool,
    /// The selected one's index.
    pub(crate) communicator: usize,
    pub(crate) maps: Maps,
    pub(crate) history: History,
    /// What the heatmaps show of it.
    pub(crate) zoom: Zoom,
    /// Whose details come in.
    pub(crate) watched: Watched,
    pub(crate) gemms: Gemms,
    pub(crate) step_times: StepTimes,
    pub(crate) steps: Steps,
    pub(crate) hosts: Hosts,
    pub(crate) files: Files,
    /// What the user says GPUs can do at best, before the data sheets.
    pub(crate) peaks: Peaks,
    /// And what a GPU costs in an hour.
    pub(crate) price: Option<Price>,
    /// A replay's position, if there is one.
    pub(crate) playback: Option<Playback>,
    /// What goes on while the past is shown.
    pub(crate) parked: Option<Parked>,
    pub(crate) recording: Recording,
    /// The capture that was begun last.
    pub(crate) capture: screen_capture::Standing,
    /// Traces by PyTorch's profiler.
    pub(crate) kineto: kineto::Standing,
    /// Lines the help page is scrolled by, and the words that its lines are to have.
    pub(crate) help: usize,
    pub(crate) sought: String,
    pub(crate) palette: Palette,
}

/// Which job is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The foremost one; it stays while any of its ranks lives, so that the screen does not jump between two.
    Foremost(Option<JobName>),
    /// The one the user asked for.
    Named(JobName),
}

/// What is open over the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    None,
    Help,
}

/// What was just done, for the footer; gone with the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Done(String),
    Failed(String),
}

impl App {
    pub fn new(endpoints: Vec<Endpoint>, job: Option<JobName>, look: impl Into<Look>, now: Moment) -> Self {
        Self {
            jobs: Jobs::default(),
            connections: Connections::new(endpoints, now),
            choice: job.map_or(Choice::Foremost(None), Choice::Named),
            selected: None,
            sort: Sort::default(),
            filter: None,
            prompt: None,
            picker: None,
            lines: Lines::default(),
            fold: Fold::default(),
            groups: None,
            pinned: None,
            keymap: Keymap::default(),
            page: Page::Overview,
            back: Page::Overview,
            overlay: Overlay::None,
            note: None,
            warnings: VecDeque::new(),
            invitation: None,
            now,
            arrived: HashMap::new(),
            job_view: JobView::default(),
            inquiry: Inquiry::default(),
            stacks: Stacks::default(),
            whereabouts: Whereabouts::default(),
            log: Log::default(),
            runs: None,
            incident: None,
            others: Others::default(),
            alarmed: None,
            finding: 0,
            communicators: Communicators::default(),
            every_communicator: false,
            communicator: 0,
            maps: Maps::default(),
            history: History::default(),
            zoom: Zoom::default(),
            watched: Watched::default(),
            gemms: Gemms::default(),
            step_times: StepTimes::default(),
            steps: Steps::default(),
            hosts: Hosts::default(),
            files: Files::default(),
            peaks: Peaks::default(),
            price: None,
            playback: None,
            parked: None,
            recording: Recording::default(),
            capture: screen_capture::Standing::default(),
            kineto: kineto::Standing::default(),
            help: 0,
            sought: String::new(),
            palette: look.into().palette(),
        }
    }

    /// What the key means now.
    pub fn means(&self, key: Key) -> Option<Action> {
        let scope = self.scope();
        let meant = self.keymap.lookup(key, scope);
        // Of a line that is typed and of a list nobody asks what a function key does.
        let meant = meant
            .or_else(|| (!matches!(scope, Scope::Prompt | Scope::Picker)).then_some(Action::Unbound(key)));
        match meant? {
            // Who reads help and presses `q` is done with help, not with the program. Ctrl+C always ends it.
            Action::Quit if self.overlay == Overlay::Help && !key.control => Some(Action::Help),
            action => Some(action),
        }
    }

    /// Whose keys are in force.
    pub fn scope(&self) -> Scope {
        if self.prompt.is_some() {
            return Scope::Prompt;
        }
        if self.picker.is_some() {
            return Scope::Picker;
        }
        match self.overlay {
            Overlay::Help => Scope::Help,
            Overlay::None => self.page.scope(),
        }
    }

    /// The key that does this here, by its name in the settings.
    pub(crate) fn key(&self, name: &str) -> String {
        self.keymap.key(self.page.scope(), name)
    }

    /// From now on the screen looks so.
    pub fn dress(&mut self, palette: Palette) {
        self.palette = palette;
    }

    pub fn palette(&self) -> Palette {
        self.palette
    }

    pub fn warn(&mut self, warning: String) {
        if self.warnings.len() == WARNINGS {
            self.warnings.pop_front();
        }
        self.warnings.push_back(warning);
    }

    /// Says once what came of a capture.
    pub(crate) fn captured(&mut self, standing: screen_capture::Standing) {
        if self.capture == standing {
            return;
        }
        match &standing {
            screen_capture::Standing::Done(outcome) => {
                let note = if outcome.bytes == 0 { Note::Failed } else { Note::Done };
                self.note = Some(note(outcome.to_string()));
                self.files.captured = (outcome.bytes > 0).then(|| outcome.path.clone());
                outcome.complaints.iter().for_each(|complaint| self.warn(format!("capture: {complaint}")));
            }
            screen_capture::Standing::Failed(why) => self.note = Some(Note::Failed(why.clone())),
            _ => {}
        }
        self.capture = standing;
    }

    /// What a step of the job's last capture would take without its stragglers.
    pub(crate) fn what_if(&self) -> Option<&str> {
        let simulated = self.files.simulated.as_ref()?;
        (self.job()?.name() == &simulated.job).then_some(simulated.sentence.as_str())
    }

    /// Says once what came of traces.
    pub(crate) fn traced(&mut self, standing: kineto::Standing) {
        if self.kineto == standing {
            return;
        }
        match &standing {
            kineto::Standing::Done(outcome) => {
                let note = if outcome.is_whole { Note::Done } else { Note::Failed };
                self.note = Some(note(outcome.summary.clone()));
                outcome.complaints.iter().for_each(|complaint| self.warn(format!("Kineto: {complaint}")));
            }
            kineto::Standing::Failed(why) => self.note = Some(Note::Failed(why.clone())),
            kineto::Standing::None | kineto::Standing::UnderWay(_) => {}
        }
        self.kineto = standing;
    }

    /// Whose details the screen asks for.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Overrides the data sheets' GPU peaks.
    pub fn set_peaks(&mut self, peaks: Peaks) {
        self.peaks = peaks;
    }

    /// Says how ranks are laid out, for groups of them to be folded.
    pub fn lay_out(&mut self, groups: Option<Groups>) {
        self.groups = groups;
    }

    /// The kinds of groups ranks can be folded by.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let Some(job) = self.job() else { return Vec::new() };
        let groups = self.groups.as_ref().filter(|groups| groups.world_size() == u64::from(job.world_size()));
        kinds(job, self.job_view.rows(), groups)
    }

    /// Ranks whose stacks are due: the shown job hangs, and they have not arrived.
    pub(crate) fn stacks_due(&mut self) -> Option<(JobName, Vec<Rank>)> {
        let job = match &self.choice {
            Choice::Foremost(Some(name)) | Choice::Named(name) => self.jobs.get(name)?,
            Choice::Foremost(None) => return None,
        };
        let ranks = self.inquiry.due(job, &self.job_view.findings, self.now);
        (!ranks.is_empty()).then(|| (job.name().clone(), ranks))
    }

    pub(crate) fn job(&self) -> Option<&Job> {
        match &self.choice {
            Choice::Foremost(name) => self.jobs.get(name.as_ref()?),
            Choice::Named(name) => self.jobs.get(name),
        }
    }

    /// Where things stand: what the screen as a whole is about.
    pub(crate) fn standing(&self) -> Standing {
        if self.job().is_some() {
            Standing::Running
        } else {
            self.connections.standing(self.jobs.iter().next().is_some())
        }
    }
}
