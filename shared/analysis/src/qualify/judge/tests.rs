use super::*;
use crate::qualify::{Gpu, HostPair, Pair};

const MODEL: &str = "NVIDIA H200";

fn figure(kind: Kind, name: &str, median: f64) -> Figure {
    Figure::of(kind, name, vec![median]).expect("a rate")
}

/// A host whose GPUs reach these rates with their largest GEMM.
fn host(name: &str, rates: &[f64]) -> Host {
    let gpu = |(index, &rate): (usize, &f64)| Gpu {
        index: index as u32,
        name: Some(MODEL.to_owned()),
        figures: vec![figure(Kind::Gemm, "bf16 8192", rate)],
        ..Gpu::default()
    };
    Host { host: name.to_owned(), gpus: rates.iter().enumerate().map(gpu).collect(), ..Host::default() }
}

fn judged(hosts: Vec<Host>) -> Qualification {
    let mut of = Qualification { hosts, ..Qualification::default() };
    of.judge();
    of
}

fn failing(of: &Qualification) -> Vec<(&str, u32)> {
    let gpus = of.hosts.iter().flat_map(|host| host.gpus.iter().map(move |gpu| (host, gpu)));
    let bad = gpus.filter(|(_, gpu)| gpu.verdict == Verdict::Fail);
    bad.map(|(host, gpu)| (host.host.as_str(), gpu.index)).collect()
}

#[test]
fn a_gpu_that_is_slower_than_its_neighbours_fails_and_its_host_with_it() {
    let of = judged(vec![host("a", &[700.0, 702.0, 698.0, 690.0]), host("b", &[701.0, 600.0, 699.0, 705.0])]);
    assert_eq!(failing(&of), [("b", 1)]);
    assert_eq!((of.hosts[0].verdict, of.hosts[1].verdict), (Verdict::Pass, Verdict::Fail));
    assert_eq!(
        of.hosts[1].why,
        ["GPU 1: gemm bf16 8192: 600 TFLOPS, 86 % of its neighbours (700), at least 90 % are expected"]
    );
    assert_eq!(of.verdict.exit_code(), 1);
    // If it is judged again, nothing appears twice.
    let mut again = of.clone();
    again.judge();
    assert_eq!(again, of);
}

#[test]
fn the_slower_of_two_fails_and_a_single_gpu_has_no_neighbours() {
    assert_eq!(failing(&judged(vec![host("a", &[700.0, 350.0])])), [("a", 1)]);
    let alone = judged(vec![host("a", &[350.0])]);
    assert_eq!((failing(&alone), alone.hosts[0].gpus[0].figures[0].of_neighbours), (vec![], None));
}

#[test]
fn another_model_is_no_neighbour() {
    let mut slower = host("b", &[300.0]);
    slower.gpus[0].name = Some("NVIDIA A100-SXM4-80GB".to_owned());
    assert_eq!(failing(&judged(vec![host("a", &[700.0, 700.0]), slower])), []);
}

#[test]
fn a_gpu_is_also_compared_with_its_peak_and_its_past() {
    let with = |peak, past| {
        let mut alone = host("a", &[600.0]);
        let figure = &mut alone.gpus[0].figures[0];
        (figure.peak, figure.past) = (peak, past);
        judged(vec![alone])
    };
    assert_eq!(failing(&with(Some(989.5), Some(650.0))), []);
    assert_eq!(failing(&with(Some(1300.0), None)), [("a", 0)]);
    let past = with(None, Some(700.0));
    assert!(past.hosts[0].why[0].contains("86 % of its own past (700)"), "{:?}", past.hosts[0].why);
}

#[test]
fn smaller_gemms_are_not_compared_with_the_data_sheet() {
    let mut small = host("a", &[100.0]);
    small.gpus[0].figures[0] = figure(Kind::Gemm, "bf16 2048", 100.0).with_peak(Some(989.5));
    assert_eq!(failing(&judged(vec![small])), []);
}

/// All ordered pairs of GPUs, at this rate.
fn paired(mut of: Host, rate: impl Fn(u32, u32) -> f64) -> Host {
    let count = of.gpus.len() as u32;
    for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        if from != to {
            let figure = figure(Kind::Peer, "", rate(from, to));
            of.pairs.push(Pair { from, to, access: true, link: Some(0), figure });
        }
    }
    of
}

#[test]
fn a_gpu_in_every_slow_pair_fails_and_one_slow_pair_fails_the_host() {
    let four = || host("a", &[700.0; 4]);
    let slow = |bad: u32| move |from, to| if from == bad || to == bad { 100.0 } else { 300.0 };
    let of = judged(vec![paired(four(), slow(2))]);
    assert_eq!(failing(&of), [("a", 2)]);
    assert!(
        of.hosts[0].why[0].contains("it is in each of the 6 slow pairs of GPUs"),
        "{:?}",
        of.hosts[0].why
    );
    let of = judged(vec![paired(four(), |from, to| if (from, to) == (1, 3) { 100.0 } else { 300.0 })]);
    assert_eq!((failing(&of), of.verdict), (vec![], Verdict::Fail));
    assert!(of.hosts[0].why[0].starts_with("GPU 1 to GPU 3: 100 GB/s, 33 %"), "{:?}", of.hosts[0].why);
}

#[test]
fn pairs_with_another_link_are_not_compared() {
    let mut bridged =
        paired(host("a", &[700.0; 4]), |from, to| if from / 2 == to / 2 { 300.0 } else { 25.0 });
    for pair in &mut bridged.pairs {
        pair.link = Some(i32::from(pair.from / 2 != pair.to / 2));
    }
    assert_eq!(judged(vec![bridged]).verdict, Verdict::Pass);
}

#[test]
fn a_host_in_every_slow_pair_of_hosts_fails() {
    let names = ["a", "b", "c", "d"];
    let mut of = Qualification {
        hosts: names.iter().map(|name| host(name, &[700.0])).collect(),
        ..Qualification::default()
    };
    for (place, one) in names.iter().enumerate() {
        for other in &names[place + 1..] {
            let slow = [*one, *other].contains(&"c");
            let figure = figure(Kind::AllReduce, "", if slow { 10.0 } else { 45.0 });
            let hosts = [(*one).to_owned(), (*other).to_owned()];
            of.host_pairs.push(HostPair { hosts, figure: Some(figure), error: None });
        }
    }
    of.judge();
    let verdicts: Vec<_> = of.hosts.iter().map(|host| host.verdict).collect();
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Fail, Verdict::Pass]);
}

#[test]
fn a_measurement_that_was_not_run_is_no_pass() {
    let silent = Host { host: "b".to_owned(), not_run: Some("no driver".to_owned()), ..Host::default() };
    let of = judged(vec![host("a", &[700.0]), silent]);
    assert_eq!((of.hosts[1].verdict, of.verdict.exit_code()), (Verdict::NotRun, 2));
    assert_eq!(judged(Vec::new()).verdict, Verdict::NotRun);
}
