//! The health of the GPUs of this host on which ranks run.
//!
//! A call to the management library (NVML) can block for long if a GPU is faulty, so a separate thread reads
//! each GPU and stores its values in a [`Slot`]. The serving thread only reads the slot, and reports the age
//! of its values.

mod errors;
mod gpu;
mod library;
mod pace;
mod processes;
mod traffic;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use xpu_wire::{
    frame::{DeviceReading, GpuLoad, GpuProcess, Xid},
    id::DeviceUuid,
    unit::Moment,
};

/// A GPU is no longer read after this time without a request for it.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// A GPU that could not be found, or a library that could not be opened, is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// Largest number of GPUs read. A host has tens, but each GPU that a worker reports costs a thread, even a
/// wrong one.
const MOST: usize = 64;

/// The values that the thread of one GPU stores. No lock here is held during a library call.
#[derive(Debug, Default)]
struct Slot {
    reading: Mutex<Option<DeviceReading>>,
    /// The GPU's load, and the time of that reading.
    load: Mutex<Option<(Moment, GpuLoad)>>,
    /// The processes that use the GPU, if there are several, and the time of that reading.
    processes: Mutex<(Moment, Vec<GpuProcess>)>,
    /// `None` while errors cannot be received.
    xids: Mutex<Option<Xids>>,
    /// Whether this GPU is no longer needed: its threads then end.
    unwanted: AtomicBool,
    /// Whether the thread has ended: there is no library, no such GPU, or it was unwanted.
    ended: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Xids {
    count: u32,
    last: Option<Xid>,
}

#[derive(Debug)]
struct Watched {
    slot: Arc<Slot>,
    since: Moment,
    asked: Moment,
}

/// The GPUs that are read.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    watched: HashMap<DeviceUuid, Watched>,
}

impl Devices {
    /// The state of a GPU. The first call starts the readings, later calls have values. Never blocks on the
    /// library.
    pub(crate) fn reading(&mut self, uuid: DeviceUuid, now: Moment) -> Option<DeviceReading> {
        let known = self.watched.get(&uuid);
        if known.is_none_or(|known| known.is_due(now)) && (known.is_some() || self.watched.len() < MOST) {
            let slot = Arc::new(Slot::default());
            watch(uuid, &slot);
            self.watched.insert(uuid, Watched { slot, since: now, asked: now });
        }
        let watched = self.watched.get_mut(&uuid)?;
        watched.asked = now;
        watched.slot.unwanted.store(false, Relaxed);
        let mut reading = lock(&watched.slot.reading).clone()?;
        reading.age = now.since(reading.read).into();
        if let Some(xids) = *lock(&watched.slot.xids) {
            (reading.xids, reading.last_xid) = (Some(xids.count), xids.last);
        }
        Some(reading)
    }

    /// The load of a GPU in the last seconds, if there is a recent reading.
    pub(crate) fn load(&self, uuid: DeviceUuid, now: Moment) -> Option<GpuLoad> {
        let (read, load) = (*lock(&self.watched.get(&uuid)?.slot.load))?;
        (now.since(read) < DeviceReading::STALE).then_some(load)
    }

    /// The processes that use a GPU, if several do.
    pub(crate) fn processes(&self, uuid: DeviceUuid, now: Moment) -> Vec<GpuProcess> {
        let Some(watched) = self.watched.get(&uuid) else { return Vec::new() };
        let (read, processes) = &*lock(&watched.slot.processes);
        if now.since(*read) < DeviceReading::STALE { processes.clone() } else { Vec::new() }
    }

    /// Drops GPUs whose ranks have gone. A GPU whose thread is blocked in a call stays, so that a job that
    /// restarts does not add a thread each time.
    pub(crate) fn forget(&mut self, now: Moment) {
        self.watched.retain(|_, watched| {
            let wanted = now.since(watched.asked) < FORGOTTEN;
            watched.slot.unwanted.store(!wanted, Relaxed);
            wanted || !watched.slot.ended.load(Relaxed)
        });
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for watched in self.watched.values() {
            watched.slot.unwanted.store(true, Relaxed);
        }
    }
}

impl Watched {
    /// Whether the thread should be started again.
    fn is_due(&self, now: Moment) -> bool {
        let Slot { ended, unwanted, .. } = &*self.slot;
        ended.load(Relaxed) && (unwanted.load(Relaxed) || now.since(self.since) >= TRY_AGAIN)
    }
}

fn watch(uuid: DeviceUuid, slot: &Arc<Slot>) {
    let for_thread = Arc::clone(slot);
    let spawned = thread::Builder::new().name("gpu-health".to_owned()).spawn(move || {
        if let Some(nvml) = library::open() {
            gpu::watch(&nvml, uuid, &for_thread);
        }
        for_thread.ended.store(true, Relaxed);
    });
    if let Err(error) = spawned {
        tracing::warn!("cannot start a thread to read GPU {uuid}: {error}");
        slot.ended.store(true, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Holders only replace the values, so the values stay valid after a holder's panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
