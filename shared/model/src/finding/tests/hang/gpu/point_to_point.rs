//! Sends and receives, with and without their partners.

use xpu_wire::{
    collective::Operation,
    frame::{Body, CallState, RecordedCall},
    ledger::Call,
};

use super::{
    super::super::cluster::hold, BUDGET, By, Class, Cluster, Confidence, GpuState, Layout, STALL, only,
    record, wait,
};

/// Rank 0 waits for a message of rank 1, behind a GEMM, as the second call of a group.
#[test]
fn a_receive_without_its_send_has_the_state_of_both_gpus() {
    let mut cluster = Cluster::new(5, 2, Layout::Data, &[]).hang_from(STALL, |_, digest| wait(digest, 0, 1));
    cluster.run(STALL + BUDGET);
    let job = cluster.job();
    let records = job.ranks().map(|(rank, view)| {
        let mut record = record(job, rank, view, cluster.now(), [Some(CallState::Queued), None]);
        let mut receive = RecordedCall { number: Some(0), peer: Some(1), ..record.calls[0].clone() };
        (receive.operation, receive.group) = (Operation::Recv, Some(1000));
        let second = RecordedCall { order: 1001, state: CallState::Enqueued, ..receive.clone() };
        record.calls = if rank.0 == 0 {
            vec![RecordedCall { operation: Operation::Send, ..receive }, second]
        } else {
            vec![RecordedCall { peer: Some(0), group: None, ..receive }]
        };
        record.made = record.calls.len() as u64;
        record
    });
    let records: Vec<_> = records.collect();
    cluster.fold(records.into_iter().map(Body::Record));
    let found = cluster.run(1).findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    let reported = finding.evidence.to_string();
    assert_eq!((finding.class, &finding.ranks), (Class::Unmatched, &only(0)), "{reported}");
    assert!(reported.contains("rank 1: it has been inside cudaStreamSynchronize for"), "{reported}");
    let [not_called, behind] = finding.evidence.gpus() else { panic!("{reported}") };
    assert_eq!((&not_called.ranks, not_called.state), (&only(1), GpuState::NotCalled), "{reported}");
    let of = (&behind.ranks, behind.state, behind.by, behind.work.as_deref());
    assert_eq!(of, (&only(0), GpuState::Behind, By::Events, Some("GEMM 4096x4096x4096 bf16")), "{reported}");
}

/// Each rank sends to the next one and receives from the one before; all of them wait, and no call lacks its partner.
#[test]
fn sends_and_receives_that_all_have_partners_do_not_count_as_unmatched() {
    use CallState::{Begun, Done, Enqueued, Queued};
    let found = |state: fn(u32) -> CallState| {
        let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |_, digest| {
            digest.launches.point_to_point = 90;
            hold(digest, Call::StreamSynchronize);
        });
        cluster.run(STALL + BUDGET);
        let records = cluster.job().ranks().map(|(rank, view)| {
            let mut record = record(cluster.job(), rank, view, cluster.now(), [Some(Done), None]);
            let template = record.calls.remove(0);
            let own = rank.0;
            let call = |(order, (operation, peer)): (u64, (Operation, u32))| RecordedCall {
                order: 1000 + order,
                number: Some(0),
                operation,
                reduction: None,
                peer: Some(peer),
                state: state(own),
                ..template.clone()
            };
            record.made = 2;
            record.calls = (0..)
                .zip([(Operation::Send, (own + 1) % 8), (Operation::Recv, (own + 7) % 8)])
                .map(call)
                .collect();
            record
        });
        let records: Vec<_> = records.collect();
        cluster.fold(records.into_iter().map(Body::Record));
        let [found] = &cluster.run(1).findings()[..] else { panic!("one finding") };
        (found.class, found.ranks.len(), found.confidence, found.evidence.to_string())
    };
    let (class, ranks, confidence, said) = found(|_| Enqueued);
    assert_eq!((class, ranks, confidence), (Class::InKernel, 8, Confidence::Likely), "{said}");
    assert!(said.contains("each send has its receive"), "{said}");
    let (class, ranks, _, said) = found(|rank| if rank == 3 { Queued } else { Begun });
    assert_eq!((class, ranks), (Class::NotStarted, 1), "{said}");
    assert!(said.contains("rank 3 has not reached its") && said.contains("rank 3: behind work"), "{said}");
}
