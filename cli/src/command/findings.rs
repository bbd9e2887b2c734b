//! `xpu-top findings`: the findings of a recording, or of the history of a running job, with their start and
//! end.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use serde::Serialize;
use tokio::time::Instant;
use xpu_client::follow::Following;
use xpu_model::{
    figure::{age, clock, counted, time_of_day},
    finding::{EndedFinding, Finding},
    status::{ExitCode as Code, Status},
};
use xpu_wire::{id::JobName, text::clean, unit::Moment};

use super::{
    living::{Connection, LOOK, connect, report_kept, report_no_job, report_unreachable, take_until},
    output::{indented, print_document, width},
    past,
};
use crate::args::FindingsArgs;

pub fn findings(args: &FindingsArgs) -> anyhow::Result<ExitCode> {
    let price = args.priced.price()?;
    let (following, now) = match &args.file {
        Some(path) => past::followed(path, None, args.of.job.as_ref(), None)?,
        None => (remembered(args)?, Moment::now()),
    };
    let mut status = following.status(now);
    if status.ranks.is_empty() {
        if let Some(path) = &args.file {
            eprintln!("xpu-top: {}: it has no ranks{}", path.display(), of(args));
        } else {
            report_no_job(args.of.job.as_ref());
            report_kept("status", args.of.job.as_ref());
        }
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    status.price(price);
    let list = List::of(&status, now);
    print_document(&list, args.json, || list.text(args.file.is_some()))?;
    Ok(ExitCode::SUCCESS)
}

/// The history that the collectors of a running job keep.
fn remembered(args: &FindingsArgs) -> anyhow::Result<Following> {
    let Connection { mut following, live: _live, mut arrivals } = connect(&args.of)?;
    following.note_what_goes();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let complete = Following::is_complete;
    runtime.block_on(take_until(&mut following, &mut arrivals, Instant::now() + LOOK, complete));
    report_unreachable(&following, "");
    Ok(following)
}

fn of(args: &FindingsArgs) -> String {
    args.of.job.as_ref().map_or_else(String::new, |job| format!(" of job {job}"))
}

/// The findings of a job, in order of their start. Times are seconds since 1970.
#[derive(Debug, Serialize)]
struct List<'a> {
    job: &'a JobName,
    /// The end of the recording, or now.
    until: f64,
    findings: Vec<One<'a>>,
    /// Other jobs on these hosts that make no progress.
    #[serde(skip_serializing_if = "<[JobName]>::is_empty")]
    other_jobs_hang: &'a [JobName],
}

#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum One<'a> {
    /// Still present at the end.
    Present {
        began_at: f64,
        headline: String,
        #[serde(flatten)]
        finding: &'a Finding,
    },
    Ended {
        #[serde(flatten)]
        finding: &'a EndedFinding,
    },
}

impl One<'_> {
    fn began_at(&self) -> f64 {
        match self {
            Self::Present { began_at, .. } => *began_at,
            Self::Ended { finding } => finding.began_at,
        }
    }
}

impl<'a> List<'a> {
    fn of(status: &'a Status, now: Moment) -> Self {
        let until = now.0 as f64 / 1e9;
        let host = |rank| status.ranks.iter().find(|row| row.rank == rank).map(|row| row.host.as_str());
        let present = |finding: &'a Finding| One::Present {
            began_at: until - finding.since_s,
            headline: finding.headline_on(finding.ranks.first().and_then(|&rank| host(rank))),
            finding,
        };
        let ended = status.ended_findings.iter().map(|finding| One::Ended { finding });
        let mut findings: Vec<_> = status.findings.iter().map(present).chain(ended).collect();
        findings.sort_by(|one, other| one.began_at().total_cmp(&other.began_at()));
        Self { job: &status.job, until, findings, other_jobs_hang: &status.other_jobs_hang }
    }

    fn text(&self, is_recorded: bool) -> String {
        let end = clock(moment(self.until));
        let count = match self.findings.len() {
            0 => "no findings".to_owned(),
            some => counted(some, "finding", "findings"),
        };
        let mut text = format!("{}: {count} until {end}\n", self.job);
        for job in self.other_jobs_hang {
            let job = clean(job.as_str());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "! another job makes no progress: {job}; --job {job} shows it");
        }
        for one in &self.findings {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{}  ", time_of_day(moment(one.began_at())));
            let _ = match one {
                One::Present { headline, finding, .. } => {
                    let lasted = age(Duration::from_secs_f64(finding.since_s.max(0.0)));
                    let there = if is_recorded { "still present at the end" } else { "still present" };
                    let _ = writeln!(text, "{lasted}, {there}\n  {}", clean(headline));
                    text += &indented(&clean(&finding.details(headline)), width());
                    finding.cost.as_ref().map_or(Ok(()), |cost| writeln!(text, "  costs {cost}"))
                }
                One::Ended { finding: ended } => {
                    let lasted = age(Duration::from_secs_f64((ended.ended_at - ended.began_at).max(0.0)));
                    let until = time_of_day(moment(ended.ended_at));
                    let _ = writeln!(text, "{lasted}, until {until}\n  {}", clean(&ended.headline));
                    text += &indented(&clean(&ended.evidence), width());
                    ended.lost().map_or(Ok(()), |lost| writeln!(text, "  {lost}"))
                }
            };
        }
        text
    }
}

fn moment(seconds: f64) -> Moment {
    Moment((seconds.max(0.0) * 1e9) as u64)
}
