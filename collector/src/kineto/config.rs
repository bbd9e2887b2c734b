//! Builds the configuration sent to a Kineto: lines of `KEY=VALUE`.

use std::{fmt::Write as _, time::Duration};

use xpu_wire::{
    frame::{KinetoOptions, KinetoOrder, KinetoWindow},
    ledger::KinetoCount,
};

use crate::request_time::RequestTime;

/// Size of CUPTI's buffers for one trace. When they are full, Kineto ends the trace early.
const BUFFERS_MIB: u32 = 512;

/// How long CUPTI is on before a trace of a period. Before a trace of steps, it is on for one step.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long before that Kineto must receive the order: its thread checks once a second.
const NOTICE: Duration = Duration::from_millis(1500);

/// Largest number of steps that a Kineto may wait.
const FARTHEST: u64 = 1 << 20;

/// Why an order cannot be sent to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    TooLate,
    TooFar,
    /// Kineto's step count is unknown.
    NoCount,
    /// The path would make Kineto misread its line.
    Path,
}

/// The configuration for a rank with this step count, so that Kineto writes its trace to `file`.
pub(super) fn text(
    order: &KinetoOrder,
    file: &str,
    count: Option<KinetoCount>,
    asked: RequestTime,
) -> Result<String, Unfit> {
    // A line of the configuration has one `=`, `#` begins a comment, and blanks are removed.
    if !file.starts_with('/')
        || file.contains(['=', '#'])
        || file.contains(|c: char| c.is_control() || c == ' ')
    {
        return Err(Unfit::Path);
    }
    let window = match order.window {
        KinetoWindow::Steps { first, steps, latest, calls } => {
            let count = count.ok_or(Unfit::NoCount)?;
            if count.step >= latest {
                return Err(Unfit::TooLate);
            }
            let calls = u64::from(calls.max(1));
            // Kineto counts calls from 0, and begins to trace after the call with this number.
            let steps_before = first.0.saturating_sub(1).saturating_sub(count.step.0);
            let before = u64::from(count.counted).saturating_add(calls.saturating_mul(steps_before));
            // A waiting Kineto accepts neither another trace nor a cancellation.
            if steps_before > FARTHEST || before > i32::MAX as u64 {
                return Err(Unfit::TooFar);
            }
            // A length of 0 concerns processes that count no steps: otherwise they would trace for half a
            // second.
            format!(
                "PROFILE_START_ITERATION={}\nACTIVITIES_ITERATIONS={}\nACTIVITIES_WARMUP_ITERATIONS={calls}\nACTIVITIES_DURATION_MSECS=0\n",
                before.saturating_sub(1),
                u64::from(steps.saturating_add(KinetoWindow::BEYOND)) * calls,
            )
        }
        KinetoWindow::Time { at, length } => {
            let at = asked.here(at);
            if asked.at.after(WARM_UP + NOTICE) > at {
                return Err(Unfit::TooLate);
            }
            format!(
                "PROFILE_START_TIME={}\nACTIVITIES_WARMUP_PERIOD_SECS={}\nACTIVITIES_DURATION_MSECS={}\n",
                at.0 / 1_000_000,
                WARM_UP.as_secs(),
                length.0.div_ceil(1_000_000),
            )
        }
    };
    let mut text = format!(
        "ACTIVITIES_LOG_FILE={file}\nREQUEST_TRACE_ID={:016x}\nACTIVITIES_MAX_GPU_BUFFER_SIZE_MB={BUFFERS_MIB}\n{window}",
        order.number
    );
    for (key, on) in switches(order.options) {
        if on {
            let _ = writeln!(text, "{key}=true");
        }
    }
    Ok(text)
}

