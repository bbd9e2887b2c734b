use super::*;
use crate::app::job_view::tests::row;

fn figures(median: f32, offset: f32) -> Figures {
    Figures { median, lowest: 0.0, highest: median * 2.0, whole: median, offset }
}

fn back(value: f64, figures: &Figures) -> f64 {
    let PastValue::Value(back) = Code::of(value, figures).decoded(figures) else { panic!("{value} is lost") };
    back
}

#[test]
fn a_byte_is_fine_near_the_median_and_reaches_far() {
    let near = figures(640.0, 0.0);
    assert_eq!(back(640.0, &near), 640.0);
    for value in [630.0, 490.0, 351.0, 1_160.0] {
        assert!((back(value, &near) / value - 1.0).abs() <= 0.0051, "{value}: {}", back(value, &near));
    }
    for value in [4.0, 40.0, 200.0, 6_400.0, 200_000.0] {
        assert!((back(value, &near) / value - 1.0).abs() <= 0.041, "{value}: {}", back(value, &near));
    }
    assert!(back(0.0, &near) < 2.0);
    assert_eq!(back(0.0, &figures(0.0, 0.0)), 0.0);
    // A hundredth of a step of 100 ms is distinguished, whatever the value.
    let late = figures(0.1, 100.0);
    for value in [0.0, 0.1, 7.5, 41.0] {
        assert!((back(value, &late) - value).abs() <= 0.8, "{value}: {}", back(value, &late));
    }
}

#[test]
fn the_worst_of_a_moment_is_known_by_the_bytes() {
    let figures = figures(640.0, 0.0);
    let of = |value, worse| Code::of(value, &figures).severity(worse);
    assert!(of(490.0, Worse::Low) > of(640.0, Worse::Low));
    assert!(of(490.0, Worse::High) < of(640.0, Worse::High));
    for worse in [Worse::Low, Worse::High] {
        let [unknown, waits, alarm] =
            [Code::UNKNOWN, Code::WAITS, Code::ALARM].map(|c| Code(c).severity(worse));
        for value in [0.0, 1.0, 1e9] {
            assert!(unknown < waits && waits < of(value, worse) && of(value, worse) < alarm);
        }
    }
}

#[test]
fn ten_thousand_ranks_keep_half_an_hour_in_bounded_memory() {
    let mut history = History::default();
    history.match_tracks(&[row(0, "a")]);
    let each = std::mem::size_of::<Track>() + history.tracks[0].codes.len();
    let shared = COLUMNS * std::mem::size_of::<Column>();
    assert!(10_000 * each + shared < (512 << 20) / 12, "{each} bytes a rank, {shared} for all");
}

#[test]
fn a_late_rank_does_not_overwrite_another_history() {
    let mut history = History::default();
    history.match_tracks(&[row(0, "a"), row(2, "a")]);
    history.tracks[1].codes[7] = 200;
    history.match_tracks(&[row(0, "a"), row(1, "a"), row(2, "a")]);
    let sevenths: Vec<_> = history.tracks.iter().map(|track| track.codes[7]).collect();
    assert_eq!(sevenths, [0, 0, 200]);
}
