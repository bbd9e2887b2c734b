//! What was meant, and what it makes necessary outside.
#![forbid(unsafe_code)]

mod name;

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
    app::{Choosing, Metric, Page, Sort, ZoomAction},
    file_loader::{Listing, Order, Simulated, Summary},
    keymap::Key,
    palette::Theme,
    prompt::{self, Edit},
    recorder::Standing,
    replay::{Control, Mark},
};

/// Everything that can change the [`crate::app::App`].
#[derive(Clone, Debug)]
pub enum Action {
    /// It is this time now.
    Time(Moment),
    Arrive(Arrival),
    /// A file was written, or could not be.
    Saved(Result<PathBuf, String>),
    /// The report was copied, and written to a file, or could not be.
    Copied(Result<PathBuf, String>),
    /// How the recorder does.
    Recorded(Standing),
    /// How the capture does.
    Captured(screen_capture::Standing),
    /// Capture the next steps of all ranks, or end that.
    Capture,
    /// How the traces by PyTorch's profiler do.
    Traced(kineto::Standing),
    /// Have all ranks trace their next steps with PyTorch's profiler, or end that.
    Kineto,
    /// What captures and recordings lie in the folder.
    Listed(Listing),
    /// What is in a file.
    Opened(PathBuf, Result<Box<Summary>, String>),
    /// What a step of the last capture would take without its stragglers.
    Simulated(Option<Box<Simulated>>),
    /// Say what is in the selected file.
    OpenFile,
    /// Write its timeline beside it.
    ExportFile,
    /// Write its report as a page beside it.
    PageOfFile,
    /// Capture a number of steps, or a time.
    CaptureOf(Wanted),
    /// A frame of a replay, and when it came in.
    Show(Moment, Arc<Frame>),
    /// A replay has come so far.
    Reach(Moment),
    /// A replay begins anew: what is known is forgotten.
    Rewind,
    /// A replay has come to its end.
    Ended,
    /// The past was left: what has come in meanwhile is shown.
    GoLive,
    /// Findings of a replay, and up to when they are known.
    Found(Vec<Mark>, Moment),
    /// A key of a replay's time.
    Control(Control),
    /// Begin to type a line.
    Open(prompt::Kind),
    /// A key of the line that is typed.
    Edit(Edit),
    Move(Motion),
    /// Show this quantity on the heatmaps.
    ShowMetric(Metric),
    /// These colours.
    Dress(Theme),
    /// List only matching ranks, or all.
    Filter(Option<Box<Filter>>),
    SelectRank(Rank),
    /// Show this rank alone.
    InspectRank(Rank),
    ChooseJob(JobName),
    /// Go to a time, as people write it.
    GoTo(String),
    /// Save the screen in this file.
    SaveTo(PathBuf),
    /// A click on this line of the list that the view is about.
    Line(usize),
    SortBy(Sort),
    /// Sort the list of the page by the column of this number.
    SortColumn(usize),
    /// Open a list to choose from.
    Pick(Choosing),
    /// Do what the selected line of that list is for.
    Choose,
    /// A key that means nothing here.
    Unbound(Key),
    /// To the next line of it that begins with this letter.
    Jump(char),
    /// Sort the other way round.
    Reverse,
    NextJob,
    /// Show another view.
    Go(Page),
    /// Show the selected rank alone.
    Inspect,
    /// Show what explains the selected finding: stacks, or the rank.
    Explain,
    Fold(Folding),
    /// To the next place where few ranks are and most are not.
    NextOutlier,
    NextThread,
    /// Have the stacks read again.
    AskStacks,
    /// Read the kernels on the GPUs of a job that hangs, at the second time: that ends its ranks.
    AskGpus,
    /// Show or fold native frames below those of Python.
    TurnNatives,
    /// The heatmaps as they are now, or over time.
    TurnMaps,
    /// Show a part of the time on them.
    Zoom(ZoomAction),
    /// List every communicator, or one of each kind.
    TurnCommunicators,
    /// Show this communicator among all.
    ShowCommunicator(CommunicatorId),
    /// Fold ranks by the next thing they have in common.
    FoldRanks,
    /// Compare others with the selected rank, or no more.
    Pin,
    /// Save the stacks as a flame graph.
    SaveFlame,
    /// Copy what is known as text, and save it.
    Report,
    /// Stacks cannot be asked for, and why.
    NoStacks(String),
    Help,
    /// Back out of what is open.
    Close,
    /// Save the screen as a picture.
    Save,
    /// Give the terminal back for a while.
    Suspend,
    /// Draw everything anew.
    Redraw,
    Quit,
}

/// What becomes of a branch of the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    Turn,
    Open,
    Close,
}

/// Where the selection goes.
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
    /// From one line of a list of this length to another.
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

/// What [`crate::update::update`] cannot do itself, because it touches the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    Redraw,
    /// Write the screen to this file.
    Save(PathBuf),
    /// Have the whole summaries of these ranks sent, and of no other.
    WatchRanks(Option<WatchedRanks>),
    /// Have these ranks' stacks sent, of all if none is named.
    AskStacks {
        job: JobName,
        ranks: Vec<Rank>,
        reading: Reading,
    },
    /// Write this to a new file.
    Write(PathBuf, String),
    /// Write this to a new file, and put it where the terminal pastes from.
    Copy(PathBuf, String),
    /// Show the past of a job that runs, from so long ago on.
    LookBack(Duration),
    GoLive,
    /// Show this moment of a replay.
    Seek(Moment),
    /// Show a replay's next frames.
    Step,
    /// Begin a recording, or end it.
    Record,
    /// Begin a capture of this many steps, by default the usual number, or end it.
    Capture(Option<Wanted>),
    /// Have all ranks trace with PyTorch's profiler, or end that.
    Kineto,
    /// Read files of the folder.
    Files(Order),
}

/// How stacks are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// With native frames; what was read so since the ranks last moved will do.
    Kept,
    /// Now, with native frames: a hung job loses nothing.
    Natively,
    /// Now, while the ranks run on.
    Running,
    /// Now, with native frames and the kernels on the GPUs, which ends the ranks.
    Gpus,
}
