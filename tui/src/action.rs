//! The user's actions, and the effects outside of the app that they require.
#![forbid(unsafe_code)]

mod name;

pub(crate) use name::present;

use std::{path::PathBuf, sync::Arc, time::Duration};

use xpu_client::{
    arrival::Arrival, capture::Wanted, filter::Filter, kineto, live::WatchedRanks, screen_capture,
};
use xpu_wire::{
    frame::Frame,
    id::{CommunicatorId, JobName, Rank},
    unit::Moment,
};

use crate::{
    app::{Columns, Metric, Sort},
    file_loader::{Loaded, Order},
    key::Key,
    page::Page,
    palette::Theme,
    playback::Mark,
    prompt::{self, Edit},
    recorder::RecorderState,
};

/// Everything that can change the [`crate::app::App`].
#[derive(Clone, Debug)]
pub enum Action {
    /// The time has advanced to this moment.
    Time(Moment),
    Arrive(Arrival),
    /// A file was written, or writing failed.
    Saved(Result<PathBuf, String>),
    /// The report was copied and written to a file, or writing failed.
    Copied(Result<PathBuf, String>),
    /// The recorder's state.
    Recorded(RecorderState),
    /// The capture's state.
    Captured(screen_capture::CaptureState),
    /// Capture the next steps of all ranks, or end the capture.
    Capture,
    /// The state of the traces by PyTorch's profiler.
    Traced(kineto::Standing),
    /// Trace the next steps of all ranks with PyTorch's profiler, or end the traces.
    Kineto,
    /// What was read in the folder.
    Loaded(Loaded),
    /// Show the content of the selected file.
    OpenFile,
    /// Write the timeline of the open file next to it.
    ExportFile,
    /// Write the report of the open file as a page next to it.
    PageOfFile,
    /// Capture a number of steps, or a period.
    CaptureOf(Wanted),
    /// A frame of a replay, and when it arrived.
    Show(Moment, Arc<Frame>),
    /// A replay has reached this moment.
    Reach(Moment),
    /// A replay starts again: the state is discarded.
    Rewind,
    /// A replay has reached its end.
    Ended,
    /// The past was left: the present state is shown.
    GoLive,
    /// Findings of a replay, and the moment up to which they are known.
    Found(Vec<Mark>, Moment),
    /// A key that moves a replay's time.
    Control(Control),
    /// Begin to type a line.
    Open(prompt::Kind),
    /// A key for the line being typed.
    Edit(Edit),
    Move(Motion),
    /// Show this quantity on the heatmaps.
    ShowMetric(Metric),
    /// Draw in these colours.
    Dress(Theme),
    /// List only matching ranks, or all.
    Filter(Option<Box<Filter>>),
    SelectRank(Rank),
    /// Show this rank alone.
    InspectRank(Rank),
    ChooseJob(JobName),
    /// Go to the time that this text means: `02:14:07`, `-30s`.
    GoTo(String),
    /// Save the screen in this file.
    SaveTo(PathBuf),
    /// A click on this line of the view's list.
    Line(usize),
    SortBy(Sort),
    /// Sort the list of the page by the column of this number.
    SortColumn(usize),
    /// Open a list to choose from.
    Pick(Choosing),
    /// Apply the selected line of that list.
    Choose,
    /// A key without an action here.
    Unbound(Key),
    /// Go to the next line of the list that begins with this letter.
    Jump(char),
    /// Sort the other way round.
    Reverse,
    NextJob,
    /// Show another view.
    Go(Page),
    /// Show the selected rank alone.
    Inspect,
    /// Show the evidence of the selected finding: stacks, or the rank.
    Explain,
    /// Open or close a branch of the stacks.
    ToggleBranch,
    /// Go to the next branch with few ranks.
    NextOutlier,
    NextThread,
    /// Request the stacks again.
    AskStacks,
    /// Read the kernels on the GPUs of a hung job, at the second press, because this ends its ranks.
    AskGpus,
    /// Show or fold native frames below those of Python.
    ToggleNatives,
    /// Show the heatmaps of the present, or over time.
    ToggleMaps,
    /// Show a part of the time on the heatmaps.
    Zoom(ZoomAction),
    /// List every communicator, or one of each kind.
    ToggleCommunicators,
    /// Show this communicator among all.
    ShowCommunicator(CommunicatorId),
    /// Fold ranks by the next kind of group.
    FoldRanks,
    /// Compare others with the selected rank, or stop comparing.
    Pin,
    /// Save the stacks as a flame graph.
    SaveFlame,
    /// Copy a report as text, and save it.
    Report,
    /// Stacks cannot be requested, with the reason.
    NoStacks(String),
    Help,
    /// Close what is open, one at a time.
    Close,
    /// Save the screen as a picture.
    Save,
    /// Suspend: release the terminal for a while.
    Suspend,
    /// Redraw everything.
    Redraw,
    Quit,
}

/// How the selection moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Motion {
    /// Returns the line to move to, in a list of length `of`.
    pub(crate) fn from(self, at: usize, of: usize, page: usize) -> usize {
        let last = of.saturating_sub(1);
        match self {
            Self::First => 0,
            Self::Last => last,
            Self::Up => at.saturating_sub(1),
            Self::Down => (at + 1).min(last),
            Self::PageUp => at.saturating_sub(page),
            Self::PageDown => (at + page).min(last),
        }
    }
}

/// The meaning of a key that moves time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Pause or resume.
    Pause,
    Back,
    Forward,
    FarBack,
    FarForward,
    /// Step to the next frames, or a second back.
    Step,
    StepBack,
    Faster,
    Slower,
    Loop,
    NextFinding,
    PreviousFinding,
    /// Type a target time.
    AskTime,
    Begin,
    /// Go to the end, which is the present for a running job.
    End,
    /// Begin or end a recording.
    Record,
}

/// The kind of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choosing {
    Metric,
    Sort,
    Job,
}

/// An operation on the zoom of the heatmaps over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoomAction {
    /// A drag begins on a cell, moves to another, and ends.
    Begin(Columns),
    To(Columns),
    Keep,
    /// Zooms to the later half of the shown range, and to twice the range.
    Halve,
    Double,
}

/// Actions outside of the app, which [`crate::update::update`] does not execute itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    Redraw,
    /// Write the screen to this file.
    Save(PathBuf),
    /// Subscribe to the complete summaries of these ranks, and of no others.
    WatchRanks(Option<WatchedRanks>),
    /// Request the stacks of these ranks, or of all if none is named.
    AskStacks {
        job: JobName,
        ranks: Vec<Rank>,
        reading: Reading,
    },
    /// Write this to a new file.
    Write(PathBuf, String),
    /// Write this to a new file, and copy it to the terminal's clipboard.
    Copy(PathBuf, String),
    /// Show the past of a running job, beginning this long ago.
    LookBack(Duration),
    GoLive,
    /// Show this moment of a replay.
    Seek(Moment),
    /// Show a replay's next frames.
    Step,
    /// Begin a recording, or end it.
    Record,
    /// Begin a capture of this many steps (by default the usual number), or end it.
    Capture(Option<Wanted>),
    /// Start traces by PyTorch's profiler on all ranks, or end them.
    Kineto,
    /// Read files of the folder.
    Files(Order),
}

/// How stacks are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// With native frames; earlier stacks suffice if they were read this way since the ranks last moved.
    Kept,
    /// Now, with native frames: stopping the threads of a hung job costs nothing.
    Natively,
    /// Now, without stopping the ranks.
    Running,
    /// Now, with native frames and the kernels on the GPUs, which ends the ranks.
    Gpus,
}
