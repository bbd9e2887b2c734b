//! Every view is a key away, on a recording as on a job that runs.

use crate::Theatre;

/// The key of each view, and what it shows whatever the job does.
pub(crate) const OF_ANY_JOB: [(&str, &str); 8] = [
    ("2", "Esc back"),
    ("3", "by shape"),
    ("4", "Communicators"),
    ("5", "Where time goes"),
    ("6", "Who is where"),
    ("7", "Came and went"),
    ("8", "In this folder"),
    ("9", "9 hosts"),
];

#[test]
fn every_view_is_a_key_away() {
    let theatre = Theatre::new();
    let mut terminal = theatre.slow(80, 24);
    for (key, shown) in OF_ANY_JOB {
        terminal.keys(key).shows(shown).keys("1").shows("GEMM TFLOPS");
    }
    terminal.keys("?").shows("Anywhere").keys("?").hides("Anywhere").keys("q");
    assert!(terminal.end().success());
}