/// The switches of a trace. `PROFILE_MEMORY` is not among them: its snapshot leaves an endlessly spinning
/// thread in the program.
fn switches(options: KinetoOptions) -> [(&'static str, bool); 5] {
    [
        ("PROFILE_REPORT_INPUT_SHAPES", options.record_shapes),
        ("PROFILE_PROFILE_MEMORY", options.profile_memory),
        ("PROFILE_WITH_STACK", options.with_stack),
        ("PROFILE_WITH_FLOPS", options.with_flops),
        ("PROFILE_WITH_MODULES", options.with_modules),
    ]
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        id::Step,
        unit::{Moment, Nanoseconds},
    };

    use super::*;

    const AT_ONCE: RequestTime = RequestTime { at: Moment(0), ahead: 0 };

    const FILE: &str = "/tmp/a.json";

    fn order(window: KinetoWindow) -> KinetoOrder {
        KinetoOrder { number: 255, window, limit: Nanoseconds(0), options: KinetoOptions::default() }
    }

    fn steps(first: u64, calls: u32) -> KinetoOrder {
        order(KinetoWindow::Steps { first: Step(first), steps: 3, latest: Step(first - 3), calls })
    }

    fn at(step: u64, counted: u32) -> KinetoCount {
        KinetoCount { step: Step(step), counted }
    }

    fn value(text: &str, key: &str) -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    }

    /// With PyTorch 2.11 and a program with one optimizer, a start iteration of 150 and three iterations traced
    /// the steps 152 to 154.
    #[test]
    fn ranks_at_different_steps_get_orders_for_the_same_steps() {
        for step in [10, 120, 148] {
            let text = text(&steps(152, 1), FILE, Some(at(step, step as u32)), AT_ONCE).unwrap();
            assert_eq!(value(&text, "PROFILE_START_ITERATION"), Some(150), "{text}");
            assert_eq!(value(&text, "ACTIVITIES_ITERATIONS"), Some(4), "one more");
            assert_eq!(value(&text, "ACTIVITIES_DURATION_MSECS"), Some(0));
        }
        let late = text(&steps(152, 1), FILE, Some(at(149, 149)), AT_ONCE);
        assert_eq!(late, Err(Unfit::TooLate));
        assert_eq!(text(&steps(152, 1), FILE, None, AT_ONCE), Err(Unfit::NoCount));
    }

    #[test]
    fn no_rank_gets_a_start_in_the_far_future() {
        for first in [u64::MAX, 3 << 20] {
            let far = text(&steps(first, 1), FILE, Some(at(1, 1)), AT_ONCE);
            assert_eq!(far, Err(Unfit::TooFar), "{first}");
        }
    }

    #[test]
    fn several_optimizers_and_an_own_count_are_considered() {
        // Step 100 was the 230th call; step 110 should be the first.
        let text = text(&steps(110, 2), FILE, Some(at(100, 230)), AT_ONCE).unwrap();
        assert_eq!(value(&text, "PROFILE_START_ITERATION"), Some(230 + 2 * 9 - 1));
        assert_eq!(value(&text, "ACTIVITIES_ITERATIONS"), Some(8));
        assert_eq!(value(&text, "ACTIVITIES_WARMUP_ITERATIONS"), Some(2));
    }

    #[test]
    fn a_start_time_is_in_the_local_clock() {
        let second = 1_000_000_000;
        let order = order(KinetoWindow::Time { at: Moment(100 * second), length: Nanoseconds(second / 2) });
        let text_of = |now, ahead| text(&order, FILE, None, RequestTime { at: Moment(now * second), ahead });
        let text = text_of(90, 0).unwrap();
        assert_eq!(value(&text, "PROFILE_START_TIME"), Some(100_000));
        assert_eq!(value(&text, "ACTIVITIES_DURATION_MSECS"), Some(500));
        assert_eq!(text_of(98, 0), Err(Unfit::TooLate));
        let early = text_of(990, 900 * second as i64).unwrap();
        assert_eq!(value(&early, "PROFILE_START_TIME"), Some(1_000_000), "its clock is 900 s before");
        assert_eq!(value(&text_of(90, 1000).unwrap(), "PROFILE_START_TIME"), Some(100_000));
    }

    #[test]
    fn a_path_cannot_add_lines() {
        for path in
            ["/tmp/a\nPROFILE_MEMORY=true.json", "/tmp/a=b.json", "/tmp/a#.json", "a.json", "/tmp/a b"]
        {
            assert_eq!(text(&steps(152, 1), path, Some(at(1, 1)), AT_ONCE), Err(Unfit::Path), "{path}");
        }
    }

    #[test]
    fn each_setting_of_a_kineto_configuration_is_a_line() {
        let mut order = steps(152, 1);
        order.options = KinetoOptions { with_stack: true, record_shapes: true, ..KinetoOptions::default() };
        let text = text(&order, FILE, Some(at(1, 1)), AT_ONCE).unwrap();
        assert!(text.ends_with("PROFILE_REPORT_INPUT_SHAPES=true\nPROFILE_WITH_STACK=true\n"), "{text}");
        assert!(text.lines().all(|line| line.matches('=').count() == 1), "{text}");
        assert!(!text.contains("PROFILE_MEMORY="), "{text}");
    }
}
