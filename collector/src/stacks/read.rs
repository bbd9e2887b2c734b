//! Reads one rank, in a short-lived process.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use xpu_wire::{
    codec,
    frame::{Body, Frame, RankStacks, ThreadStack},
    id::{JobName, Pid, Rank},
    process,
    unit::Moment,
};

use super::{
    GPU_LIMIT, LIMIT, gpu, kernel,
    native::{self, Native, NativeThread},
    python::{self, PythonThread},
};

/// The reader's memory limit, because damaged data may claim a large size.
const MEMORY: libc::rlim_t = 1 << 30;

/// Writes two frames to `to`. The first has the kernel's data, and is written at once. The second also has
/// Python's frames, and with `natively` the native frames, if they can be read. With `gpus`, a third frame
/// adds the kernels on the GPUs. Reading these ends the rank.
pub fn read(pid: Pid, natively: bool, gpus: bool, to: &mut impl Write) -> io::Result<()> {
    end_with_the_collector(if gpus { GPU_LIMIT } else { LIMIT });
    let begun = Instant::now();
    let (numbers, all) = kernel::threads(pid);
    let tasks: Vec<_> = numbers.iter().filter_map(|&number| kernel::thread(pid, number)).collect();
    let mut stacks = RankStacks {
        state: process::state(pid),
        took: begun.elapsed().into(),
        why: Vec::new(),
        threads: tasks.clone(),
        more_threads: u32::try_from(all - tasks.len().min(all)).unwrap_or(u32::MAX),
        ..RankStacks::unread(JobName::default(), Rank(0), pid, String::new())
    };
    if stacks.state.is_none() {
        stacks.why.push(format!("its process {pid} is gone"));
        return say(stacks, to);
    }
    say(stacks.clone(), to)?;
    let python = match python::threads(pid, &numbers) {
        Ok((threads, reading)) => {
            stacks.reading = reading;
            threads
        }
        Err(why) => {
            stacks.why.push(why);
            Vec::new()
        }
    };
    let native = if natively { native::threads(pid, &numbers) } else { Ok(Native::default()) };
    let native = native.unwrap_or_else(|why| {
        stacks.why.push(why);
        Native::default()
    });
    stacks.held_for_native = native.longest.map(Into::into);
    if process::state(pid).is_none() {
        stacks.why = vec![format!("its process {pid} has ended")];
    }
    stacks.threads = joined(with_native(python, &native), tasks);
    with_native_alone(&mut stacks.threads, native);
    stacks.took = begun.elapsed().into();
    if gpus {
        // Keeps the results so far, in case reading the GPUs takes too long or ends the reader.
        stacks.why.insert(0, "reading its GPUs did not finish".to_owned());
        say(stacks.clone(), to)?;
        stacks.why.remove(0);
        match gpu::threads(pid) {
            Ok(kernels) => stacks.threads.splice(0..0, kernels).for_each(drop),
            Err(why) => stacks.why.insert(0, why),
        }
        stacks.why.truncate(RankStacks::WHY);
        stacks.took = begun.elapsed().into();
    }
    say(stacks, to)
}

/// Python's threads with their Python and native frames.
fn with_native(python: Vec<PythonThread>, native: &Native) -> Vec<ThreadStack> {
    let whole = |PythonThread { mut stack, frames }| {
        let own = native.threads.iter().find(|thread| Some(thread.number) == stack.thread);
        let (frames, more) = native::join(frames, own.map_or(&[], |own| &own.frames));
        stack.frames = frames;
        stack.more_frames = stack.more_frames.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        stack
    };
    python.into_iter().map(whole).collect()
}

/// Adds native frames to the threads without Python frames.
fn with_native_alone(threads: &mut [ThreadStack], native: Native) {
    for NativeThread { number, mut frames } in native.threads {
        let thread = threads.iter_mut().find(|thread| thread.thread == Some(number));
        if let Some(thread) = thread.filter(|thread| thread.frames.is_empty()) {
            frames.reverse();
            thread.frames = frames;
        }
    }
}

/// Python's threads with the kernel's data about them, then those without Python.
fn joined(mut python: Vec<ThreadStack>, native: Vec<ThreadStack>) -> Vec<ThreadStack> {
    // Python has a main thread, even if its id is unknown.
    let has_main = python.iter().any(|thread| thread.main);
    let mut others = Vec::new();
    for task in native {
        match python.iter_mut().find(|thread| thread.thread == task.thread) {
            Some(thread) => {
                if thread.name.is_empty() {
                    thread.name = task.name;
                }
                thread.task = task.task;
            }
            None if task.main && has_main => {}
            None => others.push(task),
        }
    }
    python.sort_by_key(|thread| (!thread.main, thread.thread));
    python.extend(others);
    python
}

/// Cuts stacks to the limits of a frame, and counts what is left out.
fn bounded(mut stacks: RankStacks) -> RankStacks {
    let over = stacks.threads.len().saturating_sub(RankStacks::THREADS);
    stacks.threads.truncate(RankStacks::THREADS);
    stacks.more_threads = stacks.more_threads.saturating_add(u32::try_from(over).unwrap_or(u32::MAX));
    let mut left = RankStacks::ALL_FRAMES;
    for thread in &mut stacks.threads {
        let cut = thread.frames.len().saturating_sub(left);
        thread.frames.drain(..cut);
        thread.more_frames = thread.more_frames.saturating_add(u32::try_from(cut).unwrap_or(u32::MAX));
        left -= thread.frames.len();
    }
    stacks
}

fn say(stacks: RankStacks, to: &mut impl Write) -> io::Result<()> {
    let body = Body::Stacks(bounded(stacks));
    let frame = Frame { host: "".into(), number: 0, now: Moment::now(), lost: 0, body };
    to.write_all(&codec::encode(&frame))?;
    to.flush()
}

/// Ends this reader when its collector ends, and limits its run time.
pub(crate) fn end_with_the_collector(limit: Duration) {
    let seconds = limit.as_secs() as libc::c_uint * 2;
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: these change only this process; the pointer is to a live rlimit.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(seconds);
        libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
