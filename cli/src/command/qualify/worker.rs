//! The program on one of several hosts: on request, it measures the GPUs, alone and with those of other
//! hosts. Requests and answers are lines of JSON on standard input and output.

use std::{
    io::{self, BufRead as _, Write as _},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use xpu_analysis::qualify::{Figure, Host, Verdict};

use super::{How, end, exchange, measure};
use crate::gpu::{
    device::Gpu,
    nccl::{Nccl, Ranks, UniqueId},
};

/// Time limit for the ranks of all hosts to connect and to reduce.
pub(super) const TOGETHER: Duration = Duration::from_secs(90);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Measure,
    /// NCCL's id for ranks that connect at this host.
    UniqueId,
    AllReduce {
        id: String,
        first: u32,
        world: u32,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Measured(Box<Host>),
    UniqueId(String),
    Reduced(Box<Figure>),
    Failed(String),
}

/// Runs until standard input ends, or a GPU does not answer.
pub(super) fn answer(how: &How) -> anyhow::Result<ExitCode> {
    let mut gpus = None;
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Measure => {
                let (host, opened) = measure::here(how);
                gpus = opened;
                Answer::Measured(Box::new(host))
            }
            Request::UniqueId => or_failed(unique_id().map(Answer::UniqueId)),
            Request::AllReduce { id, first, world } => {
                let outcome = reduce(&mut gpus, &id, Ranks { first, world });
                or_failed(outcome.map(|figure| Answer::Reduced(Box::new(figure))))
            }
        };
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    end(Verdict::Pass)
}

fn or_failed(outcome: Result<Answer, String>) -> Answer {
    outcome.unwrap_or_else(Answer::Failed)
}

fn nccl() -> Result<Nccl, String> {
    Nccl::open().ok_or_else(|| "no libnccl.so.2".to_owned())
}

fn unique_id() -> Result<String, String> {
    Ok(nccl()?.unique_id()?.text())
}

/// Measures an all-reduce on a separate thread. If that thread does not return, it is abandoned with its GPUs.
fn reduce(gpus: &mut Option<Vec<Gpu>>, id: &str, ranks: Ranks) -> Result<Figure, String> {
    let id = UniqueId::parse(id).ok_or("this is not an id of NCCL")?;
    let nccl = nccl()?;
    let mut taken = gpus.take().ok_or("the GPUs of this host do not answer")?;
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        let outcome = exchange::all_reduce(nccl, &mut taken, id, ranks);
        let _ = ends.send((outcome, taken));
    });
    let (outcome, taken) = ended
        .recv_timeout(TOGETHER)
        .map_err(|_late| format!("the all-reduce did not end in {} s", TOGETHER.as_secs()))?;
    *gpus = Some(taken);
    outcome?.ok_or_else(|| "no repeat was timed".to_owned())
}
