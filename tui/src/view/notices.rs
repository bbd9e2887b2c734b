//! Problems in sentences: findings first, then outliers, then blind spots. If there are no problems, one
//! sentence states that.

use ratatui::text::{Line, Span};
use xpu_model::{
    figure,
    finding::Finding,
    job::PartlySeen,
    status::sentence::{claims, switched_off},
};

use super::{headline, panel::Title};
use crate::{
    app::{App, Metric},
    glyph,
    palette::{Palette, Role},
    widget::wrap::{clauses, wrapped},
};

/// One sentence, and its emphasis.
struct Notice {
    glyph: &'static str,
    role: Role,
    /// The headline; the text then contains its details.
    short: Option<String>,
    text: String,
    /// What to do next.
    next: Option<String>,
}

impl Notice {
    fn new(glyph: &'static str, role: Role, text: String) -> Self {
        Self { glyph, role, short: None, text, next: None }
    }

    fn warning(text: String) -> Self {
        Self::new(glyph::WARNING, Role::Warning, text)
    }
}

/// Largest number of lines of advice.
const NEXT: usize = 2;

/// Hosts or jobs named in one sentence before the rest is only counted.
const NAMED: usize = 4;

/// The text on the frame.
pub(super) fn title(app: &App) -> Title<'static> {
    let count = app.job_view.findings.len();
    let texts =
        || format!("{}, {} shows why", figure::counted(count, "finding", "findings"), app.key("findings"));
    let right = if count > 0 { texts() } else { String::new() };
    Title { name: "Findings", about: String::new(), right }
}

/// The notices of one picture, in its width.
pub(super) struct Notices<'a> {
    app: &'a App,
    width: usize,
    /// The reason of a hang, which is shown first.
    stall: Option<&'a Finding>,
    others: Vec<Notice>,
}

impl<'a> Notices<'a> {
    pub(super) fn of(app: &'a App, width: usize) -> Self {
        let stall = app.job_view.stall();
        Self { app, width, stall, others: notices(app, stall, width) }
    }

    /// All notices in `most` lines; those that do not fit are counted.
    pub(super) fn lines(&self, most: usize) -> Vec<Line<'static>> {
        let invitation = invitation(self.app, self.width);
        // A command that is cut off is useless.
        if invitation.is_empty() || invitation.len() + 2 > most || self.stall.is_some() {
            return self.found_lines(most);
        }
        let mut lines = self.found_lines(most - invitation.len());
        lines.extend(invitation);
        lines
    }

    fn found_lines(&self, most: usize) -> Vec<Line<'static>> {
        let Self { app, width, stall, others } = self;
        let mut lines: Vec<Line<'static>> = Vec::new();
        if let Some(finding) = stall {
            lines = headline::banner(app, finding, *width);
            lines.truncate(most);
        }
        if others.is_empty() || lines.len() == most {
            return lines;
        }
        let each = ((most - lines.len()) / others.len()).clamp(1, 3);
        let left = most - lines.len();
        let shown = if others.len() > left { left - 1 } else { others.len() };
        for (index, notice) in others[..shown].iter().enumerate() {
            // Each later notice gets one line; the worst one gets the rest.
            let after = shown - index - 1 + usize::from(shown < others.len());
            let space =
                most.saturating_sub(lines.len() + after).min(if index == 0 { 4 } else { each }).max(1);
            lines.extend(notice.lines(app.palette, *width, space));
        }
        if shown < others.len() {
            let text = format!("  and {} more", others.len() - shown);
            lines.push(Line::styled(text, app.palette.of(Role::Muted)));
        }
        lines
    }

    /// What limits the job, in a line below findings and warnings: `None` if the notices have it, or if the
    /// job hangs.
    pub(super) fn bound_line(&self) -> Option<Line<'static>> {
        let is_calm = matches!(&self.others[..], [first, ..] if first.role == Role::Good);
        if self.stall.is_some() || is_calm {
            return None;
        }
        bound(self.app)?.lines(self.app.palette, self.width, 1).pop()
    }
}

/// How to watch from another terminal, in as many lines as needed.
fn invitation(app: &App, width: usize) -> Vec<Line<'static>> {
    // Time in a replay is not the user's time.
    let Some(text) = app.messages.invitation(app.now()).filter(|_| !app.is_past()) else { return Vec::new() };
    let texts = wrapped(text, width.saturating_sub(2), usize::MAX);
    let muted = app.palette.of(Role::Muted);
    let signs = [glyph::HINT].into_iter().chain(std::iter::repeat(" "));
    texts.into_iter().zip(signs).map(|(text, sign)| Line::styled(format!("{sign} {text}"), muted)).collect()
}

