use proptest::prelude::*;
use xpu_model::{job::Jobs, status::Status};
use xpu_simulation::Simulation;
use xpu_wire::{
    id::{Rank, Step},
    unit::{Moment, Tflops},
};

use super::*;

/// Eight ranks on two hosts, with 100, 110, ... TFLOPS; rank 7's is unknown.
fn ranks() -> Vec<RankStatus> {
    let mut jobs = Jobs::default();
    let simulation = Simulation::new(1, 2, 4);
    simulation.snapshots(1).iter().chain(&simulation.digests(2)).for_each(|frame| jobs.fold(frame));
    let mut ranks = Status::of(&jobs, jobs.foremost().unwrap(), Moment(0)).ranks;
    for (index, rank) in ranks.iter_mut().enumerate() {
        rank.gemm_tflops = (index < 7).then_some(Tflops(100.0 + 10.0 * index as f64));
        rank.lateness_ms_p50 = Some(index as f64);
        rank.step = Some(Step(20));
        rank.state = if index == 3 { RankState::Hung } else { RankState::Waiting };
        rank.device = None;
    }
    ranks
}

fn shown(text: &str) -> Vec<u32> {
    let filter = Filter::read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
    filter.among(&ranks(), &"llama-70b".into()).0.iter().map(|rank| rank.rank.0).collect()
}

#[track_caller]
fn faulty(text: &str) -> (usize, String) {
    let fault = Filter::read(text).expect_err(text);
    (fault.column(text), fault.what)
}

