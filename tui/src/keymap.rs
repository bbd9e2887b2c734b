//! The only list of keys. Dispatch, the footer and the help page are all made from [`BINDINGS`].
#![forbid(unsafe_code)]

mod map;
mod scope;

use std::sync::LazyLock;

use crossterm::event::KeyCode;
pub use map::{Clash, Keymap};
pub use scope::Scope;

use crate::{
    action::{Action, Choosing, Control, Motion, ZoomAction},
    key::{Key, char, code, control, shifted},
    page::Page,
    prompt::{Edit, Kind},
};

#[derive(Clone, Debug)]
pub struct Binding {
    pub scope: Scope,
    pub keys: &'static [Key],
    pub action: Action,
    /// The text on the help page.
    pub help: &'static str,
    /// The text in the footer; `None` if it is not shown there.
    pub short: Option<&'static str>,
}

const fn bind(
    scope: Scope,
    keys: &'static [Key],
    action: Action,
    help: &'static str,
    short: Option<&'static str>,
) -> Binding {
    Binding { scope, keys, action, help, short }
}

use Scope::{Anywhere, Help, List, Picker, Prompt, Time};

const OVERVIEW: Scope = Scope::Page(Page::Overview);
const RANK: Scope = Scope::Page(Page::Rank);
const GEMMS: Scope = Scope::Page(Page::Gemms);
const COLLECTIVES: Scope = Scope::Page(Page::Collectives);
const STEPS: Scope = Scope::Page(Page::Steps);
const STACKS: Scope = Scope::Page(Page::Stacks);
const FINDINGS: Scope = Scope::Page(Page::Findings);
const CAPTURES: Scope = Scope::Page(Page::Captures);
const HOSTS: Scope = Scope::Page(Page::Hosts);

/// The keys that lead to a page.
fn go(page: Page) -> Binding {
    let about = page.view().about();
    bind(Anywhere, about.keys, page.view().action(page), about.help, Some(about.name))
}

const fn to(keys: &'static [Key], motion: Motion, help: &'static str) -> Binding {
    bind(List, keys, Action::Move(motion), help, None)
}

const fn sort(scope: Scope) -> Binding {
    const KEYS: &[Key] = &[char('o')];
    bind(scope, KEYS, Action::Pick(Choosing::Sort), "choose the column to sort by, worst first", Some("sort"))
}

/// A key that moves time.
const fn time(scope: Scope, keys: &'static [Key], control: Control, help: &'static str) -> Binding {
    bind(scope, keys, Action::Control(control), help, None)
}

/// A key for a line being typed.
const fn typed(keys: &'static [Key], edit: Edit, help: &'static str) -> Binding {
    bind(Prompt, keys, Action::Edit(edit), help, None)
}

/// All bindings, in the order of the help page and of the footer.
pub static BINDINGS: LazyLock<Vec<Binding>> =
    LazyLock::new(|| Page::ALL.into_iter().map(go).chain(OTHERS.iter().cloned()).collect());

