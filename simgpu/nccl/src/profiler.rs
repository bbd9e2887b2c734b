//! The profiler plugin interface for collectives, transfers and groups, in the version of the simulated NCCL:
//! `init`, the events of calls from version 5 on, and the events of launches in all versions. As in NCCL, an
//! outermost group is one event, whose end is reported before the group launches. Launches are reported on
//! the launching thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::{mem, ptr};

use crate::about;
use crate::communicator::Communicator;

type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
type Stop = unsafe extern "C" fn(*mut c_void) -> c_int;
type Record = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
type Init3 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

#[repr(C)]
struct Table {
    name: *const c_char,
    init: *const c_void,
    start: Start,
    stop: Stop,
    record: Record,
    finalize: Stop,
}

// SAFETY: nothing in it changes.
unsafe impl Sync for Table {}

struct Plugin {
    version: usize,
    table: &'static Table,
}

/// `ncclProfilerEventMask`
static MASK: AtomicI32 = AtomicI32::new(0);

const GROUP: u64 = 1;
const COLL: u64 = 1 << 1;
const P2P: u64 = 1 << 2;
const GROUP_API: u64 = 1 << 8;
const COLL_API: u64 = 1 << 9;
const P2P_API: u64 = 1 << 10;

/// States of a group.
const STARTED: c_int = 23;
const ENDS: c_int = 24;

/// A call between its event and its launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub func: &'static CStr,
    pub count: usize,
    pub data_type: c_int,
    pub root: c_int,
    pub stream: usize,
    pub is_collective: bool,
}

#[derive(Default)]
struct Open {
    /// The event of the group; NULL while there is none.
    group: usize,
    calls: Vec<(Arc<Communicator>, Call, usize)>,
}

thread_local! {
    static OPEN: RefCell<Open> = const { RefCell::new(Open { group: 0, calls: Vec::new() }) };
}

/// The data by which a plugin knows a communicator.
#[derive(Debug, Default)]
pub(crate) struct Context(AtomicPtr<c_void>);

fn plugin() -> Option<&'static Plugin> {
    static PLUGIN: OnceLock<Option<Plugin>> = OnceLock::new();
    PLUGIN.get_or_init(load).as_ref()
}

