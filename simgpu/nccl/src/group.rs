//! Groups: between `ncclGroupStart` and the outermost `ncclGroupEnd` of a thread, calls are only collected.
//!
//! All actions of a communicator in a group run as one, on the stream of the first action.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use simgpu_engine::driver::Driver;

use crate::action::Action;
use crate::batch::Batch;
use crate::call::{Failure, call};
use crate::communicator::Communicator;
use crate::job::Job;
use crate::profiler;

#[derive(Default)]
struct Group {
    depth: u32,
    launches: Vec<Launch>,
    jobs: Vec<Job>,
}

struct Launch {
    comm: Arc<Communicator>,
    stream: usize,
    actions: Vec<Action>,
}

thread_local! {
    static GROUP: RefCell<Group> =
        const { RefCell::new(Group { depth: 0, launches: Vec::new(), jobs: Vec::new() }) };
}

/// Does the action at the end of the group, or at once if there is no group.
pub(crate) fn submit(
    driver: Driver,
    comm: Arc<Communicator>,
    stream: usize,
    action: Action,
) -> Result<(), Failure> {
    let alone = if_grouped(comm, |group, comm| {
        match group.launches.iter_mut().find(|launch| Arc::ptr_eq(&launch.comm, &comm)) {
            Some(launch) => launch.actions.push(action),
            None => group.launches.push(Launch { comm, stream, actions: vec![action] }),
        }
    });
    alone.map_or(Ok(()), |comm| Batch::submit(driver, &comm, stream, &[action]))
}

/// Makes communicators at the end of the group, or at once if there is no group.
pub(crate) fn run(jobs: Vec<Job>) -> Result<(), Failure> {
    let alone = if_grouped(jobs, |group, jobs| group.jobs.extend(jobs));
    alone.map_or(Ok(()), Job::run_all)
}

/// Puts `item` into the group. Returns it if there is no group, or if the thread's locals are already
/// destroyed.
fn if_grouped<T>(item: T, note: impl FnOnce(&mut Group, T)) -> Option<T> {
    let mut item = Some(item);
    let _ = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        if group.depth > 0
            && let Some(item) = item.take()
        {
            note(&mut group, item);
        }
    });
    item
}

/// The number of this thread's open groups.
pub(crate) fn depth() -> u32 {
    GROUP.try_with(|group| group.borrow().depth).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGroupStart() -> c_int {
    start()
}

pub(crate) fn start() -> c_int {
    call(|_| GROUP.try_with(|group| group.borrow_mut().depth += 1).map_err(|_ignored| Failure::InvalidUsage))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGroupEnd() -> c_int {
    end()
}

pub(crate) fn end() -> c_int {
    let is_outermost = depth() == 1;
    let launch = || launch_all();
    if is_outermost { profiler::launch(launch) } else { launch() }
}

fn launch_all() -> c_int {
    call(|driver| {
        let group = close()?;
        let made = Job::run_all(group.jobs);
        if made.is_err_and(|failure| failure != Failure::InProgress) {
            return made;
        }
        for Launch { comm, stream, actions } in group.launches {
            Batch::submit(driver, &comm, stream, &actions)?;
        }
        made
    })
}

/// Makes communicators, and launches nothing. It does not estimate a duration.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGroupSimulateEnd(_information: *mut c_void) -> c_int {
    call(|_| Job::run_all(close()?.jobs))
}

/// The collected work, which is empty at the end of an inner group.
fn close() -> Result<Group, Failure> {
    let closed = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        group.depth = group.depth.checked_sub(1)?;
        Some(if group.depth == 0 { std::mem::take(&mut *group) } else { Group::default() })
    });
    closed.ok().flatten().ok_or(Failure::InvalidUsage)
}
