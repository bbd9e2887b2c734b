//! A panic while a screen is shown: its message is printed after the terminal was restored, where it can be
//! read.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic,
    sync::{Mutex, Once, PoisonError, atomic::Ordering::SeqCst},
    thread,
};

use tokio::sync::Notify;

use super::{TAKEN, give_back};

/// The message of another thread that panicked. The first panic is the cause, others are its consequences.
static SAID: Mutex<Option<String>> = Mutex::new(None);
static HEARD: Notify = Notify::const_new();

/// From now on a panic of this thread restores the terminal first. A panic of another thread is kept for
/// [`failed`], because this thread may be drawing.
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