fn load() -> Option<Plugin> {
    let name = CString::new(std::env::var("NCCL_PROFILER_PLUGIN").ok()?).ok()?;
    let is_static = name.as_bytes() == b"STATIC_PLUGIN";
    let file = if is_static { ptr::null() } else { name.as_ptr() };
    // SAFETY: the name is a string, or NULL for the program.
    let library = unsafe { libc::dlopen(file, libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    let newest = match about::version() {
        23_102.. => 7,
        22_902.. => 6,
        22_803.. => 5,
        22_703.. => 4,
        22_602.. => 3,
        22_403.. => 2,
        22_304.. => 1,
        _ => 0,
    };
    (1..=newest).rev().find_map(|version| {
        let symbol = CString::new(format!("ncclProfiler_v{version}")).ok()?;
        // SAFETY: the library stays open.
        let table = unsafe { libc::dlsym(library, symbol.as_ptr()).cast::<Table>().as_ref() }?;
        Some(Plugin { version, table })
    })
}

fn mask() -> u64 {
    u64::from(MASK.load(Ordering::Relaxed).cast_unsigned())
}

impl Context {
    pub(crate) fn begin(&self, hash: u64, ranks: u32, rank: u32) {
        let Some(plugin) = plugin() else { return };
        let (mut context, mask) = (ptr::null_mut(), MASK.as_ptr());
        let [ranks, rank] = [ranks, rank].map(|number| c_int::try_from(number).unwrap_or(c_int::MAX));
        let (at, name, log) = (plugin.table.init, ptr::null(), ptr::null());
        // SAFETY: a plugin of this version has an `init` of this signature.
        let result = unsafe {
            match plugin.version {
                5.. => mem::transmute::<*const c_void, Init5>(at)(
                    &raw mut context,
                    hash,
                    mask,
                    name,
                    1,
                    ranks,
                    rank,
                    log,
                ),
                4 => mem::transmute::<*const c_void, Init4>(at)(
                    &raw mut context,
                    mask,
                    name,
                    hash,
                    1,
                    ranks,
                    rank,
                    log,
                ),
                _ => mem::transmute::<*const c_void, Init3>(at)(&raw mut context, mask),
            }
        };
        if result == 0 {
            self.0.store(context, Ordering::Relaxed);
        }
    }

    pub(crate) fn end(&self) {
        let context = self.0.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(plugin) = plugin().filter(|_| !context.is_null()) {
            // SAFETY: it is the plugin's own context.
            unsafe { (plugin.table.finalize)(context) };
        }
    }
}

/// An event's descriptor, filled in field by field.
struct Descriptor([u64; 17]);

impl Descriptor {
    fn new(plugin: &Plugin, kind: u64, parent: usize, rank: u32) -> Self {
        let mut new = Self([0; 17]);
        if plugin.version < 5 {
            new.put(0, kind as u8);
        } else {
            new.put(0, kind);
        }
        new.put(8, parent);
        new.put(16, rank);
        new
    }

    fn put<T: Copy>(&mut self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= size_of_val(&self.0), "within the descriptor");
        // SAFETY: the field is within the descriptor.
        unsafe { self.0.as_mut_ptr().byte_add(offset).cast::<T>().write_unaligned(value) };
    }

    fn start(&mut self, plugin: &Plugin, comm: &Communicator) -> usize {
        let mut handle = ptr::null_mut();
        let context = comm.profiler.0.load(Ordering::Relaxed);
        // SAFETY: it is a descriptor of the plugin's version, and the plugin's own context.
        unsafe { (plugin.table.start)(context, &raw mut handle, self.0.as_mut_ptr().cast()) };
        handle.addr()
    }
}

fn stop(plugin: &Plugin, handle: usize) {
    if handle != 0 {
        // SAFETY: the handle is the plugin's own.
        unsafe { (plugin.table.stop)(ptr::without_provenance_mut(handle)) };
    }
}

fn record(plugin: &Plugin, handle: usize, state: c_int) {
    if handle != 0 {
        // SAFETY: the handle is the plugin's own.
        unsafe { (plugin.table.record)(ptr::without_provenance_mut(handle), state, ptr::null_mut()) };
    }
}

/// Reports a call, does it, and reports its launch unless the call is in a group.
pub(crate) fn call<T>(comm: &Arc<Communicator>, call: Call, depth: u32, submit: impl FnOnce() -> T) -> T {
    let Some(plugin) = plugin() else { return submit() };
    let wanted = mask();
    if wanted & (GROUP | COLL | P2P | GROUP_API | COLL_API | P2P_API) == 0 {
        return submit();
    }
    OPEN.with_borrow_mut(|open| {
        let mut handle = 0;
        if plugin.version >= 5 {
            if open.calls.is_empty() {
                let mut event = Descriptor::new(plugin, GROUP_API, 0, 0);
                event.put(28, depth + 1);
                open.group = event.start(plugin, comm);
                record(plugin, open.group, STARTED);
            }
            let kinds = if call.is_collective { COLL_API | COLL } else { P2P_API | P2P };
            if wanted & kinds != 0 {
                handle = called(plugin, comm, call, open.group);
            }
        }
        open.calls.push((Arc::clone(comm), call, handle));
    });
    if depth > 0 { submit() } else { launch(submit) }
}

fn called(plugin: &Plugin, comm: &Communicator, call: Call, group: usize) -> usize {
    let kind = if call.is_collective { COLL_API } else { P2P_API };
    let mut event = Descriptor::new(plugin, kind, group, 0);
    event.put(24, call.func.as_ptr());
    event.put(32, call.count);
    event.put(40, name(call.data_type).as_ptr());
    if call.is_collective {
        event.put(48, call.root);
        event.put(56, call.stream);
    } else {
        event.put(48, call.stream);
    }
    let handle = event.start(plugin, comm);
    stop(plugin, handle);
    handle
}

/// The outermost end of a group, or a call outside a group.
pub(crate) fn launch<T>(submit: impl FnOnce() -> T) -> T {
    let (group, calls) =
        OPEN.with_borrow_mut(|open| (mem::take(&mut open.group), mem::take(&mut open.calls)));
    let Some(plugin) = plugin().filter(|_| !calls.is_empty()) else { return submit() };
    record(plugin, group, ENDS);
    let result = submit();
    for (comm, call, parent) in &calls {
        if mask() & (if call.is_collective { COLL } else { P2P }) != 0 {
            let handle = launched(plugin, comm, *call, *parent);
            stop(plugin, handle);
        }
    }
    stop(plugin, group);
    result
}

fn launched(plugin: &Plugin, comm: &Communicator, call: Call, parent: usize) -> usize {
    let kind = if call.is_collective { COLL } else { P2P };
    let mut event = Descriptor::new(plugin, kind, parent, comm.rank);
    // Before version 4, the communicator's name and hash come first. In version 1, names are numbers.
    let moved = if plugin.version < 4 { 16 } else { 0 };
    if moved > 0 {
        event.put(32, comm.greeting.hash);
    }
    if !call.is_collective {
        if plugin.version == 1 {
            event.put(40, number(call.func));
            event.put(56, call.data_type as u8);
        } else {
            event.put(24 + moved, call.func.as_ptr());
            event.put(40 + moved, name(call.data_type).as_ptr());
        }
        event.put(48 + moved, call.count);
        event.put(56 + moved, call.root);
        return event.start(plugin, comm);
    }
    // NCCL reports the size of these in bytes.
    let in_bytes = [c"AllGather", c"Broadcast"].contains(&call.func);
    let (count, data_type) = if in_bytes {
        let bytes = crate::action::bytes(call.count, call.data_type).unwrap_or(0);
        (usize::try_from(bytes).unwrap_or(0), 0)
    } else {
        (call.count, call.data_type)
    };
    event.put(56 + moved, count);
    event.put(64 + moved, call.root);
    let channels: u8 = 24;
    match plugin.version {
        1 => {
            event.put(48, number(call.func));
            event.put(84, data_type as u8);
            event.put(104, channels);
            event.put(106, 1_u8);
            event.put(107, 2_u8);
        }
        version => {
            event.put(32 + moved, call.func.as_ptr());
            event.put(72 + moved, name(data_type).as_ptr());
            let at = if version == 2 { 104 } else { 80 + moved };
            event.put(at, channels);
            event.put(at + 8, c"RING".as_ptr());
            event.put(at + 16, c"SIMPLE".as_ptr());
        }
    }
    event.start(plugin, comm)
}

fn name(data_type: c_int) -> &'static CStr {
    match data_type {
        0 => c"ncclInt8",
        2 => c"ncclInt32",
        3 => c"ncclUint32",
        4 => c"ncclInt64",
        5 => c"ncclUint64",
        6 => c"ncclFloat16",
        7 => c"ncclFloat32",
        8 => c"ncclFloat64",
        9 => c"ncclBfloat16",
        10 => c"ncclFloat8e4m3",
        11 => c"ncclFloat8e5m2",
        _ => c"Unknown",
    }
}

/// The number of an operation in version 1.
fn number(func: &CStr) -> u8 {
    let all = [
        c"Broadcast",
        c"Reduce",
        c"AllGather",
        c"ReduceScatter",
        c"AllReduce",
        c"SendRecv",
        c"Send",
        c"Recv",
    ];
    all.iter().position(|&one| one == func).map_or(u8::MAX, |place| place as u8)
}
