use std::time::Duration;

use proptest::prelude::*;
use xpu_client::capture::Wanted;

use super::*;
use crate::page::Page;

fn said(text: &str) -> String {
    match read(text) {
        Ok(action) => format!("{action:?}"),
        Err(fault) => format!("{}: {}", fault.column(text), fault.what),
    }
}

#[test]
fn commands_are_understood() {
    for (text, meant) in [
        ("metric power", Action::ShowMetric(Metric::Power)),
        ("sort late", Action::SortBy(Sort { column: Column::Skew, reversed: false })),
        (" sort  tflops  reversed ", Action::SortBy(Sort { column: Column::Gemm, reversed: true })),
        ("rank 37", Action::InspectRank(Rank(37))),
        ("rank", Action::Inspect),
        ("job eval", Action::ChooseJob("eval".into())),
        ("job", Action::Pick(Choosing::Job)),
        ("sort", Action::Pick(Choosing::Sort)),
        ("metric", Action::Pick(Choosing::Metric)),
        ("goto +10m", Action::GoTo("+10m".to_owned())),
        ("capture 5", Action::CaptureOf(Wanted::Steps(5))),
        ("capture 500ms", Action::CaptureOf(Wanted::Time(Duration::from_millis(500)))),
        ("capture", Action::Capture),
        ("w a b.svg", Action::SaveTo("a b.svg".into())),
        ("w", Action::Save),
        ("q", Action::Quit),
        ("stacks", Action::Go(Page::Stacks)),
        // Its earlier name.
        ("next-odd", Action::NextOutlier),
        ("next-finding", Action::Control(crate::action::Control::NextFinding)),
        ("filter", Action::Filter(None)),
    ] {
        assert_eq!(said(text), format!("{meant:?}"), "{text}");
    }
    assert!(said("filter rank<64").starts_with("Filter(Some(Filter { text: \"rank<64\""));
}

#[test]
fn the_invalid_part_of_a_command_is_marked() {
    for (text, at) in [
        ("metrc power", "0: unknown command metrc: did you mean metric?"),
        ("metric powr", "7: unknown quantity powr: did you mean power?"),
        ("sort late down", "10: expected reversed"),
        ("rank x", "5: expected a rank's number"),
        ("capture 0", "8: expected a number of steps"),
        ("  filter rank<64 & tflps<1", "19: unknown field tflps"),
        ("goto", "4: expected a time"),
        ("q now", "2: expected nothing more"),
        ("stacks now", "7: expected nothing more"),
        ("", "0: expected a command"),
        ("line-enter", "0: unknown command"),
    ] {
        assert!(said(text).starts_with(at), "{text}: {}", said(text));
    }
}

#[test]
fn words_are_completed() {
    let there = Names { hosts: vec!["gpu-001"], jobs: vec!["llama", "eval"] };
    let complete = |text: &str| complete(text, &there);
    assert_eq!(complete("met"), (0, vec!["metric".to_owned()]));
    assert_eq!(complete("metric po"), (7, vec!["power".to_owned()]));
    assert_eq!(complete("sort late r"), (10, vec!["reversed".to_owned()]));
    assert_eq!(complete("job ").1, ["llama", "eval"]);
    assert_eq!(complete(" filter rank<5 & host=g"), (22, vec!["gpu-001".to_owned()]));
    assert_eq!(complete("goto +1").1, [""; 0]);
}

/// Each name has one meaning, and the docs list them.
#[test]
fn every_action_with_a_key_has_a_unique_name_that_works_as_a_command() {
    for binding in BINDINGS.iter() {
        let name = binding.action.name().unwrap_or_else(|| panic!("{:?} has no name", binding.action));
        for other in BINDINGS.iter() {
            let same = format!("{:?}", binding.action) == format!("{:?}", other.action);
            assert_eq!(same, other.action.name() == Some(name), "{name}");
        }
        let typed = matches!(binding.action, Action::Edit(_) | Action::Open(_));
        assert!(typed || names().contains(&name), "{name}");
        assert!(typed || name == "goto" || read(name).is_ok(), "{name}");
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "(metric|sort|filter|rank|job|goto|capture|w|q)?[ ]{0,2}.{0,20}") {
        if let Err(fault) = read(&text) {
            prop_assert!(text.is_char_boundary(fault.at), "{fault:?}");
        }
        complete(&text, &Names::default());
    }
}

/// Blanks and letters of several bytes.
#[test]
fn typed_text_is_cut_between_letters() {
    let there = Names { hosts: vec!["gpu-001"], jobs: vec!["llama"] };
    for blank in ["\u{a0}", "\u{2003}", "\u{3000}"] {
        let text = format!("sort{blank}late{blank}rev");
        assert_eq!(complete(&text, &there), (text.len() - 3, vec!["reversed".to_owned()]), "{text:?}");
        let text = format!("filter{blank}rank<64 &{blank}host=gpu");
        assert_eq!(complete(&text, &there).1, ["gpu-001"], "{text:?}");
    }
    let _ = complete("filter é<", &there);
}
