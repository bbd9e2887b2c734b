use proptest::prelude::*;

use super::*;
use crate::{action::Action, key::Key};

#[track_caller]
fn wrong(file: &str) -> String {
    Config::read(file).expect_err(file).to_string()
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

#[test]
fn settings_are_read() {
    let config = Config::read(
        "page = \"stacks\"\nmetric = \"power\"\nsort = \"late reversed\"\nfilter = \"rank<8\"\nmouse = false\nkeep_state = true\n",
    )
    .unwrap();
    assert_eq!((config.page, config.metric), (Some(Page::Stacks), Some(Metric::Power)));
    assert!(config.sort.unwrap().reversed && config.keep_state && !config.mouse);
    assert_eq!(config.filter.unwrap().text(), "rank<8");
    assert!(Config::read("").unwrap().mouse);
}

#[test]
fn a_price_is_a_number_or_has_its_currency() {
    let price = |file: &str| Config::read(file).unwrap().price.map(|price| price.of(2.0).to_string());
    assert_eq!(price("gpu_hour_price = 2.5"), Some("5.00".to_owned()));
    assert_eq!(price("gpu_hour_price = 3"), Some("6.00".to_owned()));
    assert_eq!(price("gpu_hour_price = \"2.5 EUR\""), Some("5.00 EUR".to_owned()));
    assert_eq!((price(""), price("gpu_hour_price = 0")), (None, None));
    assert!(wrong("\ngpu_hour_price = \"cheap\"").starts_with("line 2: gpu_hour_price: cheap: a price is"));
}

/// People start from the examples in docs/tui.md.
#[test]
fn the_example_of_the_docs_is_valid() {
    let page = include_str!("../../../docs/tui.md");
    let (_, settings) = page.split_once("## Settings").expect("it has that part");
    let (settings, _) = settings.split_once("\n## ").expect("others follow");
    let lines: Vec<_> = settings.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let example = lines.join("\n");
    let config = Config::read(&example).unwrap_or_else(|fault| panic!("{fault}:\n{example}"));
    assert_eq!((config.page, config.keep_state), (Some(Page::Findings), true));
}

#[test]
fn keys_are_rebound_everywhere_or_in_one_view() {
    let keymap = Config::read("[keys]\nquit = [\"Q\", \"F10\"]\nback = \"z\"\n[keys.stacks]\nback = \"P\"\n")
        .unwrap()
        .keymap;
    let means = |text: &str, scope| format!("{:?}", keymap.lookup(key(text), scope));
    let back = format!("{:?}", Some(Action::Close));
    assert_eq!(means("Q", Scope::Page(Page::Overview)), format!("{:?}", Some(Action::Quit)));
    assert_eq!(means("q", Scope::Page(Page::Overview)), "None");
    // The program can always be quit.
    assert_eq!(means("Ctrl-c", Scope::Page(Page::Overview)), format!("{:?}", Some(Action::Quit)));
    assert_eq!(
        (means("z", Scope::Page(Page::Overview)), means("P", Scope::Page(Page::Stacks))),
        (back.clone(), back)
    );
    assert_eq!(means("z", Scope::Page(Page::Stacks)), "None");
}

#[test]
fn an_action_is_also_bound_by_its_earlier_name() {
    let keymap = Config::read("[keys]\nnext-odd = \"z\"\nturn-branch = \"F9\"\n").unwrap().keymap;
    let of = |text: &str| keymap.lookup(key(text), Scope::Page(Page::Stacks));
    assert!(matches!(of("z"), Some(Action::NextOutlier)), "{:?}", of("z"));
    assert!(matches!(of("F9"), Some(Action::ToggleBranch)), "{:?}", of("F9"));
}

#[test]
fn errors_are_reported_with_their_line_and_the_correct_form() {
    for (file, said) in [
        ("\nmuose = true", "line 2: unknown setting muose: did you mean mouse?"),
        ("mouse = \"yes\"", "line 1: mouse: expected true or false"),
        ("page = \"stakcs\"", "line 1: page: unknown view `stakcs`: write one of overview, gemm"),
        ("page = 1", "line 1: page: expected text in quotes"),
        ("sort = \"skw\"", "line 1: sort: unknown column skw: did you mean skew?"),
        ("\n\nfilter = \"tflps<3\"", "line 3: filter: unknown field tflps"),
        ("[keys]\n\npaus = \"p\"", "line 3: unknown action paus: did you mean pause?"),
        ("[keys]\npause = \"Spacebar\"", "line 2: pause: `Spacebar` is not a key"),
        ("[keys]\npause = [\"p\", 3]", "line 2: pause: expected text in quotes"),
        ("[keys]\npause = \"Shift-x\"", "line 2: pause: `Shift-x` is not a key"),
        ("[keys.stakcs]\npause = \"p\"", "line 1: unknown view stakcs: did you mean stacks?"),
        (
            "[keys.overview]\n\nnext-outlier = \"z\"",
            "line 3: unknown action next-outlier: did you mean next-outlier? in overview",
        ),
        ("[keys]\nreport = \"z\"\npause = \"j\"", "line 3: j is bound to both down and pause (Overview)"),
        ("[keys]\nreport = \"q\"", "line 2: q is bound to both report and quit"),
        ("mouse = true\nmouse = false", "line 2:"),
        ("mouse = ", "line 1:"),
        ("keys = 3", "line 1: keys is a table"),
    ] {
        let found = wrong(file);
        assert!(found.starts_with(said), "{file:?}: {found}");
    }
}

/// The sample contains the defaults: without its `#`, it is valid and changes nothing.
#[test]
fn the_sample_is_a_file_that_changes_nothing() {
    let uncommented: String = sample()
        .lines()
        .map(|line| {
            line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n"
        })
        .collect();
    let config = Config::read(&uncommented).unwrap_or_else(|fault| panic!("{fault}\n{uncommented}"));
    let usual = Keymap::default();
    for ((binding, own), (_, keys)) in config.keymap.all().zip(usual.all()) {
        assert_eq!(own, keys, "{:?}", binding.action);
    }
    assert!(config.filter.is_none() && config.mouse && !config.keep_state);
}

#[test]
fn a_key_is_read_as_it_is_written() {
    for binding in crate::keymap::BINDINGS.iter() {
        for key in binding.keys {
            assert_eq!(key.written().parse(), Ok(*key));
        }
    }
    assert_eq!(key("F5").written(), "F5");
}

#[test]
fn saved_state_is_restored_and_nonsense_is_ignored() {
    let folder = std::env::temp_dir().join(format!("xpu-top-state-{}", std::process::id()));
    let path = folder.join("deep").join("state.json");
    let state = State { page: "steps".to_owned(), filters: vec!["rank<3".to_owned()], ..State::default() };
    state.save(&path).unwrap();
    assert_eq!(State::load(&path), state);
    std::fs::write(&path, "{\"page\": 3").unwrap();
    assert_eq!(State::load(&path), State::default());
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "nothing lies beside it");
    std::fs::remove_dir_all(folder).unwrap();
}

proptest! {
    #[test]
    fn no_settings_file_causes_a_panic(text in any::<String>(), keys in "(\\[keys(\\.[a-z]{1,6})?\\]\n)?[a-z-]{1,8} = (\"[^\"]{0,8}\"|[0-9]|\\[\\])\n") {
        let _ = Config::read(&text);
        let _ = Config::read(&keys);
    }
}
