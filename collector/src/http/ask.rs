//! Sends requests to the collector, over the same sockets as viewers. Each request has a socket until its
//! answer is complete.

use std::time::{Duration, Instant};

use xpu_net::{messages, socket};
use xpu_wire::{
    frame::{Body, Frame, RankStacks, Request},
    id::{HostName, JobName, Rank},
};
use zmq::{POLLIN, Socket};

use crate::upstream::Upstream;

/// Time limit for stacks of all ranks, shorter than the time limit of an HTTP request.
const STACKS: Duration = Duration::from_secs(20);

/// Time limit for the collector's confirmation.
const DONE: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The collector refused, with this reason.
    Refused(String),
    /// The answer did not arrive in time.
    Late,
    Library(zmq::Error),
}

impl From<zmq::Error> for Unanswered {
    fn from(error: zmq::Error) -> Self {
        Self::Library(error)
    }
}

/// Pauses or resumes the hooks of a job. Returns when the command was sent to the workers.
pub(super) fn switch(upstream: &Upstream, job: JobName, on: bool) -> Result<(), Unanswered> {
    let asked = open(upstream)?;
    asked.send(messages::request(Request::Enable { job, on }), 0)?;
    // Requests are handled in order: once this one is answered, the first was carried out or refused.
    asked.send(messages::request(Request::Snapshot), 0)?;
    let mut refused = None;
    receive(&asked, Instant::now() + DONE, |frame| match frame.body {
        Body::Refusal(why) => {
            refused = Some(why);
            true
        }
        Body::Snapshot(_) => true,
        _ => false,
    })?;
    refused.map_or(Ok(()), |why| Err(Unanswered::Refused(why)))
}

/// The stacks of these ranks that arrived in time.
pub(super) fn stacks(
    upstream: &Upstream,
    job: &JobName,
    ranks: &[Rank],
    natively: bool,
) -> Result<Vec<(HostName, RankStacks)>, Unanswered> {
    let asked = open(upstream)?;
    let wanted = Request::Stacks { job: job.clone(), ranks: ranks.to_vec(), kept: false, natively };
    asked.send(messages::request(wanted), 0)?;
    let mut came: Vec<(HostName, RankStacks)> = Vec::new();
    let mut refused = None;
    let heard = receive(&asked, Instant::now() + STACKS, |frame| {
        match frame.body {
            Body::Stacks(stacks) if stacks.job == *job && ranks.contains(&stacks.rank) => {
                came.retain(|(_, known)| known.rank != stacks.rank);
                came.push((frame.host, stacks));
            }
            Body::Refusal(why) => refused = Some(why),
            _ => {}
        }
        refused.is_some() || came.len() >= ranks.len()
    });
    match (heard, refused) {
        (_, Some(why)) => Err(Unanswered::Refused(why)),
        // A partial result is still useful.
        (Ok(()) | Err(Unanswered::Late), None) => {
            came.sort_by_key(|(_, stacks)| stacks.rank);
            Ok(came)
        }
        (Err(error), None) => Err(error),
    }
}

fn open(upstream: &Upstream) -> zmq::Result<Socket> {
    let socket = socket::control_client(&upstream.context, None)?;
    socket.connect(&upstream.control)?;
    Ok(socket)
}

/// Receives answers until one is enough.
fn receive(socket: &Socket, until: Instant, mut enough: impl FnMut(Frame) -> bool) -> Result<(), Unanswered> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Unanswered::Late);
        }
        match socket.poll(POLLIN, i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1)) {
            Ok(_) | Err(zmq::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        for received in messages::waiting(socket) {
            let (_, frame) = received?;
            if enough(frame) {
                return Ok(());
            }
        }
    }
}
