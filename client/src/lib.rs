//! Code shared by the screen and the commands: follows a job live or in a recording, selects its ranks, and
//! captures its steps. Nothing here draws.

pub mod arrival;
mod background;
pub mod capture;
pub mod filter;
pub mod follow;
pub mod inquiry;
pub mod interactive;
pub mod kept;
pub mod kineto;
pub mod live;
pub mod nearest;
pub mod new_file;
pub mod recording_writer;
pub mod replay_file;
pub mod request;
pub mod sample;
pub mod screen_capture;
pub mod step_capture;
pub mod time;
