use std::thread;

use super::*;

const PURPOSE: u64 = 1;

fn visit(lap: u32, start: u64) -> Visit {
    Visit { lap, participants: 2, purpose: PURPOSE, start, cost: 10 }
}

#[test]
fn the_last_to_start_and_the_slowest_decide_the_end_for_both() {
    let slot = Slot::default();
    let (early, late) = (visit(0, 100), Visit { cost: 25, ..visit(0, 300) });
    assert_eq!(slot.arrive(&late), Arrival::Waiting);
    assert_eq!(slot.end(&late), None);
    assert_eq!(slot.arrive(&early), Arrival::Complete);
    assert_eq!((slot.end(&early), slot.end(&late)), (Some(325), Some(325)));
}

#[test]
fn the_next_lap_opens_when_all_participants_have_left() {
    let slot = Slot::default();
    let (first, next) = (visit(0, 100), visit(1, 50));
    slot.arrive(&first);
    slot.arrive(&first);
    assert!(!slot.leave(&first));
    assert_eq!(slot.arrive(&next), Arrival::NotOpen);
    assert!(slot.leave(&first));
    assert_eq!(slot.arrive(&next), Arrival::Waiting);
    assert_eq!(slot.arrive(&next), Arrival::Complete);
    assert_eq!(slot.end(&next), Some(60), "nothing is left of the lap before");
}

#[test]
fn a_rank_with_another_operation_does_not_take_part() {
    let slot = Slot::default();
    let other = Visit { purpose: PURPOSE + 1, ..visit(0, 900) };
    slot.arrive(&visit(0, 100));
    assert_eq!(slot.arrive(&other), Arrival::Mismatch);
    assert_eq!(slot.arrive(&visit(0, 200)), Arrival::Complete);
    assert_eq!(slot.end(&visit(0, 200)), Some(210));
}

#[test]
fn many_participants_agree_on_the_end_of_every_lap() {
    const PARTICIPANTS: u32 = 4;
    const LAPS: u32 = 20_000;
    let slot = Slot::default();
    let ends = |participant: u64| {
        let mut ends = Vec::new();
        for lap in 0..LAPS {
            let start = u64::from(lap) * 1000 + (participant * u64::from(lap)) % 7;
            let visit = Visit { lap, participants: PARTICIPANTS, purpose: PURPOSE, start, cost: 1 };
            while slot.arrive(&visit) == Arrival::NotOpen {
                thread::yield_now();
            }
            ends.push(loop {
                if let Some(end) = slot.end(&visit) {
                    break end;
                }
                thread::yield_now();
            });
            slot.leave(&visit);
        }
        ends
    };
    let expected = |lap: u32| {
        let latest = (0..u64::from(PARTICIPANTS)).map(|participant| (participant * u64::from(lap)) % 7).max();
        u64::from(lap) * 1000 + latest.unwrap_or(0) + 1
    };
    thread::scope(|scope| {
        let participants: Vec<_> =
            (0..u64::from(PARTICIPANTS)).map(|participant| scope.spawn(move || ends(participant))).collect();
        for participant in participants {
            let ends = participant.join().expect("a party does not panic");
            assert!(ends.iter().zip(0..).all(|(end, lap)| *end == expected(lap)));
        }
    });
}
