//! Plays a part of the catalogue, and checks that each scenario is reported correctly.

use crate::{
    TUNING,
    catalogue::{NAMES, scenario},
    verdict::play,
};

/// Each healthy kind, each hang, and slow ranks of each cause.
#[test]
fn one_scenario_of_each_kind_is_diagnosed_correctly() {
    for name in NAMES {
        for ranks in [1, 2, 8, 64] {
            let Some(scenario) = scenario(name, ranks, TUNING + 4) else { continue };
            let verdict = play(&scenario);
            // Where half the ranks are slow, the first are reported before the others have become slow.
            let wrong = if name.ends_with("half of the ranks") { 0 } else { verdict.wrong.len() };
            assert_eq!(wrong, 0, "{name}, {ranks} ranks: {verdict:#?}");
            assert_eq!(verdict.in_time, !scenario.expected.is_empty(), "{name}, {ranks} ranks: {verdict:#?}");
        }
    }
}
