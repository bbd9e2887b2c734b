//! Selects the ranks of a capture.

use xpu_analysis::capture::{Capture, Groups};

use crate::args::{SelectArgs, UsageError};

impl SelectArgs {
    /// Leaves out ranks that were not requested.
    pub(in crate::command) fn apply(&self, capture: &mut Capture) -> Result<Option<&Groups>, UsageError> {
        let Some(groups) = &self.groups else { return Ok(None) };
        check(groups, capture).map_err(UsageError::Value)?;
        if let Some(only) = &self.only {
            groups.check(only).map_err(UsageError::Value)?;
            capture.ranks.retain(|&rank, _| groups.takes(only, rank));
            if capture.ranks.is_empty() {
                return Err(UsageError::Value("--only: the file has no such rank".to_owned()));
            }
        }
        Ok(Some(groups))
    }
}

/// The product of the sizes is the number of ranks.
fn check(groups: &Groups, capture: &Capture) -> Result<(), String> {
    let product = groups.world_size();
    let world_size = capture.world_size.map(u64::from).filter(|&world_size| world_size != product);
    let beyond = capture.ranks.keys().next_back().filter(|last| u64::from(last.process().0) >= product);
    match (world_size, beyond) {
        (Some(world_size), _) => {
            Err(format!("--groups has places for {product} ranks, and the job has {world_size}"))
        }
        (None, Some(last)) => {
            Err(format!("--groups has places for {product} ranks, and rank {last} is in the file"))
        }
        (None, None) => Ok(()),
    }
}
