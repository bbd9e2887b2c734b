//! The commands of `:`: the names of all actions that have a key, and these commands, which take an argument.
//!
//! Parsing, completion, help and the docs use this one table.
#![forbid(unsafe_code)]

mod completion;

pub use completion::{Names, complete};
use xpu_client::{
    capture::{Wanted, window_length},
    filter::{Fault, Filter},
    nearest::nearest,
};
use xpu_wire::id::{JobName, Rank};

use crate::{
    action::{self, Action, Choosing},
    app::{Column, Metric, Sort},
    keymap::BINDINGS,
    palette::Theme,
};

/// A command with a required or optional argument.
#[derive(Clone, Copy, Debug)]
pub struct PromptCommand {
    /// The first is its name; the others are aliases.
    pub names: &'static [&'static str],
    /// The argument that follows the name.
    pub takes: &'static str,
    pub help: &'static str,
    /// Parses the argument: the action, or the position of the error and what is expected there.
    read: fn(&str) -> Result<Action, Fault>,
}

const fn prompt_command(
    names: &'static [&'static str],
    takes: &'static str,
    help: &'static str,
    read: fn(&str) -> Result<Action, Fault>,
) -> PromptCommand {
    PromptCommand { names, takes, help, read }
}

pub const PROMPT_COMMANDS: &[PromptCommand] = &[
    prompt_command(
        &["metric"],
        "[NAME]",
        "show this quantity on the heatmaps; without a name, choose",
        metric,
    ),
    prompt_command(&["theme"], "NAME", "colours: dark, cividis, light, high-contrast, mono", theme),
    prompt_command(
        &["sort"],
        "[COLUMN [reversed]]",
        "sort the ranks by this column, worst first; without a column, choose",
        |text| optional(text, Action::Pick(Choosing::Sort), || sort(text).map(Action::SortBy)),
    ),
    prompt_command(&["filter"], "[FILTER]", "only matching ranks; without one, all", |text| {
        let filter = Some(text).filter(|text| !text.is_empty()).map(Filter::read).transpose()?;
        Ok(Action::Filter(filter.map(Box::new)))
    }),
    prompt_command(&["rank"], "[NUMBER]", "show this rank", |text| {
        optional(text, Action::Inspect, || {
            let number = text.parse().map(Rank).map(Action::InspectRank);
            number.map_err(|_no_number| expected("a rank's number"))
        })
    }),
    prompt_command(&["job"], "[NAME]", "show this job; without a name, choose", |text| {
        optional(text, Action::Pick(Choosing::Job), || Ok(Action::ChooseJob(JobName::cleaned(text))))
    }),
    prompt_command(&["goto"], "TIME", "to a time: 02:14:07, +10m, -30s, 50%", |text| {
        if text.is_empty() {
            Err(expected("a time: 02:14:07, +10m, -30s or 50%"))
        } else {
            Ok(Action::GoTo(text.to_owned()))
        }
    }),
    prompt_command(
        &["capture"],
        "[STEPS|TIME]",
        "capture this many steps of all ranks, or a period; without a number: start or cancel",
        |text| {
            optional(text, Action::Capture, || {
                let steps = text.parse().ok().filter(|steps| (1..=MOST_STEPS).contains(steps));
                let time = || window_length(text).ok().map(Wanted::Time);
                steps.map(Wanted::Steps).or_else(time).map(Action::CaptureOf).ok_or_else(|| {
                    expected(&format!("a number of steps from 1 to {MOST_STEPS}, or a time as 500ms"))
                })
            })
        },
    ),
    prompt_command(
        &["write", "w"],
        "[FILE]",
        "save the screen as SVG, or as text if the name ends in .txt",
        |text| optional(text, Action::Save, || Ok(Action::SaveTo(text.into()))),
    ),
    prompt_command(&["quit", "q"], "", "quit", |text| nothing(text, Action::Quit)),
    prompt_command(&["help", "h"], "", "all keys", |text| nothing(text, Action::Help)),
];

