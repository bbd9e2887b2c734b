//! Which kernels are on the devices now, for the driver's core dumps. Recorded only once core dumps are
//! enabled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::Moment;
use crate::lock;
use crate::trace::Task;

static ON: AtomicBool = AtomicBool::new(false);
static NUMBERS: AtomicU64 = AtomicU64::new(0);
static RESIDENTS: Mutex<Vec<Resident>> = Mutex::new(Vec::new());

/// A kernel on a device.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    number: u64,
    pub device: i32,
    /// The address of its name: a C string that is never freed.
    pub name: usize,
    begin: Moment,
    /// `None` while the end depends on another rank or stream.
    end: Option<Moment>,
}

pub fn note_from_now_on() {
    ON.store(true, Ordering::Relaxed);
}

/// The number of a kernel that begins at this moment.
#[derive(Debug)]
pub struct Number(u64);

/// `None` if kernels are not recorded.
#[must_use]
pub fn begin(device: i32, task: Task, begin: Moment) -> Option<Number> {
    let Task::Kernel(name) = task else { return None };
    if !ON.load(Ordering::Relaxed) {
        return None;
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let now = Moment::now();
    let mut residents = lock(&RESIDENTS);
    residents.retain(|resident| resident.end.is_none_or(|end| end > now));
    residents.push(Resident { number, device, name, begin, end: None });
    Some(Number(number))
}

impl Number {
    pub fn ends(self, end: Moment) {
        if let Some(resident) = lock(&RESIDENTS).iter_mut().find(|resident| resident.number == self.0) {
            resident.end = Some(end);
        }
    }
}

#[must_use]
pub fn now() -> Vec<Resident> {
    let now = Moment::now();
    let is_on = |resident: &Resident| resident.begin <= now && resident.end.is_none_or(|end| end > now);
    lock(&RESIDENTS).iter().copied().filter(is_on).collect()
}
