//! Several hosts, asked through ssh: each alone, then pairs of hosts, then all together.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use xpu_analysis::qualify::{Figure, Host, HostPair, Qualification};

use super::{
    messages::Messages,
    worker::{Answer, Request, TOGETHER},
};
use crate::args::{QualifyArgs, quoted};

/// ssh prompts for nothing and detects a lost host.
const OPTIONS: [&str; 7] =
    ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ConnectTimeout=10"];

/// Time limit for a host of 16 GPUs alone.
const ALONE: Duration = Duration::from_secs(16 * 60 + 30);

/// Rounds of pairs; in each round every host is in one pair. With more hosts than rounds, a host is paired
/// only with some of the others.
const ROUNDS: usize = 15;

/// A host, and the program there.
#[derive(Debug)]
struct Remote {
    host: String,
    child: Child,
    requests: ChildStdin,
    answers: mpsc::Receiver<io::Result<String>>,
    messages: Messages,
    /// Number of GPUs that it has measured.
    gpus: u32,
}

pub(super) fn qualify(args: &QualifyArgs) -> anyhow::Result<Qualification> {
    let hosts = args.of.hosts(&args.connection)?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let mut of = Qualification { quick: args.quick, ..Qualification::default() };
    let mut remotes = Vec::new();
    for endpoint in &hosts.endpoints {
        let host = endpoint.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        match Remote::start(&host, args).and_then(|mut remote| {
            remote.ask(&Request::Measure)?;
            Ok(remote)
        }) {
            Ok(remote) => remotes.push(remote),
            Err(error) => of.hosts.push(not_run(host, format!("{error:#}"))),
        }
    }
    let mut answering = Vec::new();
    for mut remote in remotes {
        match remote.answer(ALONE) {
            Ok(Answer::Measured(host)) => {
                remote.gpus = host.gpus.len() as u32;
                let complete = host.not_run.is_none();
                // The given name is used, because two containers may have the same name of their own.
                of.hosts.push(Host { host: remote.host.clone(), ..*host });
                if complete && remote.gpus > 0 {
                    answering.push(remote);
                }
            }
            Ok(_) => {
                of.hosts.push(not_run(remote.host.clone(), "the answer is not that of xpu-top".to_owned()));
            }
            Err(why) => of.hosts.push(not_run(remote.host.clone(), why)),
        }
    }
    answering.retain_mut(|remote| match unique_id(remote) {
        Ok(_) => true,
        Err(why) => {
            let host = of.hosts.iter_mut().find(|host| host.host == remote.host);
            if let Some(host) = host {
                host.not_measured.push(format!("with other hosts: {why}"));
            }
            false
        }
    });
    if answering.len() > 1 {
        of.host_pairs = pairs(&mut answering);
    }
    if answering.len() > 2 {
        let mut all: Vec<_> = answering.iter_mut().collect();
        match together(&mut all) {
            Ok(figure) => of.all_reduce = Some(figure),
            Err(why) => of.errors.push(format!("all-reduce over all hosts: {why}")),
        }
    }
    Ok(of)
}

fn not_run(host: String, why: String) -> Host {
    Host { host, not_run: Some(why), ..Host::default() }
}

/// Measures every host with every other; disjoint pairs are measured at the same time.
fn pairs(hosts: &mut [Remote]) -> Vec<HostPair> {
    let mut outcome = Vec::new();
    for round in rounds(hosts.len()).into_iter().take(ROUNDS) {
        let mut free: Vec<_> = hosts.iter_mut().map(Some).collect();
        let mut taken = Vec::new();
        for [one, other] in round {
            taken.extend(free[one].take().zip(free[other].take()));
        }
        thread::scope(|scope| {
            let asked: Vec<_> = taken
                .into_iter()
                .map(|(one, other)| {
                    scope.spawn(move || {
                        let hosts = [one.host.clone(), other.host.clone()];
                        let reduced = together(&mut [one, other]);
                        let (figure, error) = match reduced {
                            Ok(figure) => (Some(figure), None),
                            Err(why) => (None, Some(why)),
                        };
                        HostPair { hosts, figure, error }
                    })
                })
                .collect();
            outcome.extend(asked.into_iter().filter_map(|pair| pair.join().ok()));
        });
    }
    outcome
}

/// A round-robin tournament: the first stays, the others move by one each round. With an odd number of hosts,
/// one pauses in each round.
fn rounds(hosts: usize) -> Vec<Vec<[usize; 2]>> {
    let slots = hosts.next_multiple_of(2);
    let others = slots.saturating_sub(1);
    let slot = |place: usize, round: usize| if place == 0 { 0 } else { 1 + (place - 1 + round) % others };
    let round = |round: usize| {
        let pairs = (0..slots / 2).map(|place| [slot(place, round), slot(slots - 1 - place, round)]);
        pairs.filter(|pair| pair.iter().all(|&host| host < hosts)).collect()
    };
    (0..others).map(round).collect()
}