/// Largest number of steps of a capture that can be requested here.
const MOST_STEPS: u32 = xpu_wire::frame::CaptureOrder::STEPS;

/// The action that a line means.
pub fn read(text: &str) -> Result<Action, Fault> {
    let begin = text.len() - text.trim_start().len();
    let line = text.trim();
    let (name, rest) = line.split_at(line.find(char::is_whitespace).unwrap_or(line.len()));
    let after = rest.trim_start();
    let place = begin + name.len() + rest.len() - after.len();
    if let Some(command) = named(name) {
        return (command.read)(after).map_err(|fault| Fault { at: place + fault.at, ..fault });
    }
    if let Some(action) = action(name) {
        return nothing(after, action).map_err(|fault| Fault { at: place + fault.at, ..fault });
    }
    let what = match (name, nearest(name, names())) {
        ("", _) => "expected a command".to_owned(),
        (name, Some(near)) => format!("unknown command {name}: did you mean {near}?"),
        (name, None) => format!("unknown command {name}: ? lists all"),
    };
    Err(Fault { at: begin, what })
}

/// The command of this name in the table.
pub fn named(name: &str) -> Option<&'static PromptCommand> {
    PROMPT_COMMANDS.iter().find(|command| command.names.contains(&name))
}

/// The action with a key and this name.
fn action(name: &str) -> Option<Action> {
    let name = action::present(name);
    actions().find(|(known, _)| *known == name).map(|(_, action)| action.clone())
}

/// Names of actions that work as commands; editing a line does not.
fn actions() -> impl Iterator<Item = (&'static str, &'static Action)> {
    let said = BINDINGS.iter().map(|binding| &binding.action);
    said.filter(|action| !matches!(action, Action::Edit(_) | Action::Open(_)))
        .filter_map(|action| Some((action.name()?, action)))
}

/// All names, each once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = PROMPT_COMMANDS.iter().map(|command| command.names[0]).collect();
    for (name, _) in actions() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn expected(what: &str) -> Fault {
    Fault { at: 0, what: format!("expected {what}") }
}

fn nothing(text: &str, action: Action) -> Result<Action, Fault> {
    if text.is_empty() { Ok(action) } else { Err(expected("nothing more")) }
}

fn optional(text: &str, without: Action, with: impl Fn() -> Result<Action, Fault>) -> Result<Action, Fault> {
    if text.is_empty() { Ok(without) } else { with() }
}

fn metric(text: &str) -> Result<Action, Fault> {
    if text.is_empty() {
        return Ok(Action::Pick(Choosing::Metric));
    }
    Metric::called(text)
        .map(Action::ShowMetric)
        .ok_or_else(|| none(text, "quantity", &Metric::ALL.map(Metric::word)))
}

fn theme(text: &str) -> Result<Action, Fault> {
    text.parse().map(Action::Dress).map_err(|_unknown| none(text, "theme", &Theme::ALL.map(Theme::name)))
}

/// `skew`, `tflops reversed`
pub fn sort(text: &str) -> Result<Sort, Fault> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let column = Column::called(name).ok_or_else(|| none(name, "column", &Column::ALL.map(Column::word)))?;
    match rest.trim() {
        "" => Ok(Sort { column, reversed: false }),
        "reversed" => Ok(Sort { column, reversed: true }),
        _ => {
            Err(Fault { at: text.len() - rest.len(), what: "expected reversed, or nothing more".to_owned() })
        }
    }
}

fn none(text: &str, kind: &str, names: &[&str]) -> Fault {
    let all = names.join(", ");
    let what = match (text, nearest(text, names.iter().copied())) {
        ("", _) => format!("expected a {kind}: {all}"),
        (text, Some(near)) => format!("unknown {kind} {text}: did you mean {near}?"),
        (text, None) => format!("unknown {kind} {text}: {all}"),
    };
    Fault { at: 0, what }
}

#[cfg(test)]
mod tests;
