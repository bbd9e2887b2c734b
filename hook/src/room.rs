//! Whether there is room for what ZeroMQ makes.
//!
//! libzmq ends the whole process where it gets no thread, no descriptor or no memory (`thread.cpp`, `epoll.cpp`, `err.hpp`). So
//! the hook asks for more of each than libzmq will, gives them back, and only then starts it. What goes between the two is
//! left to [`crate::last_resort`].

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    os::fd::{FromRawFd as _, OwnedFd},
    ptr,
    sync::Mutex,
};

use crate::memory;

/// A context with one socket makes two threads and holds eight descriptors; what the program opens next needs some too.
const THREADS: usize = 4;
const DESCRIPTORS: usize = 24;

/// Each thread reserves as much address space for what it allocates (an arena of glibc, aligned to its size).
const ARENA: usize = 128 << 20;

/// What libzmq holds while it sends.
const BUFFERS: usize = 16 << 20;

pub(crate) fn is_left() -> bool {
    memory::is_left(THREADS * (ARENA + stack()) + BUFFERS) && descriptors_are_left() && threads_are_left()
}

/// Room for what a socket that is open may come to hold.
pub(crate) fn is_left_to_send() -> bool {
    memory::is_left(BUFFERS)
}

/// The stack a thread gets that asks for nothing else, as libzmq's do.
fn stack() -> usize {
    const USUAL: usize = 8 << 20;
    let mut attributes = MaybeUninit::uninit();
    let mut size = 0;
    // SAFETY: the attributes are initialised by the first call and destroyed by the last; `size` outlives the second.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return USUAL;
        }
        libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    if size == 0 { USUAL } else { size }
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

/// All of them at once: each waits until the gate is open. Made as libzmq makes its own; what the standard library keeps for
/// a thread would stay behind each time (see [`crate::last_resort`]).
fn threads_are_left() -> bool {
    let gate = Mutex::new(());
    let shut = gate.lock();
    let made: Vec<_> =
        std::iter::repeat_with(|| waiting_at(&gate)).map_while(|thread| thread).take(THREADS).collect();
    drop(shut);
    for &thread in &made {
        // SAFETY: it was made above, and is joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    made.len() == THREADS
}

fn waiting_at(gate: &Mutex<()>) -> Option<libc::pthread_t> {
    extern "C" fn wait(gate: *mut c_void) -> *mut c_void {
        // SAFETY: the maker keeps the gate until it has joined this thread.
        drop(unsafe { &*gate.cast::<Mutex<()>>() }.lock());
        ptr::null_mut()
    }
    let mut thread = MaybeUninit::uninit();
    let gate = ptr::from_ref(gate).cast_mut().cast();
    // SAFETY: `thread` is storage for the one that is made, whose body takes the gate.
    unsafe {
        (libc::pthread_create(thread.as_mut_ptr(), ptr::null(), wait, gate) == 0)
            .then(|| thread.assume_init())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ordinary_process_has_room() {
        assert!(super::is_left());
    }
}