impl Notice {
    /// The headline or the sentence, and below it the advice; on the same line if there is no room. Advice
    /// takes precedence over details, because the findings page has all details.
    fn lines(&self, palette: Palette, width: usize, space: usize) -> Vec<Line<'static>> {
        let style = palette.of(self.role);
        let words = if self.role == Role::Good { palette.of(Role::Muted) } else { style };
        let within = width.saturating_sub(2);
        let next =
            self.next.as_ref().map(|next| wrapped(&format!("next: {next}"), within, NEXT.min(space - 1)));
        let next = next.unwrap_or_default();
        let left = space - next.len();
        let texts = match (&self.short, &self.next) {
            (Some(short), _) => {
                let details = clauses(&self.text, within, left - 1);
                [short.clone()].into_iter().chain(details).collect()
            }
            (None, Some(next)) if space == 1 => wrapped(&format!("{}; {next}", self.text), within, 1),
            (None, _) => wrapped(&self.text, within, left),
        };
        let signs = [self.glyph].into_iter().chain(std::iter::repeat(" "));
        let texts = texts.into_iter().zip(signs).map(|(text, sign)| {
            Line::from(vec![Span::styled(format!("{sign} "), style), Span::styled(text, words)])
        });
        let next = next.into_iter().map(|text| Line::styled(format!("  {text}"), palette.of(Role::Text)));
        texts.chain(next).collect()
    }
}

/// All except the reason of a hang, which is shown first.
fn notices(app: &App, stall: Option<&Finding>, width: usize) -> Vec<Notice> {
    let others = app.job_view.findings.iter().filter(|finding| Some(*finding) != stall);
    let mut all: Vec<_> = others.map(|finding| found(app, finding, width)).collect();
    all.extend(outlier(app));
    all.extend(unreachable(app));
    // In a hung job, reports are missing because ranks do not run, not because of hosts.
    all.extend(partly_seen(app).filter(|_| stall.is_none()));
    all.extend(laid_out(app));
    all.extend(switched(app));
    all.extend(blind(app));
    all.extend(turned_away(app));
    all.extend(losses(app));
    let failure = app.files.recording.failure.clone();
    all.extend(failure.map(|text| Notice::new(glyph::ALARM, Role::Alarm, text)));
    all.extend(app.messages.warnings().rev().map(|text| Notice::warning(text.to_owned())));
    all.extend(other_jobs(app));
    if all.is_empty() && stall.is_none() {
        all.push(calm(app));
        all.extend(bound(app));
    }
    let no_run = app.job_view.lacks_past_run.as_ref();
    all.extend(no_run.map(|why| Notice::new(glyph::HINT, Role::Muted, format!("--baseline: {why}"))));
    all
}

/// What limits the job as a whole.
fn bound(app: &App) -> Option<Notice> {
    let bound = app.job_view.bound.as_ref().filter(|_| !app.job_view.is_frozen())?;
    Some(Notice::new(glyph::HINT, Role::Muted, bound.to_string()))
}

fn found(app: &App, finding: &Finding, width: usize) -> Notice {
    let (glyph, role) = headline::emphasis(finding);
    let short = headline::short(app, finding, width.saturating_sub(2));
    let details = finding.details(&short);
    Notice { short: Some(short), next: Some(finding.advice.clone()), ..Notice::new(glyph, role, details) }
}

/// Why there is no bandwidth, if there are collectives.
fn partly_seen(app: &App) -> Option<Notice> {
    let PartlySeen { ranks, of } = app.job_view.partly_seen.filter(|_| !app.job_view.is_frozen())?;
    // If a host is down, that is the reason.
    let advice = if app.connections.down().next().is_some() { "" } else { "; name all hosts of the job" };
    let text = format!("bus GB/s needs all ranks of a communicator: {ranks} of {of} seen{advice}");
    Some(Notice::warning(text))
}

/// Jobs that are not shown and make no progress.
fn other_jobs(app: &App) -> Option<Notice> {
    let others = &app.observed.others;
    let (text, first) = (others.text()?, others.hang().first()?);
    let next = format!(":job {first} shows it");
    Some(Notice { next: Some(next), ..Notice::new(glyph::ALARM, Role::Alarm, text) })
}