/// All GPUs of these hosts, in one communicator.
fn together(hosts: &mut [&mut Remote]) -> Result<Figure, String> {
    let Some(first) = hosts.first_mut() else { return Err("there is no host".to_owned()) };
    let id = unique_id(first)?;
    let world = hosts.iter().map(|remote| remote.gpus).sum();
    let mut next = 0;
    for remote in hosts.iter_mut() {
        let request = Request::AllReduce { id: id.clone(), first: next, world };
        remote.ask(&request).map_err(|error| format!("{error:#}"))?;
        next += remote.gpus;
    }
    let mut figures = Vec::new();
    for remote in hosts.iter_mut() {
        // All answers are read, because a remaining one would be read as the answer to the next request.
        figures.push(match remote.answer(TOGETHER + TOGETHER / 2) {
            Ok(Answer::Reduced(figure)) => Ok(*figure),
            Ok(other) => Err(format!("{}: {}", remote.host, unexpected(other))),
            Err(why) => Err(format!("{}: {why}", remote.host)),
        });
    }
    let figures: Vec<_> = figures.into_iter().collect::<Result<_, _>>()?;
    let slowest = figures.into_iter().min_by(|a, b| a.median.total_cmp(&b.median));
    slowest.ok_or_else(|| "no host answered".to_owned())
}

/// Requests NCCL's id for ranks that connect at this host.
fn unique_id(host: &mut Remote) -> Result<String, String> {
    host.ask(&Request::UniqueId).map_err(|error| format!("{error:#}"))?;
    match host.answer(TOGETHER)? {
        Answer::UniqueId(id) => Ok(id),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: Answer) -> String {
    match answer {
        Answer::Failed(why) => why,
        _ => "the answer is not that of xpu-top".to_owned(),
    }
}

impl Remote {
    fn start(host: &str, args: &QualifyArgs) -> anyhow::Result<Self> {
        let ssh = args.of.ssh.as_deref().unwrap_or("ssh");
        let mut words = ssh.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words).args(OPTIONS).arg("--").arg(host);
        let flags = [(args.quick, " --quick"), (args.beside_job, " --beside-job")];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect();
        let port =
            args.connection.base_port.map_or_else(String::new, |base| format!(" --base-port {}", base.0));
        // ssh passes one text to the shell there.
        command.arg(format!("{} qualify --worker{flags}{port}", quoted(&args.program)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start `{ssh}`"))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((requests, out), err) = pipes.context("no pipes to ssh")?;
        let (lines, answers) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(out).lines().try_for_each(|line| lines.send(line)).ok();
        });
        let messages = Messages::of(err);
        Ok(Self { host: host.to_owned(), child, requests, answers, messages, gpus: 0 })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<()> {
        let line = serde_json::to_string(request)? + "\n";
        self.requests.write_all(line.as_bytes()).with_context(|| self.why_silent())
    }

    /// The next line that is an answer: a login script may print others.
    fn answer(&mut self, patience: Duration) -> Result<Answer, String> {
        loop {
            match self.answers.recv_timeout(patience) {
                Ok(Ok(line)) => {
                    if let Ok(answer) = serde_json::from_str(&line) {
                        return Ok(answer);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("no answer in {} s", patience.as_secs()));
                }
                Ok(Err(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.why_silent()),
            }
        }
    }

    /// Waits until the program has ended, and returns its last message as the reason why it does not answer.
    fn why_silent(&mut self) -> String {
        let _ = self.child.wait();
        self.messages.last().map_or_else(
            || format!("the program on {} ended without an answer", self.host),
            |line| {
                format!("{}; `ssh {} xpu-top --version` must work without a prompt", line.trim(), self.host)
            },
        )
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The program there ends with its input; ssh may hang with the host.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_hosts_is_scheduled_once_and_no_host_twice_in_a_round() {
        for hosts in 2..10 {
            let rounds = rounds(hosts);
            let mut all: Vec<_> = rounds
                .concat()
                .into_iter()
                .map(|mut pair| {
                    pair.sort_unstable();
                    pair
                })
                .collect();
            all.sort_unstable();
            let wanted: Vec<_> = (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| [a, b])).collect();
            assert_eq!(all, wanted, "{hosts} hosts");
            for round in rounds {
                let mut slots = round.concat();
                slots.sort_unstable();
                slots.dedup();
                assert_eq!(slots.len(), 2 * round.len());
            }
        }
    }
}
