use std::mem::discriminant;

use super::*;

/// One of each action, and whether a person can invoke it. A new action does not compile until it is added
/// here.
fn needs_key(action: &Action) -> bool {
    match action {
        Action::Time(_) | Action::Arrive(_) | Action::Saved(_) | Action::Copied(_) | Action::NoStacks(_) => {
            false
        }
        Action::Show(..)
        | Action::Reach(_)
        | Action::Rewind
        | Action::Ended
        | Action::GoLive
        | Action::Found(..)
        | Action::Recorded(_)
        | Action::Captured(_)
        | Action::Traced(_)
        | Action::Loaded(_)
        | Action::CaptureOf(_)
        | Action::ShowMetric(_)
        | Action::Dress(_)
        | Action::Filter(_)
        | Action::SelectRank(_)
        | Action::InspectRank(_)
        | Action::ChooseJob(_)
        | Action::GoTo(_)
        | Action::SaveTo(_)
        | Action::Line(_)
        | Action::ShowCommunicator(_)
        | Action::Zoom(ZoomAction::Begin(_) | ZoomAction::To(_) | ZoomAction::Keep)
        | Action::SortBy(_)
        | Action::SortColumn(_)
        | Action::Jump(_)
        | Action::Unbound(_)
        | Action::Edit(Edit::Type(_)) => false,
        Action::Move(_)
        | Action::Pick(_)
        | Action::Choose
        | Action::Reverse
        | Action::NextJob
        | Action::Go(_)
        | Action::Inspect
        | Action::Explain
        | Action::ToggleBranch
        | Action::NextOutlier
        | Action::NextThread
        | Action::AskStacks
        | Action::AskGpus
        | Action::ToggleNatives
        | Action::ToggleMaps
        | Action::Zoom(ZoomAction::Halve | ZoomAction::Double)
        | Action::FoldRanks
        | Action::ToggleCommunicators
        | Action::Pin
        | Action::SaveFlame
        | Action::Report
        | Action::Capture
        | Action::Kineto
        | Action::OpenFile
        | Action::ExportFile
        | Action::PageOfFile
        | Action::Help
        | Action::Close
        | Action::Save
        | Action::Control(_)
        | Action::Open(_)
        | Action::Edit(_)
        | Action::Suspend
        | Action::Redraw
        | Action::Quit => true,
    }
}

fn actions_with_keys() -> Vec<Action> {
    use Control::{
        AskTime, Back, Begin, End, FarBack, FarForward, Faster, Forward, Loop, NextFinding, Pause,
        PreviousFinding, Record, Slower, Step, StepBack,
    };
    use Motion::{Down, First, Last, PageDown, PageUp, Up};
    let mut all: Vec<_> = [Up, Down, PageUp, PageDown, First, Last].map(Action::Move).into();
    all.extend(Page::first().map(|(_, page)| Action::Go(page)));
    let controls = [
        Pause,
        Back,
        Forward,
        FarBack,
        FarForward,
        Step,
        StepBack,
        Faster,
        Slower,
        Loop,
        NextFinding,
        PreviousFinding,
        AskTime,
        Begin,
        End,
        Record,
    ];
    all.extend(controls.map(Action::Control));
    let edits = [
        Edit::Erase,
        Edit::EraseWord,
        Edit::EraseLine,
        Edit::Left,
        Edit::Right,
        Edit::Home,
        Edit::End,
        Edit::Earlier,
        Edit::Later,
        Edit::Complete,
        Edit::Enter,
        Edit::Cancel,
    ];
    all.extend(edits.map(Action::Edit));
    all.extend([ZoomAction::Halve, ZoomAction::Double].map(Action::Zoom));
    all.extend([Kind::Filter, Kind::Command].map(Action::Open));
    all.extend([Choosing::Metric, Choosing::Sort, Choosing::Job].map(Action::Pick));
    all.extend([
        Action::Choose,
        Action::Reverse,
        Action::NextJob,
        Action::Inspect,
        Action::Explain,
        Action::ToggleBranch,
        Action::NextOutlier,
        Action::NextThread,
        Action::AskStacks,
        Action::AskGpus,
        Action::ToggleNatives,
        Action::ToggleMaps,
        Action::FoldRanks,
        Action::ToggleCommunicators,
        Action::Pin,
        Action::SaveFlame,
        Action::Report,
        Action::Capture,
        Action::Kineto,
        Action::OpenFile,
        Action::ExportFile,
        Action::PageOfFile,
        Action::Help,
        Action::Close,
        Action::Save,
        Action::Suspend,
        Action::Redraw,
        Action::Quit,
    ]);
    all
}

