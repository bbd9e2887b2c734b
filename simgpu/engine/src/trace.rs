//! Reports work and launches to a tracer, the stand-in CUPTI. Without a tracer, a launch only reads one flag.

use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::clock::Moment;

/// The kind of a piece of work.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// The address of its name: a C string that is never freed.
    Kernel(usize),
    /// `kind` is a `cudaMemcpyKind`.
    Copy {
        kind: i32,
        bytes: u64,
    },
    Set {
        bytes: u64,
    },
}

/// The library whose function a program called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Library {
    Driver = 0,
    Runtime = 1,
}

/// The report. Times are nanoseconds of [`Moment`]; those of work may be in the future.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub what: What,
    /// A call and all work that it launched have the same number.
    pub correlation: u32,
    pub begin: u64,
    pub end: u64,
    /// For a call: CUPTI's number of the function, and the lower half of the thread's `pthread_t`.
    pub call: u32,
    pub thread: u32,
    pub stream: u32,
    pub device: i32,
    pub name: usize,
    pub kind: i32,
    pub bytes: u64,
}

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    DriverCall,
    RuntimeCall,
    Kernel,
    Copy,
    Set,
}

pub type Sink = extern "C" fn(*const Event);

static ON: AtomicBool = AtomicBool::new(false);
static SINK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static CORRELATIONS: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The correlation of the traced call in which this thread is.
    static CALL: Cell<u32> = const { Cell::new(0) };
}

/// Starts or stops the tracing of launches. Earlier launches are still reported to the last sink.
pub fn set(sink: Option<Sink>) {
    if let Some(sink) = sink {
        SINK.store(sink as *mut (), Ordering::Release);
    }
    ON.store(sink.is_some(), Ordering::Release);
}

/// Runs a call that launches work. Of nested calls, only the outermost is traced.
pub fn calling<T>(library: Library, call: u32, body: impl FnOnce() -> T) -> T {
    if !ON.load(Ordering::Acquire) || CALL.get() != 0 {
        return body();
    }
    let correlation = CORRELATIONS.fetch_add(1, Ordering::Relaxed);
    let begin = Moment::now();
    CALL.set(correlation);
    let done = body();
    CALL.set(0);
    let what = if library == Library::Runtime { What::RuntimeCall } else { What::DriverCall };
    // SAFETY: pthread_self has no precondition.
    let thread = unsafe { libc::pthread_self() } as u32;
    deliver(&Event { call, thread, ..event(what, correlation, begin, Moment::now()) });
    done
}

/// Work whose launch is traced.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    correlation: u32,
    task: Task,
}

/// `None` without a tracer.
#[must_use]
pub fn launched(task: Option<Task>) -> Option<Traced> {
    let correlation = CALL.get();
    task.filter(|_| correlation != 0).map(|task| Traced { correlation, task })
}

impl Traced {
    pub fn ran(self, stream: u64, device: i32, begin: Moment, end: Moment) {
        let of = |what| Event { stream: stream as u32, device, ..event(what, self.correlation, begin, end) };
        deliver(&match self.task {
            Task::Kernel(name) => Event { name, ..of(What::Kernel) },
            Task::Copy { kind, bytes } => Event { kind, bytes, ..of(What::Copy) },
            Task::Set { bytes } => Event { bytes, ..of(What::Set) },
        });
    }
}

fn event(what: What, correlation: u32, begin: Moment, end: Moment) -> Event {
    let (begin, end) = (begin.ns(), end.ns());
    Event {
        what,
        correlation,
        begin,
        end,
        call: 0,
        thread: 0,
        stream: 0,
        device: 0,
        name: 0,
        kind: 0,
        bytes: 0,
    }
}

fn deliver(event: &Event) {
    let sink = SINK.load(Ordering::Acquire);
    if !sink.is_null() {
        // SAFETY: only `set` writes it, and from a `Sink`.
        let sink = unsafe { mem::transmute::<*mut (), Sink>(sink) };
        sink(event);
    }
}
