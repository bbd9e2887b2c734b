//! Receiving from ranks takes memory only for the data that arrives.

use xpu_tests::{host::Host, program::until};

use crate::{
    job::client_of,
    metrics::{parse, value},
};

/// Each round multiplies in four thousand shapes.
const MANY_SHAPES: &str = "
while True:
    for m in range(1, 4001):
        ok(gemm_ex(m, 64, 64))
    step()";

const RANKS: usize = 4;
const MOST: f64 = 160e6;

#[test]
fn thousands_of_shapes_take_bounded_memory() {
    let host = Host::new();
    let client = client_of(&host);
    let ranks: Vec<_> = (0..RANKS).map(|rank| host.rank_of(rank, RANKS, MANY_SHAPES)).collect();
    let mut reported = 0.0;
    for _ in 0..10 {
        let page = until("more GEMMs of every rank on the page", || {
            let page = parse(&client.page());
            let of = |rank: usize| value(&page, "xpu_top_gemms_total", &[("rank", &rank.to_string())]);
            let least = (0..RANKS).map(|rank| of(rank).unwrap_or(0.0)).fold(f64::INFINITY, f64::min);
            let more = least > reported + 4000.0;
            reported = if more { least } else { reported };
            more.then_some(page)
        });
        let held = value(&page, "process_resident_memory_bytes", &[]).expect("its memory");
        assert!(held < MOST, "{:.0} MB", held / 1e6);
    }
    drop(ranks);
}
