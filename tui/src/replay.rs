//! A recording on the screen: frames come from a file, or from the last minutes in memory, and the keys
//! control time.
//!
//! ```text
//! recording ──FrameCursor──▶ Player ──Action::Show──▶ app      keys ──Control──▶ Playback ──Effect::Seek──▶ Player
//!           ──FrameCursor──▶ search (a thread) ──marks──▶ app
//! ```
//!
//! Drawing and findings use the same code as for a live job.

mod drop_thread;
mod player;
mod search;

pub use player::Player;
pub use search::{Search, findings_between};
