//! Whether there is room for what ZeroMQ makes.
//!
//! libzmq ends the whole process where it gets no thread or no descriptor (`thread.cpp`, `epoll.cpp`). So the hook asks for
//! more of both than libzmq will, gives them back, and only then starts it.

use std::{
    os::fd::{FromRawFd as _, OwnedFd},
    sync::mpsc,
    thread,
};

/// A context with one socket makes two threads and holds eight descriptors; what the program opens next needs some too.
const THREADS: usize = 4;
const DESCRIPTORS: usize = 24;

pub(crate) fn is_left() -> bool {
    descriptors_are_left() && threads_are_left()
}

fn descriptors_are_left() -> bool {
    let make = || {
        // SAFETY: eventfd has no precondition.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        // SAFETY: the descriptor was just made and belongs to nobody else.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let made: Vec<OwnedFd> = std::iter::repeat_with(make).map_while(|fd| fd).take(DESCRIPTORS).collect();
    made.len() == DESCRIPTORS
}

/// All of them at once: each waits until the sender is gone.
fn threads_are_left() -> bool {
    let mut senders = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..THREADS {
        let (sender, receiver) = mpsc::channel::<()>();
        let wait = move || _ = receiver.recv();
        let Ok(thread) =
            thread::Builder::new().name("xpu-top-room".to_owned()).stack_size(64 << 10).spawn(wait)
        else {
            break;
        };
        senders.push(sender);
        waiting.push(thread);
    }
    drop(senders);
    waiting.into_iter().filter_map(|thread| thread.join().ok()).count() == THREADS
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ordinary_process_has_room() {
        assert!(super::is_left());
    }
}
