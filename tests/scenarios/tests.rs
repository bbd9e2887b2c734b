//! Plays a part of the catalogue, and checks that each scenario is reported correctly.

use crate::{
    HELD_OUT, TUNING,
    catalogue::{NAMES, scenario},
    verdict::{Watch, play},
};

/// Each healthy kind, each hang, and slow ranks of each cause.
#[test]
fn one_scenario_of_each_kind_is_diagnosed_correctly() {
    for name in NAMES {
        for ranks in [1, 2, 8, 64] {
            let Some(scenario) = scenario(name, ranks, TUNING + 4) else { continue };
            let verdict = play(&scenario, Watch::default());
            // Where half the ranks are slow, the first are reported before the others have become slow.
            let wrong = if name.ends_with("half of the ranks") { 0 } else { verdict.wrong.len() };
            assert_eq!(wrong, 0, "{name}, {ranks} ranks: {verdict:#?}");
            assert_eq!(verdict.in_time, !scenario.expected.is_empty(), "{name}, {ranks} ranks: {verdict:#?}");
        }
    }
}

/// By how much of the time since then the begins of both viewers may differ. Of a fault of three minutes ago, the
/// history of 20 hosts has digests of 110 s unmerged, and merges 3 to 6 % of the time before.
const SINCE: f64 = 0.1;

/// The late viewer gets as few digests as from 20 hosts, of which the older ones are merged.
#[test]
fn late_viewers_report_the_same_cause_and_begin() {
    let watch = Watch { long: 180.0, hosts: Some(20) };
    let half = "slow compute, half of the ranks";
    for name in ["throttled clocks", "slow data loader", "copies", "slow compute", half] {
        for seed in [4, 5] {
            let Some(scenario) = scenario(name, 8, TUNING + seed) else { continue };
            let verdict = play(&scenario, watch);
            assert_eq!(verdict.late, Some(true), "{name}, seed {seed}: {verdict:#?}");
            let differs = verdict.since_differs_by();
            assert!(differs.is_some_and(|share| share <= SINCE), "{name}, seed {seed}: {verdict:#?}");
        }
    }
}

/// A rank with more work than the others had it before its host became slow.
#[test]
fn expert_with_a_slow_data_loader_is_a_late_host() {
    let scenario = scenario("slow data loader", 8, HELD_OUT).expect("it is played with eight ranks");
    let verdict = play(&scenario, Watch::default());
    assert!(verdict.wrong.is_empty() && verdict.in_time, "{verdict:#?}");
}
