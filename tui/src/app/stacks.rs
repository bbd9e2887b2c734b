//! The places of the shown job's ranks: their positions in a communicator, and their stacks: requested,
//! arriving, merged; and the open branches of the tree.

mod rows;

use std::{collections::BTreeSet, time::Duration};

pub use rows::{Row as StackRow, Shown};
use xpu_client::inquiry::Inquiry;
use xpu_model::{
    finding::Finding,
    job::Job,
    stack::{self, Ranks, Tree},
};
use xpu_wire::{
    frame::Life,
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Incident, RankPositions};
use crate::action::Motion;

/// Collectors answer within a few seconds; after this, ranks without an answer count as silent.
const PATIENCE: Duration = Duration::from_secs(15);

/// The same limit if the kernels on the GPUs are requested.
const PATIENCE_WITH_GPUS: Duration = Duration::from_secs(70);

/// A second request for the GPUs confirms the first one if it comes between these two times. The first time
/// is needed because a key that is held down repeats.
const CONFIRMED_AFTER: Duration = Duration::from_secs(1);
const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);

/// Lines by which a page key moves.
const PAGE: usize = 10;

#[derive(Debug, Default)]
pub struct Stacks {
    inquiry: Inquiry,
    rank_positions: RankPositions,
    /// The job of the tree, and the revision of its stacks.
    made: Option<(JobName, u64)>,
    /// The matching ranks, while there is a filter.
    matching: Option<Ranks>,
    /// Number of ranks whose stacks have arrived, and of the expected ones.
    came: usize,
    expected: usize,
    /// When the last arrived, by this machine's clock.
    newest: Option<Moment>,
    asked: Option<Moment>,
    with_gpus: bool,
    /// When the GPUs were requested, if this is not confirmed yet.
    gpus_asked: Option<Moment>,
    refused: Option<String>,
    /// Branches that the user opened or closed.
    turned: BTreeSet<u64>,
    /// Whether native frames below those of Python are shown.
    natives: bool,
    cursor: Option<u64>,
    /// The tree of all ranks, and that of the matching ones.
    tree: Tree,
    filtered: Option<Tree>,
    notes: Vec<String>,
    rows: Vec<StackRow>,
}

/// The state of the stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackState {
    /// There was no request.
    NotRequested,
    /// Stacks are arriving; the number that has arrived.
    Coming(usize),
    /// All expected stacks have arrived.
    Here,
    /// None arrived in time.
    Silent,
    /// They cannot be requested.
    Refused(String),
}

impl Stacks {
    pub(crate) fn came(&mut self, now: Moment) {
        self.newest = Some(now);
        self.refused = None;
    }

    /// Notes that stacks are requested now. Earlier ones are kept until they are replaced.
    pub(crate) fn ask(&mut self, now: Moment) {
        self.asked = Some(now);
        self.with_gpus = false;
        self.refused = None;
    }

    /// Notes that stacks are requested together with the kernels on the GPUs, which takes longer.
    pub(crate) fn ask_with_gpus(&mut self, now: Moment) {
        self.ask(now);
        self.with_gpus = true;
    }

    /// Ranks whose stacks are needed: the job hangs, and they have not arrived.
    pub(super) fn due(&mut self, job: &Job, findings: &[Finding], now: Moment) -> Vec<Rank> {
        self.inquiry.due(job, findings, now)
    }

    pub(crate) fn was_asked(&self) -> bool {
        self.asked.is_some()
    }

    pub(crate) fn refuse(&mut self, why: String) {
        self.refused = Some(why);
    }

    pub fn state(&self, now: Moment) -> StackState {
        let patience = if self.with_gpus { PATIENCE_WITH_GPUS } else { PATIENCE };
        let waits = self.asked.is_some_and(|asked| now.since(asked) < patience);
        match (&self.refused, self.came) {
            (Some(why), 0) => StackState::Refused(why.clone()),
            (_, came) if came < self.expected && waits => StackState::Coming(came),
            (_, 0) if self.asked.is_some() => StackState::Silent,
            (_, 0) => StackState::NotRequested,
            _ => StackState::Here,
        }
    }

