//! The figures as text.

use std::fmt::Write as _;

use xpu_analysis::{render::Table, what_if::WhatIf};
use xpu_model::figure::counted;

pub(super) fn text(of: &WhatIf, top: usize) -> String {
    let steps = counted(of.steps.len(), "step", "steps");
    let mut out = match of.stages {
        1 => format!("{steps} of {}", counted(of.data_parallel, "rank", "ranks")),
        stages => {
            let ranks = counted(of.data_parallel, "data-parallel rank", "data-parallel ranks");
            format!("{steps} of {stages} stages of {ranks}")
        }
    };
    if of.steps_left_out > 0 {
        let left_out = counted(of.steps_left_out, "step", "steps");
        // Writing to a String cannot fail.
        let _ = write!(out, "; {left_out} left out because their ranks launch different collectives");
    }
    let _ = writeln!(
        out,
        "\nstep: measured {:.1} ms, simulated {:.1} ms, ideal {:.1} ms; slowdown S {:.3}, waste {:.1} %; M_W {}, M_S {}\n",
        of.step.measured_ms,
        of.step.simulated_ms,
        of.step.ideal_ms,
        of.slowdown,
        100.0 * of.waste,
        share(of.m_w),
        share(of.m_s),
    );
    for sentence in &of.sentences {
        out.push_str(sentence);
        out.push('\n');
    }
    let (simulated, times) = (of.step.simulated_ms, |ms: f64| format!("{ms:.1}"));
    let repaired = |ms: Option<f64>| {
        [
            ms.map_or_else(|| "?".to_owned(), times),
            ms.map_or_else(|| "?".to_owned(), |ms| times(simulated - ms)),
        ]
    };
    let head = ["rank", "stage", "dp", "slowdown", "repaired ms", "gain ms"];
    Table::new("ranks, the slowest first", &head, &of.workers, top, |worker| {
        let [step, gain] = repaired(worker.repaired_ms);
        let (rank, stage, replica) = (worker.rank.to_string(), worker.stage, worker.data_parallel);
        vec![rank, stage.to_string(), replica.to_string(), format!("{:.3}", worker.slowdown), step, gain]
    })
    .write(&mut out);
    let head = ["stage", "slowdown", "repaired ms", "gain ms"];
    Table::new("stages, the slowest first", &head, &of.stage_figures, top, |stage| {
        let [step, gain] = repaired(Some(stage.repaired_ms));
        vec![stage.stage.to_string(), format!("{:.3}", stage.slowdown), step, gain]
    })
    .write(&mut out);
    let head = ["kind of operation", "slowdown"];
    Table::new("kinds of operations, the costliest first", &head, &of.kinds, top, |kind| {
        vec![kind.kind.name().to_owned(), format!("{:.3}", kind.slowdown)]
    })
    .write(&mut out);
    out
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"))
}
