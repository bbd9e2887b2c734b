//! All hazards as a table: `make hazards`.

use std::time::Duration;

use xpu_tests::built::Build;

use crate::{
    addresses, bench,
    collector::Collector,
    counts, descriptors,
    end::End,
    exits,
    hazard::{Case, Hazard},
    loading, memory, processes, runtimes, signals, stacks, unwinding,
};

/// A hazard, and the name of its test.
pub(crate) type Named = (&'static str, fn() -> Hazard);

/// Hazards whose tests check more than that they are harmless.
const COUNTED: &[Named] = &[
    ("plain_gemm", || Hazard::new("plain_gemm", 7)),
    ("no_cuda", || Hazard::new("no_cuda", 0)),
    ("small_stacks", || Hazard::new("small_stacks", 0)),
    ("fork_child_uses_gpu_not", || Hazard::new("fork_child_uses_gpu_not", 0)),
    ("fork_child_uses_gpu", || Hazard::new("fork_child_uses_gpu", 0)),
    ("data_loaders.py", || Hazard::script("data_loaders.py")),
    ("streams_come_and_go", || Hazard::new("streams_come_and_go", 0)),
    ("atexit_calls", || Hazard::new("atexit_calls", 6)),
    ("foreign_context", || Hazard::new("foreign_context", 0)),
    ("error_passes_through", || Hazard::new("error_passes_through", 0)),
    ("capture_in_progress", || Hazard::new("capture_in_progress", 0)),
    ("captures_that_fail", || Hazard::new("captures_that_fail", 0)),
    ("two_ranks", || Hazard::new("two_ranks", 0)),
    ("threads_come_and_go", || Hazard::new("threads_come_and_go", 0)),
    ("recovers_from_faults", || Hazard::new("recovers_from_faults", 0)),
    ("jumps_from_handlers.c", || Hazard::linked("jumps_from_handlers.c", 0)),
    ("switched_while_used", || Hazard::new("switched_while_used", 0)),
    ("asks_by_ctypes.py", || Hazard::script("asks_by_ctypes.py")),
    ("by_handle", || Hazard::new("by_handle", 0)),
    ("places_that_go", || Hazard::new("places_that_go", 0)),
    ("refused_communicators", || Hazard::new("refused_communicators", 0)),
    ("second_preload, before the hook", || counts::second_preload(true)),
    ("second_preload, behind the hook", || counts::second_preload(false)),
    ("dlopen_local", counts::dlopen_local),
    ("by_handle, not followed", || Hazard::new("by_handle", 0).set("XPU_TOP_DLSYM=0")),
    ("dlclose_hook", processes::closed_hook),
];

/// The extra time and memory that the hook may cost a program.
const MOST_TIME: Duration = Duration::from_secs(1);
const MOST_KIB: u64 = 10 << 10;

/// The peak is polled, so it is meaningless for a shorter program.
const LEAST_TIME: Duration = Duration::from_millis(5);

const COLUMNS: [(&str, Case); 4] = [
    ("default", Case::Watched(Build::Default, Collector::Listens)),
    ("packaged", Case::Watched(Build::Packaged, Collector::Listens)),
    ("default, disabled", Case::Disabled(Build::Default)),
    ("packaged, disabled", Case::Disabled(Build::Packaged)),
];

/// Prints the differences and continues. The tests fail for them; this table does not.
#[test]
#[ignore = "a table, and minutes: make hazards"]
fn hazard_table() {
    println!("| hazard | plain | {} |", COLUMNS.map(|(name, _)| name).join(" | "));
    println!("|---|---|{}", "---|".repeat(COLUMNS.len()));
    let all = [
        COUNTED,
        addresses::ALL,
        loading::ALL,
        runtimes::ALL,
        unwinding::ALL,
        memory::ALL,
        descriptors::ALL,
        stacks::ALL,
        signals::ALL,
        exits::ALL,
        processes::ALL,
        bench::ALL,
    ];
    let mut cells = (0, 0);
    for (name, hazard) in all.concat() {
        let hazard = hazard();
        let alone = hazard.alone();
        print!("| {name} | {} |", cost(&alone));
        for (_, case) in COLUMNS {
            if !hazard.cases().any(|its| its == case) {
                print!(" |");
                continue;
            }
            let Some((end, _)) = hazard.watched(case) else {
                print!(" not built |");
                continue;
            };
            let mut differences = hazard.differences(case, &alone, &end);
            differences.extend(excess(&alone, &end));
            cells = (cells.0 + usize::from(differences.is_empty()), cells.1 + 1);
            if differences.is_empty() {
                print!(" ok, {} |", cost(&end));
            } else {
                let reported = differences.join("; ").replace('|', "/");
                print!(" {} |", reported.replace(&format!("{case}: "), ""));
            }
        }
        println!();
    }
    println!("\n{} of {} alike", cells.0, cells.1);
}

/// The cost, if it exceeds the allowance.
fn excess(alone: &End, end: &End) -> Option<String> {
    let is_dear = alone.took >= LEAST_TIME && end.peak_kib > alone.peak_kib + MOST_KIB;
    (is_dear || end.took > alone.took + MOST_TIME).then(|| cost(end))
}

fn cost(end: &End) -> String {
    let took = Duration::from_millis(end.took.as_millis() as u64);
    let figures: Vec<_> = end.figures.iter().map(|(name, figure)| format!(", {name}: {figure}")).collect();
    format!("{took:?}, {:.1} MiB{}", end.peak_kib as f64 / 1024.0, figures.concat())
}
