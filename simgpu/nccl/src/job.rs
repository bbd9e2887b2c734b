//! The work of making a communicator, which waits for other ranks. It is done before the call returns, when
//! its group ends, or in a thread of the library.

use std::sync::Arc;

use simgpu_engine::worker;

use crate::call::Failure;
use crate::communicator::{COMMUNICATORS, Communicator, Identity, Member};
use crate::ras;
use crate::rendezvous::{Entry, MAX_RANKS};

/// The variable in which a program gets a handle. NCCL requires that it is writable until the work is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(pub *mut usize);

// SAFETY: only the thread that does the work writes it, once.
unsafe impl Send for Place {}

impl Place {
    /// # Safety
    /// It must be writable, or NULL.
    pub(crate) unsafe fn put(self, handle: usize) {
        if !self.0.is_null() {
            // SAFETY: the caller promises it.
            unsafe { self.0.write(handle) };
        }
    }
}

pub(crate) struct Job {
    /// The communicator whose configuration says whether the program waits.
    pub decider: Arc<Member>,
    pub work: Box<dyn FnOnce() -> Result<(), Failure> + Send>,
}

impl Job {
    /// The job of a communicator that has its handle at once.
    ///
    /// # Safety
    /// `place` must be NULL or writable now.
    pub(crate) unsafe fn init(
        identity: Identity,
        ranks: u32,
        place: Place,
        non_blocking: bool,
    ) -> Result<Self, Failure> {
        if place.0.is_null() {
            return Err(Failure::InvalidArgument);
        }
        let entry = announce(&identity, ranks)?;
        let member = Member::new(non_blocking);
        let handle = COMMUNICATORS.add(Arc::clone(&member));
        // SAFETY: the caller promises it.
        unsafe { place.put(handle) };
        let decider = Arc::clone(&member);
        let work = move || {
            let made = enter(identity, entry, &member);
            if made.is_err() && !member.non_blocking {
                COMMUNICATORS.remove(handle);
            }
            member.is_made(made.clone());
            made.map(drop)
        };
        Ok(Self { decider, work: Box::new(work) })
    }

    /// The job of a communicator made from `parent`, which gets its handle when it is made. `identity` returns
    /// this rank's place in it, if it has one.
    ///
    /// # Safety
    /// `place` must be writable until the work is done.
    pub(crate) unsafe fn child(
        parent: Arc<Member>,
        place: Place,
        non_blocking: bool,
        identity: impl FnOnce() -> Result<Option<(Identity, u32)>, Failure> + Send + 'static,
    ) -> Self {
        // SAFETY: the caller promises it.
        unsafe { place.put(0) };
        let decider = Arc::clone(&parent);
        let work = move || {
            // Moves the whole value into the closure, which would otherwise capture its fields.
            let place: Place = place;
            let Some((identity, ranks)) = identity()? else { return Ok(()) };
            let member = Member::new(non_blocking);
            member.is_made(Ok(enter(identity, announce(&identity, ranks)?, &member)?));
            // SAFETY: the caller promises it.
            unsafe { place.put(COMMUNICATORS.add(member)) };
            Ok(())
        };
        Self { decider, work: Box::new(work) }
    }

    /// Runs jobs that were requested together, and waits for them unless one of them is non-blocking.
    pub(crate) fn run_all(mut jobs: Vec<Self>) -> Result<(), Failure> {
        if jobs.iter().any(|job| job.decider.non_blocking) {
            for job in jobs {
                job.detach()?;
            }
            return Err(Failure::InProgress);
        }
        let Some(last) = jobs.pop() else { return Ok(()) };
        // In parallel, because each job may wait for another one on another rank.
        std::thread::scope(|scope| {
            let others: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job.work)).collect();
            let last = (last.work)();
            let others = others.into_iter().map(|other| other.join().unwrap_or(Err(Failure::System)));
            others.fold(last, Result::and)
        })
    }

    fn detach(self) -> Result<(), Failure> {
        let Self { decider, work } = self;
        decider.expects();
        let reported = Arc::clone(&decider);
        let started = worker::spawn("simgpu-init", move || {
            let outcome = work();
            if let Err(failure) = outcome {
                decider.is_made(Err(failure));
            }
            decider.has_given_birth();
        });
        started.map_err(|_no_thread| {
            reported.has_given_birth();
            Failure::System
        })
    }
}

fn announce(identity: &Identity, ranks: u32) -> Result<Entry, Failure> {
    if identity.rank >= ranks || ranks > MAX_RANKS {
        return Err(Failure::InvalidArgument);
    }
    Entry::announce(identity.key, ranks).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Failure::InvalidArgument,
        _ => Failure::System,
    })
}

fn enter(identity: Identity, entry: Entry, member: &Member) -> Result<Arc<Communicator>, Failure> {
    let rendezvous = entry.wait_for_all(&member.aborted).ok_or(Failure::System)?;
    let made = Arc::new(Communicator::new(identity, Arc::clone(&member.aborted), rendezvous));
    ras::begin(&made);
    Ok(made)
}
