//! A panic while a screen is up: its message is printed where it can be read, on a terminal that was given back.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic,
    sync::{Mutex, Once, PoisonError, atomic::Ordering::SeqCst},
    thread,
};

use tokio::sync::Notify;

use super::{TAKEN, give_back};

/// What a thread said that panicked beside the screen. The first is the cause, others its consequences.
static SAID: Mutex<Option<String>> = Mutex::new(None);
static HEARD: Notify = Notify::const_new();

/// From now on a panic of this thread gives the terminal back first; one of another thread is kept for [`failed`], because
/// this thread may be in the midst of a picture.
pub(super) fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let owner = thread::current().id();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == owner {
                give_back();
            } else if TAKEN.load(SeqCst) {
                keep(panic.to_string());
                return;
            }
            before(panic);
        }));
    });
}

fn keep(mut said: String) {
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        said = format!("{said}\n{trace}");
    }
    SAID.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
    HEARD.notify_one();
}

/// Waits until another thread has panicked, for its message.
pub async fn failed() -> String {
    HEARD.notified().await;
    SAID.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
}