fn blind(app: &App) -> Option<Notice> {
    let text = format!("not observed: {}", app.job_view.blind.join("; "));
    (!app.job_view.blind.is_empty()).then_some(Notice::warning(text))
}

/// A notice if the given groups do not fit the job.
fn laid_out(app: &App) -> Option<Notice> {
    let said = app.listing.groups.as_ref()?.world_size();
    let has = app.job_view.world_size;
    let text = format!("--groups covers {said} ranks, the job has {has}: ignored");
    (said != u64::from(has)).then_some(Notice::warning(text))
}

/// A notice about hooks that were switched off.
fn switched(app: &App) -> Option<Notice> {
    let off = app.job_view.ranks_off;
    let text = switched_off(off);
    (off > 0).then_some(Notice::warning(text))
}

fn turned_away(app: &App) -> Option<Notice> {
    let processes = app.job_view.turned_away;
    let text = claims(processes, app.job()?.name().as_str());
    (processes > 0).then_some(Notice::warning(text))
}

/// The outlier, unless a finding names it.
fn outlier(app: &App) -> Option<Notice> {
    outlier_text(app).map(|text| Notice::new(glyph::LOW, Role::Warning, text))
}

pub(super) fn outlier_text(app: &App) -> Option<String> {
    let job_view = &app.job_view;
    let outlier = job_view.outlier?;
    let rank = outlier.rank(job_view);
    if job_view.findings.iter().any(|finding| finding.ranks.contains(&rank)) {
        return None;
    }
    let status = &job_view.rows()[outlier.row].status;
    let what = match outlier.metric {
        Metric::Gemm => "runs its GEMMs at",
        _ => "moves data at",
    };
    let late = status.lateness_ms_p50.filter(|&late| late >= 1.0);
    let late =
        late.map_or_else(String::new, |ms| format!("; it enters collectives {} ms late", figure::tenths(ms)));
    let others = match outlier.others {
        0 => String::new(),
        others => format!(" ({} more like it)", figure::counted(others, "rank", "ranks")),
    };
    let text = format!(
        "rank {rank} ({host}) {what} {value} {unit}, {share} below the median{others}{late}",
        host = status.host,
        value = figure::tenths(outlier.value),
        unit = outlier.metric.unit(),
        share = figure::percent(-outlier.deviation),
    );
    Some(text)
}

fn unreachable(app: &App) -> Option<Notice> {
    let down: Vec<_> = app.connections.down().collect();
    let (_, why) = down.first()?;
    let named: Vec<_> = down.iter().map(|(endpoint, _)| *endpoint).collect();
    // The reasons rarely differ, so the first one is shown for all.
    let text =
        format!("{} unreachable: {}: {why}", figure::counted(down.len(), "host", "hosts"), names(&named));
    Some(Notice::new(glyph::ALARM, Role::Alarm, text))
}

/// `a, b, c, d and 12 more`.
pub(super) fn names<T: ToString>(all: &[T]) -> String {
    let first: Vec<_> = all.iter().take(NAMED).map(T::to_string).collect();
    let rest = all.len() - first.len();
    let more = if rest > 0 { format!(" and {} more", figure::count(rest as u64)) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

fn losses(app: &App) -> Option<Notice> {
    let losses = app.job_view.losses;
    let parts: Vec<_> = [
        (losses.records, "records dropped"),
        (losses.frames, "frames lost"),
        (losses.untimed, "operations not timed"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{} {what}", figure::count(count)))
    .collect();
    let text = format!("lost: {}", parts.join(", "));
    (!parts.is_empty()).then_some(Notice::warning(text))
}

fn calm(app: &App) -> Notice {
    let job_view = &app.job_view;
    let text = match job_view.scale(Metric::Gemm) {
        _ if job_view.is_over() => "the job has ended; these are its last figures".to_owned(),
        _ if job_view.is_frozen() => "no more reports; these are the last figures".to_owned(),
        Some(scale) if job_view.rows().len() > 1 => format!(
            "no outliers: {} within {} of each other in GEMMs",
            figure::counted(job_view.heard, "rank", "ranks"),
            figure::percent(scale.spread()),
        ),
        Some(_) => "no outliers".to_owned(),
        None => job_view.headline.age.map_or_else(
            || "no GEMM timed yet".to_owned(),
            |age| format!("nothing new for {}", figure::age(age)),
        ),
    };
    Notice::new(glyph::GOOD, Role::Good, text)
}
