use super::*;
use crate::observe::record::{HostCall, Record};

#[test]
fn codes_have_names() {
    let of = |number| match label(number) {
        CapturedLabel::Function { kind, name } => (kind, name),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(GENERATION + 2), (FunctionKind::GarbageCollection, "gc generation 2".to_owned()));
    let loader = "torch.utils.data.dataloader._BaseDataLoaderIter.__next__".to_owned();
    assert_eq!(of(0), (FunctionKind::DataLoader, loader));
    let value =
        |name: &str| (name == variable::FUNCTIONS).then(|| "train@Trainer@step,a b,collate".to_owned());
    assert_eq!(set_from(value).len(), 1, "one is none");
    assert_eq!(of(1), (FunctionKind::Named, "train.Trainer.step".to_owned()));
    assert_eq!(of(2), (FunctionKind::Named, "__main__.collate".to_owned()));
}

#[test]
fn codes_are_found_again() {
    let all: Vec<usize> = (1..=xpu_wire::functions::FUNCTIONS).map(|number| number * 48).collect();
    for (number, &code) in all.iter().enumerate() {
        codes::watch(code, number as u16);
        codes::watch(code, 7);
    }
    assert!(all.iter().enumerate().all(|(number, &code)| codes::number(code) == Some(number as u16)));
    assert_eq!(codes::number(40), None);
    codes::forget();
    assert!(all.iter().all(|&code| codes::number(code).is_none()));
}

#[test]
fn a_process_without_python_is_reported_and_open_calls_are_dropped() {
    let mut mine = Functions::default();
    mine.begin();
    mine.look();
    let Tracing::Refused { why } = mine.outcome(0, 0, 0) else { panic!("there is no Python here") };
    assert!(why.contains("no CPython"), "{why}");

    // Behaves as if functions were attached.
    ON.store(1, Relaxed);
    let lane = || crate::observe::lane::Lane::mine().expect("this thread has one");
    let numbers = || {
        let next = || loop {
            if let Record::Host { call: HostCall::Function(number), .. } = lane().ring.pop()? {
                return Some(number);
            }
        };
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    for number in [1, 2, 3] {
        open::enter(number);
    }
    open::leave(9);
    for number in [2, 3, 1] {
        open::leave(number);
    }
    assert_eq!(numbers(), [2, 1]);
    for _ in 0..40 {
        open::enter(5);
    }
    let dropped = open::dropped();
    for _ in 0..40 {
        open::leave(5);
    }
    assert_eq!((numbers().len(), open::dropped() - dropped), (32, 8));
    open::collection_ends(0);
    open::collection_begins();
    open::collection_ends(7);
    assert_eq!(numbers(), [GENERATION + 2]);
    // Calls that were opened before do not belong to this recording.
    open::enter(4);
    ON.store(2, Relaxed);
    open::leave(4);
    ON.store(0, Relaxed);
    open::enter(4);
    open::leave(4);
    assert!(numbers().is_empty());
    mine.end();
}
