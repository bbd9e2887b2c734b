//! Which activity is recorded, and when the client gets the records.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use simgpu_engine::clock::Moment;
use simgpu_engine::driver::driver;
use simgpu_engine::trace::{Event, What};
use simgpu_engine::{lock, worker};

use crate::buffer::{self, Callbacks, Complete, Request};
use crate::call::{Error, Fault, call, fault, put, version};
use crate::record::{DRIVER, KINDS, RUNTIME, kind};
use crate::subscriber;

/// With this many records a buffer is given to the client without a flush.
const MANY: usize = 2_000;

/// How often the library's thread checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The first version that can enable single calls.
const ONE_BY_ONE: u32 = 24;

/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`
const FORCED: u32 = 1;

#[derive(Debug)]
struct State {
    callbacks: Option<Callbacks>,
    /// One bit for each kind that is enabled.
    kinds: u64,
    /// The kinds enabled at any time since the callbacks were registered: work launched then is recorded to
    /// its end.
    recorded: u64,
    runtime_calls: BTreeSet<u32>,
    driver_calls: BTreeSet<u32>,
    pending: Vec<Event>,
    dropped: usize,
    /// The number of records of work so far.
    works: usize,
    has_thread: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    callbacks: None,
    kinds: 0,
    recorded: 0,
    runtime_calls: BTreeSet::new(),
    driver_calls: BTreeSet::new(),
    pending: Vec::new(),
    dropped: 0,
    works: 0,
    has_thread: false,
});

impl State {
    fn wants(&self, event: &Event) -> bool {
        let on = |kinds: u64| kinds & (1 << kind(event)) != 0;
        match event.what {
            What::RuntimeCall => on(self.kinds) || self.runtime_calls.contains(&event.call),
            What::DriverCall => on(self.kinds) || self.driver_calls.contains(&event.call),
            _ => on(self.recorded),
        }
    }

    fn is_on(&self) -> bool {
        self.kinds != 0 || !self.runtime_calls.is_empty() || !self.driver_calls.is_empty()
    }
}

/// Called from launching threads and from the threads of streams.
extern "C" fn reported(event: *const Event) {
    // SAFETY: the timeline passes an event that outlives the call.
    let event = unsafe { *event };
    let mut state = lock(&STATE);
    if !state.wants(&event) || fault() == Fault::Silent {
        return;
    }
    if !matches!(event.what, What::RuntimeCall | What::DriverCall) {
        state.works += 1;
        if fault() == Fault::Drops && state.works.is_multiple_of(7) {
            state.dropped += 1;
            return;
        }
    }
    state.pending.push(event);
}

/// Changes what is recorded, and switches the timeline's tracing accordingly.
fn switch(change: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
    let driver = driver().ok_or(Error::NOT_INITIALIZED)?;
    let mut state = lock(&STATE);
    change(&mut state)?;
    // SAFETY: found by `Driver::find`; the sink stays as long as this library, which is never unmapped.
    unsafe { (driver.trace)(state.is_on().then_some(reported as _)) };
    if state.is_on() && !state.has_thread {
        state.has_thread = worker::spawn("simgpu-cupti", work).is_ok();
    }
    Ok(())
}

fn work() {
    loop {
        thread::sleep(LOOK_EVERY);
        buffer::write_late(Moment::now().ns());
        if lock(&STATE).pending.len() >= MANY {
            hand_out(false);
        }
    }
}

/// Gives the client the complete records, or all if `forced`.
fn hand_out(forced: bool) {
    let mut state = lock(&STATE);
    let Some(callbacks) = state.callbacks else { return };
    let now = Moment::now().ns();
    let (done, open): (Vec<_>, Vec<_>) =
        std::mem::take(&mut state.pending).into_iter().partition(|event| forced || event.end <= now);
    state.pending = open;
    drop(state);
    let done: Vec<_> = done.into_iter().map(|event| (event, event.end <= now)).collect();
    let lost = buffer::deliver(&done, callbacks);
    lock(&STATE).dropped += lost;
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<Request>,
    complete: Option<Complete>,
) -> c_int {
    call(|| {
        let (Some(request), Some(complete)) = (request, complete) else {
            return Err(Error::INVALID_PARAMETER);
        };
        let mut state = lock(&STATE);
        state.callbacks = Some(Callbacks { request, complete });
        state.recorded = state.kinds;
        Ok(())
    })
}

fn bit(kind: u32) -> Result<u64, Error> {
    if (1..KINDS).contains(&kind) { Ok(1 << kind) } else { Err(Error::INVALID_KIND) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityEnable(kind: u32) -> c_int {
    call(|| {
        let bit = bit(kind)?;
        if fault() == Fault::Refused {
            return Err(Error::INSUFFICIENT_PRIVILEGES);
        }
        switch(|state| {
            state.kinds |= bit;
            state.recorded |= bit;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityDisable(kind: u32) -> c_int {
    call(|| {
        let bit = bit(kind)?;
        switch(|state| {
            state.kinds &= !bit;
            match kind {
                RUNTIME => state.runtime_calls.clear(),
                DRIVER => state.driver_calls.clear(),
                _ => {}
            }
            Ok(())
        })
    })
}

fn one_call(calls: fn(&mut State) -> &mut BTreeSet<u32>, number: u32, enable: u8) -> c_int {
    call(|| {
        if version() < ONE_BY_ONE {
            return Err(Error::NOT_SUPPORTED);
        }
        switch(|state| {
            if enable == 0 {
                calls(state).remove(&number);
            } else {
                calls(state).insert(number);
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityEnableRuntimeApi(number: u32, enable: u8) -> c_int {
    one_call(|state| &mut state.runtime_calls, number, enable)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityEnableDriverApi(number: u32, enable: u8) -> c_int {
    one_call(|state| &mut state.driver_calls, number, enable)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityFlushAll(flag: u32) -> c_int {
    call(|| {
        if lock(&STATE).callbacks.is_none() {
            return Err(Error::INVALID_OPERATION);
        }
        hand_out(flag & FORCED != 0);
        Ok(())
    })
}

/// The number of records dropped since the last call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> c_int {
    // SAFETY: CUPTI requires a writable pointer.
    call(|| unsafe { put(dropped, std::mem::take(&mut lock(&STATE).dropped)) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiFinalize() -> c_int {
    call(|| {
        subscriber::forget();
        switch(|state| {
            (state.kinds, state.recorded, state.callbacks) = (0, 0, None);
            state.runtime_calls.clear();
            state.driver_calls.clear();
            state.pending.clear();
            Ok(())
        })
    })
}
