//! No event shows the start of the collective: each GPU's load by the driver shows whether it has started it.

use super::{BUDGET, By, Class, Cluster, Confidence, Finding, GpuState, Layout, STALL, only, wait};

/// All ranks wait for the GPU in a collective whose start no event shows. `load` gives each GPU's load by the
/// driver, in percent and watts.
fn loaded(ranks: u32, load: impl Fn(u32) -> (u8, u32) + 'static) -> Finding {
    let mut cluster = Cluster::new(5, ranks, Layout::Data, &[]).hang_from(STALL, move |rank, digest| {
        wait(digest, 0, 1);
        let (heard, (busy, watts)) = (digest.heard, load(rank));
        let device = digest.device.as_mut().unwrap();
        (device.read, device.age) = (heard, xpu_wire::unit::Nanoseconds(0));
        (device.utilisation, device.power) = (Some(busy), Some(watts * 1000));
        device.power_limit = Some(700_000);
    });
    let (mut found, seconds) = cluster.until_found(30);
    assert!(found.len() == 1 && seconds <= BUDGET, "{seconds} s: {found:#?}");
    found.remove(0)
}

#[test]
fn a_gpu_that_runs_nothing_or_computes_has_not_started_what_others_wait_in() {
    for ranks in [2, 8, 64] {
        let idle = loaded(ranks, |rank| if rank == 1 { (0, 90) } else { (100, 150) });
        assert_eq!(
            (idle.class, &idle.ranks, idle.confidence),
            (Class::NotStarted, &only(1), Confidence::Likely)
        );
        assert!(idle.evidence.to_string().contains("it runs nothing"), "{}", idle.evidence);
        let computes = loaded(ranks, |rank| (100, if rank == 1 { 600 } else { 150 + rank }));
        assert_eq!(
            (computes.class, &computes.ranks, computes.confidence),
            (Class::NotStarted, &only(1), Confidence::Guess)
        );
        let reported = computes.evidence.to_string();
        assert!(reported.contains("takes 600 W"), "{reported}");
        let [one, others] = computes.evidence.gpus() else { panic!("{reported}") };
        assert_eq!((&one.ranks, one.state, one.by), (&only(1), GpuState::Behind, By::Driver), "{reported}");
        assert_eq!(
            (others.ranks.len() as u32, others.state, others.by),
            (ranks - 1, GpuState::Still, By::Driver)
        );
        assert!(
            reported.contains(
                "launched, start not seen, and moving nothing, 100 % busy at 150 W (by the driver)"
            ),
            "{reported}"
        );
        assert_eq!(computes.collective.as_ref().unwrap().number, STALL * 36);
    }
}

/// Three cases: kernels spin on all GPUs; all GPUs are idle, as if another process held them; one GPU takes a
/// little more power.
#[test]
fn gpus_that_are_loaded_alike_are_said_of_no_rank() {
    let alike: [fn(u32) -> (u8, u32); 4] = [
        |_| (100, 150),
        |_| (0, 90),
        |rank| (100, if rank == 1 { 240 } else { 150 }),
        |rank| if rank == 1 { (60, 90) } else { (100, 150) },
    ];
    for (number, load) in alike.into_iter().enumerate() {
        let finding = loaded(8, load);
        assert_eq!((finding.class, finding.ranks.len()), (Class::InKernel, 8), "{number}");
    }
}
