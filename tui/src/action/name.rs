//! Names of the actions, for `:` and for binding keys in the settings.

use super::{Action, Choosing, Control, Motion, ZoomAction};
use crate::{
    page::Page,
    prompt::{Edit, Kind},
};

/// Earlier names, which settings may still have, and the present ones.
const RENAMED: [(&str, &str); 2] = [("next-odd", "next-outlier"), ("turn-branch", "toggle-branch")];

/// The present name of an action.
pub(crate) fn present(name: &str) -> &str {
    RENAMED.iter().find(|(earlier, _)| *earlier == name).map_or(name, |(_, now)| now)
}

impl Action {
    /// The name of an action that has keys. Other actions come from outside, or take an argument.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Go(page) => page.name(),
            Self::Inspect => Page::Rank.name(),
            Self::Help => "help",
            Self::Move(motion) => motion.name(),
            Self::ToggleBranch => "toggle-branch",
            Self::Open(Kind::Filter) => "filter",
            Self::Open(Kind::Command) => "command",
            Self::Open(Kind::Time | Kind::Search) => return None,
            Self::Edit(edit) => return edit.name(),
            Self::Control(control) => control.name(),
            Self::ToggleMaps => "over-time",
            Self::Zoom(ZoomAction::Halve) => "less-time",
            Self::Zoom(ZoomAction::Double) => "more-time",
            Self::Pick(Choosing::Metric) => "metric",
            Self::Pick(Choosing::Sort) => "sort",
            Self::Pick(Choosing::Job) => "job",
            Self::Choose => "choose",
            Self::Reverse => "reverse",
            Self::NextJob => "next-job",
            Self::Close => "back",
            Self::Explain => "why",
            Self::NextOutlier => "next-outlier",
            Self::NextThread => "next-thread",
            Self::AskStacks => "read-stacks",
            Self::AskGpus => "read-gpus",
            Self::ToggleNatives => "native",
            Self::SaveFlame => "save-flame",
            Self::Report => "report",
            Self::Capture => "capture",
            Self::Kineto => "kineto",
            Self::FoldRanks => "fold-ranks",
            Self::ToggleCommunicators => "groups",
            Self::Pin => "pin",
            Self::OpenFile => "open-file",
            Self::ExportFile => "export",
            Self::PageOfFile => "html",
            Self::Save => "save",
            Self::Suspend => "suspend",
            Self::Redraw => "redraw",
            Self::Quit => "quit",
            _ => return None,
        })
    }
}

impl Motion {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::PageUp => "page-up",
            Self::PageDown => "page-down",
            Self::First => "first",
            Self::Last => "last",
        }
    }
}

impl Control {
    fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Back => "time-back",
            Self::Forward => "time-on",
            Self::FarBack => "time-far-back",
            Self::FarForward => "time-far-on",
            Self::Step => "frame-on",
            Self::StepBack => "frame-back",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Loop => "loop",
            Self::NextFinding => "next-finding",
            Self::PreviousFinding => "previous-finding",
            Self::AskTime => "goto",
            Self::Begin => "time-begin",
            Self::End => "time-end",
            Self::Record => "record",
        }
    }
}

impl Edit {
    fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Type(_) => return None,
            Self::Erase => "line-erase",
            Self::EraseWord => "line-erase-word",
            Self::EraseLine => "line-erase-all",
            Self::Left => "line-left",
            Self::Right => "line-right",
            Self::Home => "line-begin",
            Self::End => "line-end",
            Self::Earlier => "line-earlier",
            Self::Later => "line-later",
            Self::Complete => "line-complete",
            Self::Enter => "line-enter",
            Self::Cancel => "line-leave",
        })
    }
}
