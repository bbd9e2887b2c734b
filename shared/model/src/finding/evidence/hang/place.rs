//! Where the main threads of the ranks are for which a job waits, by their stacks.

use std::fmt;

use serde::Serialize;
use xpu_wire::{
    frame::{RankStacks, StackFrame},
    id::Rank,
};

use crate::stack::Word;

/// The place of a rank's main thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankPlace {
    pub rank: Rank,
    /// The innermost function of the program, the innermost of all Python functions, and the innermost native
    /// one, without repetitions and unknown ones.
    pub frames: Vec<Word>,
}

impl RankPlace {
    /// `None` if the frames of the main thread are unknown.
    pub(in crate::finding) fn of(stacks: &RankStacks) -> Option<Self> {
        let main = stacks.main_thread()?;
        let frames = &main.frames;
        let innermost = |is: &dyn Fn(&StackFrame) -> bool| frames.iter().rposition(is);
        let native = frames.len().checked_sub(1).filter(|&last| !frames[last].is_python());
        let mut places =
            vec![innermost(&StackFrame::is_of_program), innermost(&StackFrame::is_python), native];
        places.dedup();
        let frames: Vec<_> = places.into_iter().flatten().map(|place| Word::frame(&frames[place])).collect();
        (!frames.is_empty()).then_some(Self { rank: stacks.rank, frames })
    }

    /// `next_batch (job/train.py:64), in wait (python3.11/threading.py:327), in sem_clockwait (libc.so.6)`
    pub fn named(&self) -> String {
        let frames: Vec<_> = self.frames.iter().map(Word::to_string).collect();
        frames.join(", in ")
    }
}

impl fmt::Display for RankPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} is in {}", self.rank, self.named())
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::example::stacks;

    use super::*;

    fn place(frames: &[(&str, &str, u32)]) -> Option<String> {
        let mut stacks = stacks::rank(3, &["main"]);
        let main = stacks.threads.iter_mut().find(|thread| thread.main).unwrap();
        let frame = |&(function, file, line): &(&str, &str, u32)| StackFrame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        };
        main.frames = frames.iter().map(frame).collect();
        RankPlace::of(&stacks).map(|place| place.to_string())
    }

    #[test]
    fn a_place_is_the_function_of_the_program_and_what_it_calls() {
        let main = ("main", "/home/u/job/train.py", 9);
        let batch = ("next_batch", "/home/u/job/train.py", 64);
        let get = ("get", "/usr/lib/python3.11/queue.py", 180);
        let wait = ("wait", "/usr/lib/python3.11/threading.py", 327);
        let futex = ("sem_clockwait", "libc.so.6", 0);
        let said = |frames: &[_]| place(frames).unwrap();
        assert_eq!(
            said(&[main, batch, get, wait, futex]),
            "rank 3 is in next_batch (job/train.py:64), in wait (python3.11/threading.py:327), in sem_clockwait (libc.so.6)"
        );
        assert_eq!(said(&[main, batch]), "rank 3 is in next_batch (job/train.py:64)");
        let in_c = "rank 3 is in next_batch (job/train.py:64), in sem_clockwait (libc.so.6)";
        assert_eq!(said(&[main, batch, futex]), in_c);
        // A program without Python, or whose Python is all installed.
        assert_eq!(said(&[("main", "job", 0), futex]), "rank 3 is in sem_clockwait (libc.so.6)");
        assert_eq!(said(&[get, wait]), "rank 3 is in wait (python3.11/threading.py:327)");
        assert_eq!(place(&[]), None);
    }
}
