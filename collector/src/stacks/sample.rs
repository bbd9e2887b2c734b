//! Finds where a Python main thread is most often. Runs in a short-lived process, and stops no thread.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    thread,
    time::Duration,
};

use xpu_wire::{
    codec,
    frame::{Body, Frame, HostTimes, MainThread, RankTimes, SampledPlace, StackFrame},
    id::{JobName, Pid, Rank},
    sampling,
    unit::{Moment, Nanoseconds},
};

use super::{python::Spy, read::end_with_the_collector};

/// Number of samples, and the mean time between two samples.
const SAMPLES: u32 = 40;
const APART: Duration = Duration::from_millis(125);

/// Longest run of this process.
const LIMIT: Duration = Duration::from_secs(30);

/// Where PyTorch's `DataLoader` is defined.
const LOADER: &str = "torch/utils/data/dataloader.py";

/// Writes the samples as a frame with the times of a rank. Their interval is the CPU time that this process
/// took.
pub fn sample(pid: Pid, to: &mut impl Write) -> io::Result<()> {
    end_with_the_collector(LIMIT);
    let main = Spy::new(pid).ok().map(|mut spy| {
        let mut seen = Seen::default();
        for number in 0..SAMPLES {
            // A random time after the previous sample, so that the samples cover all parts of a step of any
            // length.
            let share = (sampling::priority(u64::from(number) ^ u64::from(pid.0)) >> 11) as f64
                / (1_u64 << 53) as f64;
            thread::sleep(APART.mul_f64(0.5 + share));
            if let Some(look) = spy.look() {
                seen.take(&look.main, &look.holder);
            }
        }
        seen.main_thread()
    });
    let times = RankTimes {
        rank: Rank(0),
        pid,
        interval: cpu_time(),
        synchronizing: Nanoseconds(0),
        copying: Nanoseconds(0),
        launching: Nanoseconds(0),
        loading: None,
        collecting: None,
        main: main.filter(|main| main.samples > 0),
    };
    let body = Body::Times(HostTimes { job: JobName::default(), ranks: vec![times] });
    let frame = Frame { host: "".into(), number: 0, now: Moment::now(), lost: 0, body };
    to.write_all(&codec::encode(&frame))?;
    to.flush()
}

fn cpu_time() -> Nanoseconds {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut spent) };
    Nanoseconds(spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned())
}

#[derive(Debug, Default)]
struct Seen {
    samples: u32,
    loading: u32,
    main: Places,
    holders: Places,
}

/// For each function and file, the number of samples at each line.
#[derive(Debug, Default)]
struct Places(BTreeMap<(String, String), BTreeMap<u32, u32>>);

impl Seen {
    /// Takes a sample. `main` and `holder` have the innermost frame first.
    fn take(&mut self, main: &[StackFrame], holder: &[StackFrame]) {
        if main.is_empty() {
            return;
        }
        self.samples += 1;
        self.loading += u32::from(main.iter().any(|frame| frame.file.ends_with(LOADER)));
        self.main.take(main);
        self.holders.take(holder);
    }

    fn main_thread(self) -> MainThread {
        let Self { samples, loading, main, holders } = self;
        MainThread { samples, loading, places: main.sorted(), holders: holders.sorted() }
    }
}

impl Places {
    fn take(&mut self, frames: &[StackFrame]) {
        let own = frames.iter().find(|frame| !is_library(&frame.file));
        let Some(place) = own.or_else(|| frames.first()) else { return };
        let lines = self.0.entry((place.function.clone(), place.file.clone())).or_default();
        *lines.entry(place.line).or_default() += 1;
    }

    /// The places, the most frequent first.
    fn sorted(self) -> Vec<SampledPlace> {
        let mut places: Vec<_> = self
            .0
            .into_iter()
            .map(|((function, file), lines)| {
                let line = lines.iter().max_by_key(|(_, samples)| **samples).map_or(0, |(line, _)| *line);
                SampledPlace { samples: lines.values().sum(), frame: StackFrame { function, file, line } }
            })
            .collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.samples));
        places.truncate(MainThread::PLACES);
        places
    }
}

/// Whether a file is of an installed package or of Python's own library. The place from which the program
/// called these is more useful than the place within them.
fn is_library(file: &str) -> bool {
    let of_python =
        file.split("/lib/python").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    of_python
        || file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.starts_with("<frozen ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> StackFrame {
        StackFrame { function: function.to_owned(), file: file.to_owned(), line }
    }

    #[test]
    fn the_programs_function_is_named_and_not_what_it_calls_in_a_library() {
        let train = frame("train", "/home/me/train.py", 7);
        let mut seen = Seen::default();
        for n in 0..6 {
            let decode = frame("decode", "/venv/lib/python3.12/site-packages/PIL/Image.py", 900 + n);
            let main = [decode, frame("collate_fn", "/home/me/data.py", 40 + n / 4), train.clone()];
            seen.take(&main, &[frame("hold", "/home/me/log.py", 3)]);
        }
        let loader =
            frame("__next__", "/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py", 700);
        seen.take(&[frame("wait", "/usr/lib/python3.12/threading.py", 355), loader, train.clone()], &[]);
        seen.take(&[frame("_call", "<frozen importlib._bootstrap>", 1)], &[]);
        seen.take(&[], &[]);
        let main = seen.main_thread();
        assert_eq!((main.samples, main.loading), (8, 1));
        let places: Vec<_> = main.places.iter().map(|place| (place.samples, place.frame.clone())).collect();
        assert_eq!(places[0], (6, frame("collate_fn", "/home/me/data.py", 40)));
        assert!(places.contains(&(1, train)) && places.len() == 3, "{places:?}");
        assert_eq!(main.holders, [SampledPlace { samples: 6, frame: frame("hold", "/home/me/log.py", 3) }]);
    }
}
