//! The launches that most steps have in common. They show the stages, and steps with others are left out: an
//! evaluation or a checkpoint may have sends to other ranks.

use std::{cmp::Reverse, collections::BTreeMap};

use xpu_wire::id::CommunicatorId;

use super::{
    Refusal,
    launch::{Launch, What},
    launches::Launches,
    stages::Stages,
    track::Whole,
};
use crate::capture::Capture;

pub(super) struct Usual {
    pub(super) stages: Stages,
    pub(super) launches: Launches,
    /// For each step, whether it has these launches.
    pub(super) in_steps: Vec<bool>,
}

/// What each rank launches in a step.
type Launched<'a> = Vec<Vec<(CommunicatorId, &'a What)>>;

impl Usual {
    /// Refuses the most common launches if their messages are not those of a pipeline.
    pub(super) fn of(capture: &Capture, all: &[Whole<'_>]) -> Result<Self, Refusal> {
        let mut equal: BTreeMap<Launched<'_>, Vec<usize>> = BTreeMap::new();
        for (number, step) in all.iter().enumerate() {
            equal.entry(launched(step)).or_default().push(number);
        }
        let mut sets: Vec<Vec<usize>> = equal.into_values().collect();
        sets.sort_by_key(|steps| (Reverse(steps.len()), steps[0]));
        let mut refused = None;
        for steps in sets {
            let of_ranks = || all[steps[0]].of_ranks();
            let stages = Stages::of(capture, of_ranks())?;
            if let Some(launches) = Launches::of(capture, &stages, of_ranks())? {
                let in_steps = (0..all.len()).map(|number| steps.binary_search(&number).is_ok()).collect();
                return Ok(Self { stages, launches, in_steps });
            }
            // The ranks of a stage launched different operations in these steps.
            refused.get_or_insert_with(|| {
                let of = if stages.is_pipeline() { "the ranks of a stage" } else { "its ranks" };
                stages.refused(&format!("{of} do not launch the same operations"))
            });
        }
        Err(refused.unwrap_or(Refusal::NoSteps))
    }
}

fn launched<'a>(step: &'a Whole<'_>) -> Launched<'a> {
    let of_rank = |launches: &'a [Launch]| launches.iter().map(|one| (one.communicator, &one.what)).collect();
    step.of_ranks().map(|(_, launches)| of_rank(launches)).collect()
}