/// The keys that do not lead to a page.
const OTHERS: &[Binding] = &[
    bind(
        Anywhere,
        &[char('?'), code(KeyCode::F(1)), char('h')],
        Action::Help,
        "show or leave the help page",
        Some("help"),
    ),
    bind(Anywhere, &[char('J')], Action::Pick(Choosing::Job), "choose a job", Some("job")),
    bind(Anywhere, &[code(KeyCode::Tab)], Action::NextJob, "next job", None),
    to(&[char('j'), code(KeyCode::Down)], Motion::Down, "next line"),
    to(&[char('k'), code(KeyCode::Up)], Motion::Up, "previous line"),
    to(&[code(KeyCode::PageDown)], Motion::PageDown, "ten lines down"),
    to(&[code(KeyCode::PageUp)], Motion::PageUp, "ten lines up"),
    to(&[char('g'), code(KeyCode::Home)], Motion::First, "first line"),
    to(&[char('G'), code(KeyCode::End)], Motion::Last, "last line"),
    bind(
        Anywhere,
        &[char('/')],
        Action::Open(Kind::Filter),
        "show only some ranks: rank<64 & tflops<0.9*median; on this page, find a key",
        Some("filter"),
    ),
    bind(
        Anywhere,
        &[char(':')],
        Action::Open(Kind::Command),
        "a command: metric power, sort skew, rank 37, capture 5",
        Some("command"),
    ),
    bind(OVERVIEW, &[code(KeyCode::Enter)], Action::Inspect, "the selected rank, or the outlier", None),
    bind(
        OVERVIEW,
        &[char('m')],
        Action::Pick(Choosing::Metric),
        "choose what the heatmaps show",
        Some("metric"),
    ),
    bind(
        OVERVIEW,
        &[char('x')],
        Action::ToggleMaps,
        "heatmaps over the last half hour, or now",
        Some("over time"),
    ),
    bind(
        OVERVIEW,
        &[char('+'), char('=')],
        Action::Zoom(ZoomAction::Halve),
        "show only the later half of the time",
        None,
    ),
    bind(OVERVIEW, &[char('-')], Action::Zoom(ZoomAction::Double), "twice as much time", None),
    bind(
        OVERVIEW,
        &[char('F')],
        Action::FoldRanks,
        "fold ranks by host, by groups, or not: the worst of each is shown",
        Some("fold"),
    ),
    bind(OVERVIEW, &[char('p')], Action::Pin, "pin the selected rank: others are compared with it", None),
    sort(OVERVIEW),
    bind(OVERVIEW, &[char('O')], Action::Reverse, "reverse the sort order", None),
    bind(OVERVIEW, &[code(KeyCode::Esc)], Action::Close, "clear zoom, then selection, then filter", None),
    bind(
        RANK,
        &[code(KeyCode::Esc), code(KeyCode::Enter)],
        Action::Close,
        "back to the page before",
        Some("back"),
    ),
    bind(
        RANK,
        &[char('j'), code(KeyCode::Down)],
        Action::Move(Motion::Down),
        "next rank as listed",
        Some("next rank"),
    ),
    bind(RANK, &[char('k'), code(KeyCode::Up)], Action::Move(Motion::Up), "previous rank", Some("previous")),
    bind(RANK, &[char('p')], Action::Pin, "pin it: others are compared with it", Some("pin")),
    bind(STACKS, &[char('n')], Action::NextOutlier, "next branch with few ranks", Some("outlier")),
    bind(STACKS, &[char('w')], Action::SaveFlame, "save a flame graph as an SVG file here", Some("flame")),
    bind(
        STACKS,
        &[code(KeyCode::Esc)],
        Action::Close,
        "back; dismisses a hang, which stays in findings",
        Some("back"),
    ),
    bind(Anywhere, &[char('y')], Action::Report, "copy a report as text, and save it here", Some("report")),
    bind(STACKS, &[code(KeyCode::Enter)], Action::ToggleBranch, "open or close a branch", Some("open")),
    bind(STACKS, &[char('T')], Action::NextThread, "next thread", Some("threads")),
    bind(STACKS, &[char('a')], Action::AskStacks, "read all stacks again", Some("read again")),
    bind(
        STACKS,
        &[char('U')],
        Action::AskGpus,
        "press twice: name the kernels on the GPUs; this ends the ranks",
        None,
    ),
    bind(
        STACKS,
        &[char('N')],
        Action::ToggleNatives,
        "show native frames below Python's, or fold them",
        Some("native"),
    ),
    bind(FINDINGS, &[code(KeyCode::Enter)], Action::Explain, "open its stacks or its rank", Some("why")),
    bind(FINDINGS, &[code(KeyCode::Esc)], Action::Close, "back to all ranks", Some("back")),
    bind(
        COLLECTIVES,
        &[code(KeyCode::Enter)],
        Action::ToggleCommunicators,
        "list every communicator, or one per kind",
        Some("kinds"),
    ),
    bind(COLLECTIVES, &[code(KeyCode::Esc)], Action::Close, "back to all ranks", Some("back")),
    bind(GEMMS, &[code(KeyCode::Enter)], Action::Explain, "its slowest rank", Some("slowest")),
    sort(GEMMS),
    bind(GEMMS, &[char('O')], Action::Reverse, "reverse the sort order", None),
    bind(GEMMS, &[code(KeyCode::Esc)], Action::Close, "back to all ranks", Some("back")),
    bind(STEPS, &[code(KeyCode::Enter)], Action::Inspect, "the selected rank", None),
    sort(STEPS),
    bind(STEPS, &[char('O')], Action::Reverse, "reverse the sort order", None),
    bind(STEPS, &[code(KeyCode::Esc)], Action::Close, "back to all ranks", Some("back")),
    bind(CAPTURES, &[code(KeyCode::Enter)], Action::OpenFile, "show the selected file", Some("open")),
    bind(
        CAPTURES,
        &[char('e')],
        Action::ExportFile,
        "write its timeline for Perfetto beside it",
        Some("export"),
    ),
    bind(
        CAPTURES,
        &[char('H')],
        Action::PageOfFile,
        "write its report as an HTML page beside it",
        Some("HTML"),
    ),
    bind(CAPTURES, &[code(KeyCode::Esc)], Action::Close, "close the file; back to all ranks", Some("back")),
    bind(HOSTS, &[code(KeyCode::Enter)], Action::Explain, "the worst rank there", Some("its worst rank")),
    sort(HOSTS),
    bind(HOSTS, &[char('O')], Action::Reverse, "reverse the sort order", None),
    bind(HOSTS, &[code(KeyCode::Esc)], Action::Close, "back to all ranks", Some("back")),
    bind(
        Anywhere,
        &[char('c')],
        Action::Capture,
        "capture 3 steps of all ranks to a file, or cancel",
        Some("capture"),
    ),
    bind(
        Anywhere,
        &[char('K')],
        Action::Kineto,
        "trace 2 steps of all ranks with PyTorch's profiler to a folder, or cancel",
        None,
    ),
    bind(Anywhere, &[char('S')], Action::Save, "save the screen as an SVG file here", Some("save SVG")),
    bind(Help, &[code(KeyCode::Esc)], Action::Close, "back", Some("back")),
    bind(Picker, &[code(KeyCode::Enter)], Action::Choose, "choose the line", Some("choose")),
    bind(
        Picker,
        &[code(KeyCode::Esc), char('q')],
        Action::Close,
        "close without a change; a letter goes to the next line that begins with it",
        Some("back"),
    ),
    time(Time, &[char(' ')], Control::Pause, "pause, resume"),
    time(Time, &[code(KeyCode::Left)], Control::Back, "go 10 s back; in a live job, into the last minutes"),
    time(Time, &[code(KeyCode::Right)], Control::Forward, "10 s forward"),
    time(Anywhere, &[shifted(KeyCode::Left)], Control::FarBack, "1 min back"),
    time(Anywhere, &[shifted(KeyCode::Right)], Control::FarForward, "1 min forward"),
    time(Anywhere, &[char('.')], Control::Step, "pause, and show the next frames"),
    time(Anywhere, &[char(',')], Control::StepBack, "pause, and go 1 s back"),
    time(Anywhere, &[char('>')], Control::Faster, "twice as fast, up to x64"),
    time(Anywhere, &[char('<')], Control::Slower, "half as fast, down to x0.25"),
    time(Anywhere, &[char(']')], Control::NextFinding, "to the next finding"),
    time(Anywhere, &[char('[')], Control::PreviousFinding, "to the previous finding"),
    time(Anywhere, &[char('t')], Control::AskTime, "go to a time: 02:14:07, +10m, -30s, 50%"),
    time(Anywhere, &[char('L')], Control::Loop, "loop: restart at the end"),
    time(Anywhere, &[char('{')], Control::Begin, "to the start"),
    time(Anywhere, &[char('}')], Control::End, "to the end; of a live job, to now"),
    bind(Time, &[char('r')], Action::Control(Control::Record), "start or stop a recording", Some("record")),
    bind(Anywhere, &[control('l')], Action::Redraw, "redraw the screen", None),
    bind(Anywhere, &[control('z')], Action::Suspend, "suspend until the shell's `fg`", None),
    bind(
        Anywhere,
        &[char('q'), code(KeyCode::F(10)), control('c')],
        Action::Quit,
        "quit; in help, q and F10 close it",
        Some("quit"),
    ),
    typed(&[code(KeyCode::Enter)], Edit::Enter, "keep the filter, go to the time"),
    typed(&[code(KeyCode::Esc)], Edit::Cancel, "cancel; drops a filter"),
    typed(&[code(KeyCode::Tab)], Edit::Complete, "complete the word; again: next choice"),
    typed(&[code(KeyCode::Up)], Edit::Earlier, "previous line typed"),
    typed(&[code(KeyCode::Down)], Edit::Later, "next line typed"),
    typed(&[code(KeyCode::Left)], Edit::Left, "one letter left"),
    typed(&[code(KeyCode::Right)], Edit::Right, "one letter right"),
    typed(&[code(KeyCode::Home)], Edit::Home, "to the start"),
    typed(&[code(KeyCode::End)], Edit::End, "to the end"),
    typed(&[code(KeyCode::Backspace), control('h')], Edit::Erase, "delete a letter"),
    typed(&[control('w')], Edit::EraseWord, "delete a word"),
    typed(&[control('u')], Edit::EraseLine, "delete all"),
];

#[cfg(test)]
mod tests;
