//! Ranks whose process is gone: the first to end, the cause, and the ranks that followed.

use std::time::Duration;

use xpu_wire::{
    frame::{EndCause, Life, RankExit, RefusedMemory},
    id::Rank,
    unit::Moment,
};

use super::{Class, Confidence, Evidence, Finding, Kind, Severity, evidence::exit::Exited, hang};
use crate::job::{Job, RankView};

/// Unexplained ends this close to each other count as one: an end that nobody noted is dated by the rank's last
/// report, which is up to a second older, and up to two if one was lost.
const TOGETHER: Duration = Duration::from_secs(2);

pub(super) fn ranks(job: &Job, now: Moment) -> Option<Finding> {
    let ended = |view: &RankView| view.life() == Life::Died || view.exit().is_some();
    let mut dead: Vec<_> = job.ranks().filter(|(_, view)| ended(view)).collect();
    // A rank that was asked to end did not end first, whatever the hosts' clocks show.
    let followed = |view: &RankView| view.exit().is_some_and(RankExit::was_asked_to_end);
    let gone = |view: &RankView| gone(job, view);
    dead.sort_by_key(|&(rank, view)| (followed(view), gone(view), rank));
    let &(first, view) = dead.first()?;
    let silent = |view: &RankView| view.exit().is_none_or(|exit| exit.cause() == EndCause::Dead);
    let with_it = |other: &RankView| {
        silent(view) && silent(other) && !followed(other) && gone(other).since(gone(view)) <= TOGETHER
    };
    let (named, others): (Vec<_>, Vec<_>) =
        dead.iter().copied().partition(|&(rank, other)| rank == first || with_it(other));
    let since = now.since(gone(view)).as_secs_f64();
    let mut ranks: Vec<Rank> = named.iter().map(|&(rank, _)| rank).collect();
    ranks.sort_unstable();
    let mut followers: Vec<Rank> = others.iter().map(|&(rank, _)| rank).collect();
    followers.sort_unstable();
    let class = view.exit().map_or(Class::Dead, |exit| exit.cause().into());
    Some(Finding {
        kind: Kind::Exited,
        class,
        ranks,
        confidence: match view.exit() {
            Some(exit) if !exit.is_certain() => Confidence::Likely,
            _ => Confidence::Certain,
        },
        since_s: since,
        evidence: Evidence::Exited(Exited {
            rank: first,
            host: view.host().clone(),
            pid: view.pid(),
            step: view.step(),
            ago_s: since,
            was_seen: view.gone().is_some(),
            exit: view.exit().cloned().map(Box::new),
            by_sigterm: others.iter().filter(|(_, view)| followed(view)).count(),
            followers,
        }),
        advice: advice(class, view.exit()).to_owned(),
        collective: None,
        severity: Severity::Critical,
        cost: None,
    })
}

/// The hang that had lasted when the first rank ended, and that end. `ended` itself, if the job did not hang then.
pub(super) fn after_hang(job: &Job, ended: Finding, now: Moment) -> Finding {
    let Some((hang, at)) = job.hang_before_end() else { return ended };
    let since_s = hang.since_s + now.since(at).as_secs_f64();
    // Of a rank whose end was noticed late, the others' hang is a consequence.
    if since_s - ended.since_s < hang::PATIENCE.as_secs_f64() {
        return ended;
    }
    let Evidence::Exited(exited) = ended.evidence else { return ended };
    let hang = hang::with_kernels(job, hang.clone());
    Finding { since_s, evidence: Evidence::Ended(Box::new(hang.evidence), Box::new(exited)), ..hang }
}

/// When its process ended; if that is unknown, when the rank was last heard.
fn gone(job: &Job, view: &RankView) -> Moment {
    let noted = view.exit().map(|exit| exit.at);
    job.common(view.host(), noted.or_else(|| view.gone()).unwrap_or_else(|| view.last_report()))
}

/// When the last rank ended; `None` while one lives.
pub(super) fn over(job: &Job) -> Option<Moment> {
    let gone = |(_, view): (Rank, &RankView)| (!view.is_alive()).then(|| gone(job, view));
    job.ranks().map(gone).collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn advice(class: Class, exit: Option<&RankExit>) -> &'static str {
    let kernel_is_known = exit.is_some_and(|exit| exit.kernel.is_some());
    let memory = exit.and_then(|exit| exit.memory.as_ref());
    match class {
        Class::Exception => "look at its traceback and its input at that step",
        Class::Signal => {
            "look at these native frames; with `ulimit -c unlimited` the next crash leaves a core"
        }
        Class::Oom => {
            "give the job more host memory, or look for what grows on this rank: loaders, pinned buffers"
        }
        Class::ExitCode => "look at the end of its log: the program chose to exit",
        Class::CudaError if exit.and_then(RankExit::fragmented).is_some() => {
            "let PyTorch merge its reserved segments: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        }
        Class::CudaError if memory.is_some_and(RefusedMemory::grew) => {
            "look for what this rank keeps from step to step: longer sequences, tensors in lists, losses with their graph"
        }
        Class::CudaError if memory.is_some_and(RefusedMemory::is_mostly_of_others) => {
            "look for another process on its GPU (nvidia-smi): it holds most of the memory"
        }
        Class::CudaError if memory.is_some() => {
            "reduce the batch or the sequence length, recompute activations, or shard more of the model's state"
        }
        Class::CudaError if kernel_is_known => {
            "look at the inputs of this kernel at that step; compute-sanitizer names the access and its thread"
        }
        Class::CudaError => {
            "run again with xpu-top run --gpu-core to see which kernel it was, and check the GPU for Xid errors"
        }
        Class::NcclError => "look at the peer it talked to, and at NCCL_DEBUG=INFO in its log",
        _ => "look for a signal, the OOM killer or a traceback in its log",
    }
}