fn same(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::Move(one), Action::Move(other)) => one == other,
        (Action::Go(one), Action::Go(other)) => one == other,
        (Action::Zoom(one), Action::Zoom(other)) => one == other,
        (Action::Control(one), Action::Control(other)) => one == other,
        (Action::Open(one), Action::Open(other)) => one == other,
        (Action::Pick(one), Action::Pick(other)) => one == other,
        (Action::Edit(one), Action::Edit(other)) => one == other,
        _ => discriminant(one) == discriminant(other),
    }
}

#[test]
fn exactly_the_actions_of_a_user_have_keys() {
    for action in actions_with_keys() {
        assert!(needs_key(&action));
        assert!(BINDINGS.iter().any(|binding| same(&binding.action, &action)), "{action:?}");
    }
    assert!(BINDINGS.iter().all(|binding| needs_key(&binding.action)));
}

#[test]
fn no_scope_binds_a_key_twice() {
    let keymap = Keymap::default();
    assert_eq!(keymap.clash(), None);
    for scope in Scope::all() {
        let keys: Vec<_> = keymap.in_force(scope).flat_map(|(binding, _)| binding.keys).collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{key} twice in {scope:?}");
        }
    }
}

/// Enter acts on what the page has selected, and Esc goes back.
#[test]
fn a_key_has_one_meaning_on_all_pages() {
    let keymap = Keymap::default();
    let keys: Vec<_> = keymap.all().flat_map(|(binding, _)| binding.keys).copied().collect();
    for key in keys.into_iter().filter(|key| !matches!(key.code, KeyCode::Enter | KeyCode::Esc)) {
        let meanings: Vec<_> =
            Page::ALL.into_iter().filter_map(|page| keymap.lookup(key, Scope::Page(page))).collect();
        assert!(meanings.windows(2).all(|two| same(&two[0], &two[1])), "{key}: {meanings:?}");
    }
}

#[test]
fn keys_have_their_usual_notation() {
    let said: Vec<_> = BINDINGS.iter().flat_map(|binding| binding.keys).map(Key::to_string).collect();
    for expected in ["?", "↓", "PgUp", "Tab", "Ctrl-c", "Home"] {
        assert!(said.iter().any(|key| key == expected), "{expected} is not among {said:?}");
    }
}

/// The page with the table of all keys. `UPDATE_EXPECT=1` rewrites the table.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tui.md");
const HEAD: &str = "| key | where | action |\n|---|---|---|\n";

/// The scope in the table, for several pages their names.
fn place(scopes: &[Scope]) -> String {
    let name = |scope: &Scope| match scope {
        Anywhere => "everywhere".to_owned(),
        List => "lists".to_owned(),
        Time => "all pages".to_owned(),
        Scope::Page(page) => page.name().to_owned(),
        Help => "help".to_owned(),
        Picker => "choice".to_owned(),
        Prompt => "input".to_owned(),
    };
    scopes.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// One line for each meaning of a key: the same on several pages is one.
fn table() -> String {
    let mut lines: Vec<(&Binding, Vec<Scope>)> = Vec::new();
    for binding in BINDINGS.iter() {
        let is_same = |(known, _): &&mut (&Binding, Vec<Scope>)| {
            (known.keys, known.help) == (binding.keys, binding.help) && known.scope != Anywhere
        };
        match lines.iter_mut().find(is_same) {
            Some((_, scopes)) => scopes.push(binding.scope),
            None => lines.push((binding, vec![binding.scope])),
        }
    }
    let line = |(binding, scopes): &(&Binding, Vec<Scope>)| {
        let keys: Vec<_> = binding.keys.iter().map(|key| format!("`{key}`")).collect();
        format!("| {} | {} | {} |\n", keys.join(" "), place(scopes), binding.help)
    };
    HEAD.to_owned() + &lines.iter().map(line).collect::<String>()
}

#[test]
fn the_page_about_the_screen_lists_all_keys() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(HEAD).expect("the table");
    let (_, after) = rest.split_once("\n\n").expect("text after the table");
    let wanted = format!("{before}{}\n{after}", table());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page == wanted, "docs/tui.md differs from the keys; UPDATE_EXPECT=1 rewrites it:\n{}", table());
}
