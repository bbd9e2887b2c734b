//! Matches equal threads of different ranks, by their names without numbers.

use xpu_wire::frame::{StackFrame, ThreadStack};

use super::word::{Class, Word};

/// The root of the threads with which processes began.
pub const MAIN_THREAD: &str = "main thread";

/// The order of a root in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// A problem of a whole process.
    Process,
    Gpu,
    Main,
    Python,
    Native,
}

pub(super) fn of(thread: &ThreadStack) -> (Order, Word) {
    let role = |name: String| Word::bare(Class::Role, name);
    if thread.is_gpu() {
        (Order::Gpu, role(ThreadStack::GPU.to_owned()))
    } else if thread.main {
        (Order::Main, role(MAIN_THREAD.to_owned()))
    } else if !thread.frames.iter().any(StackFrame::is_python) {
        (Order::Native, role(format!("thread {} (no Python)", without_numbers(&thread.name))))
    } else {
        (Order::Python, role(format!("thread {}", without_numbers(&thread.name))))
    }
}

/// `Thread-12 (work)` as `Thread-* (work)`.
fn without_numbers(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if text.ends_with('*') => {}
            '0'..='9' => text.push('*'),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_distinguish_threads() {
        assert_eq!(without_numbers("Thread-12 (work)"), "Thread-* (work)");
        assert_eq!(without_numbers("pt_autograd_0"), "pt_autograd_*");
        assert_eq!(without_numbers("pin"), "pin");
    }
}