#[test]
fn numbers_are_compared() {
    assert_eq!(shown("rank<3"), [0, 1, 2]);
    assert_eq!(shown("rank <= 3 & rank>=2"), [2, 3]);
    assert_eq!(shown("rank = 1"), [1]);
    assert_eq!(shown("rank=0-2,6"), [0, 1, 2, 6]);
    assert_eq!(shown("rank != 0-5"), [6, 7]);
    assert_eq!(shown("late > 5.5ms"), [6, 7]);
    assert_eq!(shown("late > 0.0055 s"), [6, 7]);
    assert_eq!(shown("step==20"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(shown("tflops = 110"), [1]);
    assert_eq!(shown("tflops < 0.12 pflops"), [0, 1]);
}

#[test]
fn figures_are_compared_with_the_jobs_own() {
    // The median of the seven known figures, 100 to 160.
    assert_eq!(shown("tflops<median"), [0, 1, 2]);
    assert_eq!(shown("tflops < 0.85*median"), [0, 1]);
    assert_eq!(shown("tflops < median * 0.85"), [0, 1]);
    assert_eq!(shown("tflops = max"), [6]);
    assert_eq!(shown("tflops = min"), [0]);
    assert_eq!(shown("tflops >= p90"), [6]);
    assert_eq!(shown("tflops <= p10"), [0]);
    assert_eq!(shown("tflops > mean"), [4, 5, 6]);
    assert_eq!(shown("late >= p99"), [7]);
}

#[test]
fn words_match_case_insensitively_and_in_part() {
    let second = [4, 5, 6, 7];
    for text in [
        "host~002",
        "host ~ GPU-002",
        "host=gpu-002",
        "host=*2",
        "host~gpu-?02",
        "host~002x | host:2",
        "gpu-002",
        "\"gpu-002\"",
    ] {
        assert_eq!(shown(text), second, "{text}");
    }
    assert_eq!(shown("host!=gpu-002"), [0, 1, 2, 3]);
    assert_eq!(shown("host !~ 001"), second);
    assert_eq!(shown("host=gpu-001,gpu-002").len(), 8);
    assert_eq!(shown("state=hung"), [3]);
    assert_eq!(shown("state != waits"), [3]);
    assert_eq!(shown("job=llama* & rank=5"), [5]);
    // A pattern matches the whole text.
    assert_eq!(shown("host=gpu"), [0_u32; 0]);
}

#[test]
fn a_bare_number_is_a_rank_and_a_bare_word_a_host() {
    assert_eq!(shown("5"), [5]);
    assert_eq!(shown("0-1,7"), [0, 1, 7]);
    assert_eq!(shown("001 & !2"), [1]);
    assert_eq!(shown("host~001 & !2"), [0, 1, 3]);
}

#[test]
fn comparisons_are_combined() {
    assert_eq!(shown("rank<2 | rank>6"), [0, 1, 7]);
    assert_eq!(shown("rank<2 or rank>6 and host~002"), [0, 1, 7]);
    assert_eq!(shown("(rank<2 || rank>6) && host~002"), [7]);
    assert_eq!(shown("!(rank<2 | rank>6)"), [2, 3, 4, 5, 6]);
    assert_eq!(shown("not rank<6"), [6, 7]);
    assert_eq!(shown("!!rank=1"), [1]);
}

#[test]
fn unknown_figures_neither_match_nor_fail_and_are_counted() {
    let among = |text: &str| {
        let ranks = ranks();
        let (shown, unknown) = Filter::read(text).unwrap().among(&ranks, &"llama-70b".into());
        (shown.len(), unknown)
    };
    assert_eq!(among("tflops<1000"), (7, 1));
    assert_eq!(among("!(tflops<1000)"), (0, 1));
    assert_eq!(among("power>0"), (0, 8));
    // If one part decides alone, the other is not needed.
    assert_eq!(among("tflops<1000 | rank=7"), (8, 0));
    assert_eq!(among("tflops<1000 & rank=0"), (1, 0));
    assert_eq!(among("power<median"), (0, 8));
}

#[test]
fn errors_name_the_position_and_what_was_expected() {
    let at = |text: &str, column: usize, what: &str| {
        let (found, said) = faulty(text);
        assert!(found == column && said.contains(what), "{text}: {found}: {said}");
    };
    at("", 0, "expected a field");
    at("rank<64 & ", 10, "expected a field");
    at("tflps<1", 0, "did you mean tflops?");
    at("rank<64 & tflps<0.9*median", 10, "did you mean tflops?");
    at("tflops", 6, "expected < <= > >= = or != after tflops");
    at("tfl", 3, "after tflops");
    at("state", 5, "expected = != or ~ after state");
    at("tflops<", 7, "expected a number in TFLOPS");
    at("tflops<x", 7, "unknown value x");
    at("tflops<0.9*med", 11, "expected median");
    at("tflops~5", 6, "tflops is a number");
    at("host<5", 4, "host is a word");
    at("late<5W", 6, "W is not a unit of skew: write ms, s, us");
    at("rank<5W", 6, "it has no unit");
    at("rank<5 rank>2", 7, "expected & or |");
    at("rank<5)", 6, "no `(` is open");
    at("rank<5 | gpu-001", 9, "write host~gpu-001");
    at("(rank<5", 0, "not closed");
    at("(rank<5 x", 8, "expected &, | or `)`");
    at("state=fast", 6, "ok, waiting, slow, hung, silent, exited");
    at("host=", 5, "a value for host");
    at("host=\"a", 5, "not closed");
    at("host~日本 & x<1", 12, "unknown field x");
    at(&"(".repeat(40), 32, "32 deep");
    at(&"x".repeat(600), 0, "at most");
}

#[test]
fn the_command_line_marks_the_error() {
    let said = "rank<64 & tflps<1".parse::<Filter>().unwrap_err();
    assert_eq!(said, "unknown field tflps: did you mean tflops?\n  rank<64 & tflps<1\n            ^");
}

#[test]
fn completion_lists_what_may_follow() {
    let complete = |text: &str| complete(text, &["gpu-001", "gpu-002"]);
    assert_eq!(complete("rank<64 & tf"), (10, vec!["tflops".to_owned()]));
    assert_eq!(complete("tflops<0.9*med"), (11, vec!["median".to_owned()]));
    assert_eq!(complete("state=h"), (6, vec!["hung".to_owned()]));
    assert_eq!(complete("host=gpu-0").1, ["gpu-001", "gpu-002"]);
    assert_eq!(complete("late>p9").1, ["p90", "p99"]);
    assert_eq!(complete("").1.len(), FIELDS.len());
}

#[test]
fn no_two_fields_share_a_name() {
    let names: Vec<_> = FIELDS.iter().flat_map(|field| field.names).collect();
    for (index, name) in names.iter().enumerate() {
        assert!(!names[..index].contains(name), "{name}");
    }
}

/// Pieces that filters are made of; no combination may panic.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(FIELDS).prop_map(|field| field.name().to_owned()),
        prop::sample::select(
            &["<", "<=", "=", "!=", "~", "!~", "&", "|", "!", "(", ")", ",", "-", "*", " ", "\"", "%"][..]
        )
        .prop_map(str::to_owned),
        prop::sample::select(
            &["median", "p99", "0.9", "64", "gpu-001", "ms", "GiB", "and", "or", "not", "日本", "°C"][..]
        )
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn no_order_of_tokens_causes_a_panic(text in pieces()) {
        survives(&text);
    }

    /// `!` negates what is known, and leaves the rest unknown.
    #[test]
    fn a_comparison_and_its_negation_divide_the_ranks(text in pieces()) {
        if let (Ok(filter), Ok(opposite)) = (Filter::read(&text), Filter::read(&format!("!({text})"))) {
            let ranks = ranks();
            let (shown, unknown) = filter.among(&ranks, &"a".into());
            let (others, still) = opposite.among(&ranks, &"a".into());
            prop_assert_eq!(unknown, still);
            prop_assert_eq!(shown.len() + others.len() + unknown, ranks.len());
        }
    }
}

fn survives(text: &str) {
    match Filter::read(text) {
        Ok(filter) => {
            filter.among(&ranks(), &"a".into());
        }
        Err(fault) => {
            assert!(text.is_char_boundary(fault.at), "{text:?}: {fault:?}");
            let _ = text.parse::<Filter>();
        }
    }
    let _ = complete(text, &[]);
    let _ = Rank(0);
}
