//! A recording on the screen: frames come from a file, or from the last minutes in memory, and the keys
//! control time.
//!
//! ```text
//! recording ──FrameCursor──▶ Player ──Action::Show──▶ app      keys ──Control──▶ Playback ──Effect::Seek──▶ Player
//!           ──FrameCursor──▶ search (a thread) ──marks──▶ app
//! ```
//!
//! Drawing and findings use the same code as for a live job.

mod control;
mod drop_thread;
mod playback;
mod player;
mod search;

pub use control::{Control, control, go_to};
pub use playback::{Mark, Of, Playback, Speed};
pub use player::Player;
pub(crate) use player::between_looks;
pub use search::{Search, findings_between};
