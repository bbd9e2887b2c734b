//! The state from which the screen is drawn. [`crate::update`] changes it, [`crate::view`] draws it.
#![forbid(unsafe_code)]

mod communicators;
mod connections;
mod files;
mod fold;
mod gemms;
mod help;
mod history;
mod hosts;
mod incident;
mod inspection;
mod job_view;
mod listing;
mod maps;
mod messages;
mod metric;
mod observed;
mod order;
mod others;
mod outlier;
mod overlay;
mod past;
mod picker;
mod rank_layout;
mod rank_positions;
mod selection;
mod settle;
mod since;
mod sort;
mod stacks;
mod steps;
mod watched;
mod zoom;

pub use communicators::{Communicator, Communicators, Entered, Traffic};
pub use connections::{Connections, ScreenState};
pub use files::{Files, Opened};
pub use fold::{Bundle, Fold};
pub use gemms::{Basis, Gemm, GemmColumn, Gemms};
pub(crate) use help::Help;
pub use history::{COLUMNS, History, PERIOD, PastValue};
pub use hosts::{Gpus, Health, Host, HostColumn, Hosts};
pub use incident::Incident;
pub use inspection::{Comparison, Inspection, Membership};
pub use job_view::{Filtered, Headline, JobView, Row, Urgency};
pub(crate) use listing::Listing;
pub use maps::Maps;
pub(crate) use messages::Messages;
pub use messages::Note;
pub use metric::Metric;
pub(crate) use observed::Observed;
pub(crate) use order::Order;
pub use others::Others;
pub use outlier::Outlier;
pub(crate) use overlay::Overlay;
pub(crate) use past::Past;
pub(crate) use picker::{Item, Picker, columns};
pub use rank_layout::{RankLayout, RankSlot};
pub use rank_positions::{Group, RankPositions};
pub(crate) use selection::{Choice, Selection};
pub use sort::{Column, Sort};
pub use stacks::{Shown, StackRow, StackState, Stacks};
pub use steps::{StepColumn, Steps};
pub use watched::Watched;
use xpu_analysis::capture::Groups;
use xpu_client::arrival::Endpoint;
pub use xpu_model::step_times::{Point, StepTimes};
use xpu_model::{
    finding::{Entry, Log},
    job::Job,
};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};
pub use zoom::{Columns, Zoom};

use crate::{
    action::Action,
    key::Key,
    keymap::{Keymap, Scope},
    look::Look,
    page::Page,
    palette::Palette,
};

#[derive(Debug)]
pub struct App {
    /// The jobs, as they are shown: now, or in the past.
    pub(crate) observed: Observed,
    /// The past, while it is shown instead of the present.
    pub(crate) past: Option<Past>,
    /// The hosts that were named, and the connections to them.
    pub(crate) connections: Connections,

    // What the user has chosen.
    pub(crate) keymap: Keymap,
    pub(crate) palette: Palette,
    pub(crate) page: Page,
    /// The page from which that of one rank was opened.
    pub(crate) back: Page,
    pub(crate) selection: Selection,
    pub(crate) listing: Listing,
    pub(crate) maps: Maps,
    pub(crate) overlay: Overlay,
    pub(crate) messages: Messages,

    // What the pages show.
    pub(crate) job_view: JobView,
    pub(crate) history: History,
    pub(crate) gemms: Gemms,
    pub(crate) communicators: Communicators,
    pub(crate) steps: Steps,
    pub(crate) stacks: Stacks,
    pub(crate) files: Files,
    pub(crate) hosts: Hosts,
    /// The ranks whose details are subscribed.
    pub(crate) watched: Watched,
}

impl App {
    pub fn new(endpoints: Vec<Endpoint>, job: Option<JobName>, look: impl Into<Look>, now: Moment) -> Self {
        Self {
            observed: Observed::at(now),
            past: None,
            connections: Connections::new(endpoints, now),
            keymap: Keymap::default(),
            palette: look.into().palette(),
            page: Page::Overview,
            back: Page::Overview,
            selection: Selection::new(job),
            listing: Listing::default(),
            maps: Maps::default(),
            overlay: Overlay::default(),
            messages: Messages::default(),
            job_view: JobView::default(),
            history: History::default(),
            gemms: Gemms::default(),
            communicators: Communicators::default(),
            steps: Steps::default(),
            stacks: Stacks::default(),
            files: Files::default(),
            hosts: Hosts::default(),
            watched: Watched::default(),
        }
    }

    /// The action of a key now.
    pub fn means(&self, key: Key) -> Option<Action> {
        let scope = self.scope();
        let action = self.keymap.lookup(key, scope);
        // A function key has no effect on a line being typed or on a list.
        let action = action
            .or_else(|| (!matches!(scope, Scope::Prompt | Scope::Picker)).then_some(Action::Unbound(key)));
        match action? {
            // In help, `q` closes help instead of the program. Ctrl+C always ends the program.
            Action::Quit if self.overlay.help.is_open() && !key.control => Some(Action::Help),
            action => Some(action),
        }
    }

    /// The scope whose keys are active.
    pub fn scope(&self) -> Scope {
        self.overlay.scope(self.page)
    }

    /// The key for an action here, by the action's name in the settings.
    pub(crate) fn key(&self, name: &str) -> String {
        self.keymap.key(Scope::Page(self.page), name)
    }

    pub fn palette(&self) -> Palette {
        self.palette
    }

    /// The ranks whose details the screen requests.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Shows for a while how to watch from another terminal.
    pub fn invite(&mut self, text: String) {
        self.messages.invite(text, self.observed.now);
    }

    /// Sets the layout of the ranks, by which groups are folded.
    pub fn lay_out(&mut self, groups: Option<Groups>) {
        self.listing.groups = groups;
    }

    /// The kinds of groups by which ranks can be folded.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let Some(job) = self.job() else { return Vec::new() };
        self.listing.kinds(job, self.job_view.rows())
    }

    /// Ranks whose stacks are needed: the shown job hangs, and they have not arrived.
    pub(crate) fn stacks_due(&mut self) -> Option<(JobName, Vec<Rank>)> {
        let job = self.selection.job(&self.observed.jobs)?;
        let ranks = self.stacks.due(job, &self.job_view.findings, self.observed.now);
        (!ranks.is_empty()).then(|| (job.name().clone(), ranks))
    }

    pub(crate) fn now(&self) -> Moment {
        self.observed.now
    }

    /// The shown job.
    pub(crate) fn job(&self) -> Option<&Job> {
        self.selection.job(&self.observed.jobs)
    }

    /// Findings of the shown job that began or ended, newest first.
    pub(crate) fn logged(&self) -> impl Iterator<Item = &Entry> {
        self.job().and_then(|job| self.observed.log(job.name())).into_iter().flat_map(Log::entries)
    }

    /// The situation that the screen as a whole shows.
    pub(crate) fn screen_state(&self) -> ScreenState {
        if self.job().is_some() {
            ScreenState::Running
        } else {
            self.connections.screen_state(self.observed.jobs.iter().next().is_some())
        }
    }
}
