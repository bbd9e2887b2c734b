//! Whether a host can be reached.

use serde::{Deserialize, Serialize};

/// Whether a host's collector answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    Connecting,
    Up,
    /// It does not answer. `why` gives the attempts and the remedy.
    Down {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
}
