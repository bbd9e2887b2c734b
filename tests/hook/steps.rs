//! What steps carry, and who marks them.

use xpu_shared::frame::{StepSource, Work};

use crate::Job;

#[test]
fn a_step_carries_what_was_worked_through_in_it() {
    let job = Job::alone(
        "gemm=1",
        "
step_with(4096, 2, 3.5)
step_with(4096, 2)
step()
step_with(1000, completed=10)
hold()",
    );
    let steps = job.after_step(0, 10).summaries.last().unwrap().steps.clone().unwrap();
    assert_eq!(steps.work, Work { tokens: 9192, samples: 4, loss: Some(3.5) });
    assert_eq!((steps.source, steps.completed.0), (StepSource::Marked, 10));
    job.end();
}
