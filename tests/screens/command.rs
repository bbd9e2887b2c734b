//! The `:` prompt: commands by name.

use xpu_client::capture::Wanted;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{action::Effect, keymap::Scope, page::Page};

use crate::{SMALL, golden_at, one_slow};

#[test]
fn commands_do_what_keys_do() {
    let mut lab = one_slow();
    lab.keys(":metric late<Enter>").screen(132, 40).shows("arrival skew ms");
    lab.keys(":sort late<Enter>").screen(132, 40).shows("skew ms↓");
    lab.keys(":sort tflops reversed<Enter>").screen(132, 40).shows("TFLOPS↓");
    lab.keys(":filter rank<3<Enter>").screen(132, 40).shows("Ranks / rank<3");
    lab.keys(":filter<Enter>").screen(132, 40).hides("rank<3");
    lab.keys(":stacks<Enter>");
    assert_eq!(lab.app().scope(), Scope::Page(Page::Stacks));
    lab.keys(":rank 37<Enter>");
    assert_eq!(lab.app().scope(), Scope::Page(Page::Rank));
    lab.keys(":w here.svg<Enter>:capture 5<Enter>:q<Enter>");
    let last = &lab.effects()[lab.effects().len() - 3..];
    assert_eq!(
        last,
        [Effect::Save("here.svg".into()), Effect::Capture(Some(Wanted::Steps(5))), Effect::Quit]
    );
}

#[test]
fn an_impossible_command_is_refused_with_the_reason() {
    let mut lab = one_slow();
    lab.keys(":rank 99<Enter>").screen(80, 24).shows("rank 99 was not seen: the last one is 63");
    lab.keys(":job lama<Enter>").screen(132, 40).shows("unknown job lama: did you mean llama-70b?");
    lab.keys(":goto 12:00<Enter>").screen(132, 40).shows("the screen is live");
    lab.keys(":metric powr<Enter>")
        .screen(80, 24)
        .shows("        ^ unknown quantity powr: did you mean power?");
    golden_at("command-fault", SMALL, &mut lab);
    lab.keys("<Esc>").screen(80, 24).hides("powr");
    let mut just_found = Lab::recorded(Simulation::new(7, 1, 8));
    let said = "no rank has reported exposed comm % yet";
    just_found.keys(":metric exposed<Enter>").screen(132, 40).shows(said).shows("GEMM TFLOPS");
}

#[test]
fn names_are_completed_from_the_table() {
    let mut lab = one_slow();
    lab.keys(":").screen(80, 24).shows("for example metric power");
    lab.keys("s<Tab>").screen(80, 24).shows(": sort").shows("stacks");
    golden_at("command-completed", SMALL, &mut lab);
    lab.keys(" sk<Tab>").screen(80, 24).shows(": sort skew").shows("sort [COLUMN [reversed]]");
    // The previous command returns.
    lab.keys("<Enter>:<Up>").screen(80, 24).shows(": sort skew");
}
