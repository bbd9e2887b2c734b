//! A recording on the screen: frames come from a file, or from the memory of the last minutes, and time is what the keys make it.
//!
//! ```text
//! recording ──Tape──▶ Projector ──Action::Show──▶ app      keys ──Control──▶ Playback ──Effect::Seek──▶ Projector
//!           ──Tape──▶ search (a thread) ──marks──▶ app
//! ```
//!
//! What is drawn, and what is found wrong, comes of the same code as live.

mod control;
mod playback;
mod projector;
mod search;
mod tape;
pub mod time;
mod wings;

pub use control::{Control, control, go_to};
pub use playback::{Mark, Of, Playback, Speed};
pub use projector::Projector;
pub(crate) use projector::between_looks;
pub use search::{Search, findings_between};
pub use tape::{Tape, TapeError};