    /// Number of ranks that have stacks, or should have them.
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// When the last of them arrived.
    pub fn newest(&self) -> Option<Moment> {
        self.newest
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The tree that is shown.
    pub fn shown(&self) -> &Tree {
        self.filtered.as_ref().unwrap_or(&self.tree)
    }

    pub fn rows(&self) -> &[StackRow] {
        &self.rows
    }

    /// Notes about missing data and stopped processes, each with its ranks.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The index of the selected row.
    pub fn at(&self) -> Option<usize> {
        let cursor = self.cursor?;
        self.rows.iter().position(|row| row.mark == cursor)
    }

    /// The positions of the ranks in the communicator of the incident, otherwise in the largest one.
    pub fn rank_positions(&self) -> &RankPositions {
        &self.rank_positions
    }

    /// Merges the received stacks of all ranks of the job, and those of the matching ranks.
    pub(super) fn settle(&mut self, job: &Job, matching: Option<Ranks>, incident: Option<&Incident>) {
        let stall = incident.and_then(|incident| incident.finding.collective.as_ref());
        self.rank_positions = RankPositions::of(job, stall.map(|of| of.communicator.as_str()));
        // A rank that ended in an orderly way has no stack.
        self.expected = job.ranks().filter(|(_, view)| view.life() != Life::Ended).count();
        let made = (job.name().clone(), job.stacks_revision());
        let is_known = self.made.as_ref() == Some(&made);
        if is_known && self.matching == matching {
            return;
        }
        if !is_known {
            self.came = job.stacks().count();
            self.tree = job.merged_stacks().unwrap_or_default();
        }
        let is_matching = |rank| matching.as_ref().is_none_or(|matching| matching.contains(rank));
        let stacks = || job.stacks().filter(|stacks| is_matching(stacks.rank));
        self.filtered = matching
            .as_ref()
            .map(|_| stack::merge(self.tree.ranks.iter().filter(|&rank| is_matching(rank)), stacks()));
        self.notes = stack::notes(stacks(), []);
        (self.made, self.matching) = (Some(made), matching);
        self.lay_out();
    }

    fn lay_out(&mut self) {
        self.rows = rows::of(self.shown(), &self.turned, self.natives);
    }

    /// Whether this request for the GPUs follows another within some seconds.
    pub(crate) fn confirms_gpus(&mut self, now: Moment) -> bool {
        let before = self.gpus_asked.replace(now);
        let confirms =
            before.is_some_and(|before| (CONFIRMED_AFTER..=CONFIRMED_WITHIN).contains(&now.since(before)));
        if confirms {
            self.gpus_asked = None;
        }
        confirms
    }

    pub(crate) fn toggle_natives(&mut self) {
        self.natives = !self.natives;
        self.lay_out();
    }

    pub(crate) fn travel(&mut self, motion: Motion) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let to = match (self.at(), motion) {
            (_, Motion::First) | (None, Motion::Down | Motion::PageDown) => 0,
            (_, Motion::Last) | (None, Motion::Up | Motion::PageUp) => last,
            (Some(at), Motion::Up) => at.saturating_sub(1),
            (Some(at), Motion::Down) => (at + 1).min(last),
            (Some(at), Motion::PageUp) => at.saturating_sub(PAGE),
            (Some(at), Motion::PageDown) => (at + PAGE).min(last),
        };
        self.cursor = Some(self.rows[to].mark);
    }

    pub(crate) fn select(&mut self, index: usize) {
        self.cursor = self.rows.get(index).map(|row| row.mark).or(self.cursor);
    }

    /// Opens or closes the branch of the cursor.
    pub(crate) fn toggle_branch(&mut self) {
        let Some(at) = self.at() else { return };
        // For a frame, finds the branch that contains it.
        let Some(branch) = self.rows[..=at].iter().rposition(|row| row.open.is_some()) else { return };
        let mark = self.rows[branch].mark;
        if !self.turned.remove(&mark) {
            self.turned.insert(mark);
        }
        self.cursor = Some(mark);
        self.lay_out();
    }

    /// Moves to the next branch with few ranks; after the last, to the first.
    pub(crate) fn next_outlier(&mut self) {
        self.jump(StackRow::is_outlier);
    }

    pub(crate) fn next_thread(&mut self) {
        self.jump(|row| row.depth == 0 && row.open.is_some());
    }

    fn jump(&mut self, wanted: impl Fn(&StackRow) -> bool) {
        let from = self.at().map_or(0, |at| at + 1);
        let indices = (from..self.rows.len()).chain(0..from.min(self.rows.len()));
        if let Some(to) = indices.into_iter().find(|&index| wanted(&self.rows[index])) {
            self.cursor = Some(self.rows[to].mark);
        }
    }
}

#[cfg(test)]
mod tests;
