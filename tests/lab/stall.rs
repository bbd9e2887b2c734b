//! A hung job: all ranks but one have entered the next collective, and wait in it.

use xpu_wire::{
    frame::{Body, Frame, Inside, RankStacks, Reading, StackFrame, TaskState, ThreadStack},
    id::{JobName, Pid, Rank},
    ledger::Call,
    unit::{Moment, Nanoseconds},
};

/// When the hang began, and the missing rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub since: u64,
    pub missing: Rank,
}

impl Stall {
    /// Turns frames of the hang's first second into those of `second`.
    pub(crate) fn apply(self, now: &[Frame], frames: &mut [Frame], second: u64) {
        for (frame, now) in frames.iter_mut().zip(now) {
            (frame.number, frame.now) = (now.number, now.now);
            let Body::Digest(digest) = &mut frame.body else { continue };
            for digest in &mut digest.ranks {
                digest.heard = now.now;
                digest.samples.clear();
                (digest.step_median, digest.step_count) = (None, 0);
                if digest.rank == self.missing {
                    continue;
                }
                for state in &mut digest.communicators {
                    state.entered += 1;
                    state.enqueued += 1;
                }
                let waited = Nanoseconds((second - self.since) * 1_000_000_000);
                digest.inside = vec![Inside { thread: 4100, call: Call::StreamSynchronize, waited }];
            }
        }
    }

    /// What a collector reads of one rank's stacks.
    pub(crate) fn stacks(self, job: &JobName, rank: Rank, read_at: Moment) -> RankStacks {
        let main = if rank == self.missing {
            thread("MainThread", true, &MISSING, None)
        } else {
            thread("MainThread", true, &WAITING, Some(Call::StreamSynchronize))
        };
        let pin = thread("Thread-1 (_pin_memory_loop)", false, &PINNING, None);
        let native = ThreadStack { frames: Vec::new(), ..thread("cuda-EvtHandlr", false, &[], None) };
        RankStacks {
            job: job.clone(),
            rank,
            pid: Pid(4000 + rank.0),
            read_at,
            state: Some('S'),
            held_for_native: Some(Nanoseconds(400_000)),
            reading: Reading::Running,
            took: Nanoseconds(3_000_000),
            why: Vec::new(),
            threads: vec![main, pin, native],
            more_threads: 0,
        }
    }
}

/// Function, file, line.
type Place = (&'static str, &'static str, u32);

const TRAIN: &str = "/work/llama/train.py";
const LOADER: &str = "/opt/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py";

const MISSING: [Place; 6] = [
    ("<module>", TRAIN, 212),
    ("main", TRAIN, 198),
    ("train", TRAIN, 120),
    ("__next__", LOADER, 701),
    ("_next_data", LOADER, 757),
    ("__getitem__", "/work/llama/dataset.py", 88),
];

const WAITING: [Place; 5] = [
    ("<module>", TRAIN, 212),
    ("main", TRAIN, 198),
    ("train", TRAIN, 131),
    ("clip_grad_norm_", "/opt/venv/lib/python3.12/site-packages/torch/nn/utils/clip_grad.py", 36),
    ("item", "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", 412),
];

const PINNING: [Place; 3] = [
    ("_bootstrap", "/usr/lib/python3.12/threading.py", 1030),
    ("run", "/usr/lib/python3.12/threading.py", 1010),
    ("do_one_step", "/opt/venv/lib/python3.12/site-packages/torch/utils/data/_utils/pin_memory.py", 30),
];

fn thread(name: &str, main: bool, places: &[Place], call: Option<Call>) -> ThreadStack {
    let frame = |&(function, file, line): &Place| StackFrame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    };
    ThreadStack {
        thread: Some(4100),
        name: name.to_owned(),
        main,
        owns_gil: false,
        inside: call.map(|call| Inside { thread: 4100, call, waited: Nanoseconds(14_000_000_000) }),
        task: Some(TaskState { letter: 'S', waits_in: Some("futex_wait_queue".to_owned()), call: Some(202) }),
        frames: places.iter().map(frame).collect(),
        more_frames: 0,
    }
}
