//! Counting products other than GEMMs: every entry of cuBLAS, by its name and by its address.

use std::collections::BTreeMap;

use xpu_tests::{
    built,
    listener::Listener,
    place::Place,
    program::{run, until},
};
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

/// The second size of every call.
const N: u64 = 24;

/// The routine, and the types that the letters before its name stand for.
fn of(name: &str) -> (Routine, DataType, ComputeType) {
    let name = name.trim_start_matches("cublas");
    let at = name.find(|letter: char| letter.is_lowercase()).expect("a routine");
    let (letters, routine) = name.split_at(at);
    let end = routine.find(['_', 'B', 'S', 'E', '3']).unwrap_or(routine.len());
    let routine = match &routine[..end] {
        "gemv" => Routine::Gemv,
        "symm" => Routine::Symm,
        "hemm" => Routine::Hemm,
        "syrk" => Routine::Syrk,
        "herk" => Routine::Herk,
        "syr2k" => Routine::Syr2k,
        "her2k" => Routine::Her2k,
        "syrkx" => Routine::Syrkx,
        "herkx" => Routine::Herkx,
        "trmm" => Routine::Trmm,
        "trsm" => Routine::Trsm,
        other => panic!("{other} of {name}"),
    };
    let (datatype, compute) = match letters {
        "S" => (DataType::Float32, ComputeType::Float32),
        "D" => (DataType::Float64, ComputeType::Float64),
        "C" => (DataType::Complex64, ComputeType::Float32),
        "Z" => (DataType::Complex128, ComputeType::Float64),
        "HSH" | "HSS" => (DataType::Float16, ComputeType::Float32),
        "TST" | "TSS" => (DataType::Bfloat16, ComputeType::Float32),
        other => panic!("{other} of {name}"),
    };
    (routine, datatype, compute)
}

/// Parses the output of `products.c`. Each line has an entry, its first size, its side and its operation.
/// Returns the expected shape of each.
fn called(output: &str) -> BTreeMap<String, GemmShape> {
    let mut called = BTreeMap::new();
    for line in output.lines().filter(|line| line.starts_with("cublas")) {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[3..], ["answered", "0,", "then", "7"], "{line}");
        let (name, first, flags) = (words[0], words[1].parse::<u64>().expect("a number"), words[2]);
        let (right, changed) = (&flags[..1] == "1", &flags[1..] == "1");
        let (routine, datatype, compute) = of(name);
        let batch = if name.contains("Batched") { 3 } else { 1 };
        let ([m, n, k], transposed) = match routine {
            Routine::Gemv if changed => ([N, 1, first], (true, false)),
            Routine::Gemv => ([first, 1, N], (false, false)),
            Routine::Symm | Routine::Hemm => ([first, N, if right { N } else { first }], (false, false)),
            Routine::Trmm | Routine::Trsm if right => ([first, N, N], (false, changed)),
            Routine::Trmm | Routine::Trsm => ([first, N, first], (changed, false)),
            _ => ([first, first, N], (changed, !changed)),
        };
        let shape = GemmShape { m, n, k, batch, datatype, compute, transposed, routine };
        called.insert(name.to_owned(), shape);
    }
    called
}

#[test]
fn every_product_is_counted_by_its_name_and_by_its_address() {
    let place = Place::new();
    let program = place.path("products");
    built::compile("hook/products.c", &program, &[]);
    let alone = run(&mut place.command(&program));
    let called = called(&alone.stdout);
    assert_eq!(called.len(), 120, "{}", alone.stdout);
    for arguments in [&[][..], &["libcublas.so.13"]] {
        let listener = Listener::at(&place.socket());
        let watched = run(place.watched(&program).args(arguments).env("XPU_TOP_SAMPLE", "gemm=1"));
        assert_eq!(watched, alone);
        let said = until("a goodbye", || listener.received().into_iter().find(|sender| sender.goodbye));
        let gemms = said.gemms();
        for (name, shape) in &called {
            let totals = gemms.get(shape).unwrap_or_else(|| panic!("{name} was not counted as {shape:?}"));
            assert_eq!((totals.count, totals.timed), (1, 1), "{name} {arguments:?}");
        }
        assert_eq!((gemms.len(), said.launches().gemms), (120, 120), "{arguments:?}");
    }
}
