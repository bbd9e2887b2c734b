//! What is wrong, in sentences: findings first, then what stands out, what cannot be seen, and if nothing: that.

use ratatui::text::{Line, Span};
use xpu_shared::{finding::Confidence, job::PartlySeen};

use crate::{
    app::{App, Metric},
    arrival::Endpoint,
    command::{claims, switched_off},
    figure, glyph,
    palette::Role,
    widget::wrap::wrapped,
};

/// One sentence, and how loud it is.
struct Notice {
    glyph: &'static str,
    role: Role,
    text: String,
}

/// Hosts named in one sentence before the rest is only counted.
const NAMED: usize = 4;

/// All notices in `most` lines; those that do not fit are counted.
pub(super) fn lines(app: &App, width: usize, most: usize) -> Vec<Line<'static>> {
    let notices = notices(app);
    let each = (most / notices.len().max(1)).clamp(1, 3);
    let mut lines: Vec<Line<'static>> = Vec::new();
    let shown = if notices.len() > most { most - 1 } else { notices.len() };
    for notice in &notices[..shown] {
        let room = (most - lines.len()).min(each);
        let style = app.palette.of(notice.role);
        for (index, text) in wrapped(&notice.text, width.saturating_sub(2), room).into_iter().enumerate() {
            let sign = if index == 0 { notice.glyph } else { " " };
            let words = if notice.role == Role::Good { app.palette.of(Role::Muted) } else { style };
            lines.push(Line::from(vec![Span::styled(format!("{sign} "), style), Span::styled(text, words)]));
        }
    }
    if shown < notices.len() {
        let text = format!("  and {} more", notices.len() - shown);
        lines.push(Line::styled(text, app.palette.of(Role::Muted)));
    }
    lines
}

fn notices(app: &App) -> Vec<Notice> {
    let mut all: Vec<_> = app
        .survey
        .findings
        .iter()
        .map(|finding| {
            let sure = match finding.confidence {
                Confidence::Certain => "",
                Confidence::Likely => "likely: ",
                Confidence::Guess => "perhaps: ",
            };
            let alarm = finding.stops_the_job();
            let (glyph, role) =
                if alarm { (glyph::ALARM, Role::Alarm) } else { (glyph::WARNING, Role::Warning) };
            Notice { glyph, role, text: format!("{sure}{}", finding.sentence()) }
        })
        .collect();
    all.extend(odd(app));
    all.extend(unreachable(app));
    all.extend(partly_seen(app));
    all.extend(switched(app));
    all.extend(blind(app));
    all.extend(turned_away(app));
    all.extend(losses(app));
    let warn = |text: &String| Notice { glyph: glyph::WARNING, role: Role::Warning, text: text.clone() };
    all.extend(app.warnings.iter().rev().map(warn));
    if all.is_empty() {
        all.push(calm(app));
    }
    all.extend(app.invitation.iter().map(|text| Notice {
        glyph: glyph::HINT,
        role: Role::Muted,
        text: text.clone(),
    }));
    all
}

/// Why there is no bandwidth, where it is not for want of collectives.
fn partly_seen(app: &App) -> Option<Notice> {
    let PartlySeen { ranks, of } = app.survey.partly_seen.filter(|_| !app.survey.is_frozen())?;
    // With a host down, that is why.
    let advice = if app.roads.down().next().is_some() { "" } else { "; name all hosts of the job" };
    let text = format!("bus GB/s needs all ranks of a communicator: {ranks} of {of} seen{advice}");
    Some(Notice { glyph: glyph::WARNING, role: Role::Warning, text })
}

fn blind(app: &App) -> Option<Notice> {
    let text = format!("not everything can be seen: {}", app.survey.blind.join("; "));
    (!app.survey.blind.is_empty()).then_some(Notice { glyph: glyph::WARNING, role: Role::Warning, text })
}

/// Hooks that somebody switched off.
fn switched(app: &App) -> Option<Notice> {
    let off = app.survey.ranks_off;
    let text = switched_off(off);
    (off > 0).then_some(Notice { glyph: glyph::WARNING, role: Role::Warning, text })
}

fn turned_away(app: &App) -> Option<Notice> {
    let processes = app.survey.turned_away;
    let text = claims(processes, app.job()?.name().as_str());
    (processes > 0).then_some(Notice { glyph: glyph::WARNING, role: Role::Warning, text })
}

/// The rank that stands out, unless a finding has named it.
fn odd(app: &App) -> Option<Notice> {
    let survey = &app.survey;
    let odd = survey.odd?;
    let rank = odd.rank(survey);
    if survey.findings.iter().any(|finding| finding.ranks.contains(&rank)) {
        return None;
    }
    let status = &survey.rows()[odd.row].status;
    let what = match odd.metric {
        Metric::Gemm => "runs its GEMMs at",
        Metric::Bus => "moves data at",
    };
    let late = status.lateness_ms_p50.filter(|&late| late >= 1.0);
    let late = late.map_or_else(String::new, |ms| {
        format!("; it comes {} ms late to its collectives", figure::tenths(ms))
    });
    let others = match odd.others {
        0 => String::new(),
        others => format!(" ({} more like it)", figure::counted(others, "rank", "ranks")),
    };
    let text = format!(
        "rank {rank} ({host}) {what} {value} {unit}, {share} % below the median{others}{late}",
        host = status.host,
        value = figure::tenths(odd.value),
        unit = odd.metric.unit(),
        share = figure::tenths(-odd.deviation * 100.0),
    );
    Some(Notice { glyph: glyph::LOW, role: Role::Warning, text })
}

fn unreachable(app: &App) -> Option<Notice> {
    let down: Vec<_> = app.roads.down().collect();
    let (_, why) = down.first()?;
    let named: Vec<_> = down.iter().map(|(endpoint, _)| *endpoint).collect();
    // Different reasons are rare; the first one stands for them, and says where to look.
    let text =
        format!("{} unreachable: {}: {why}", figure::counted(down.len(), "host", "hosts"), names(&named));
    Some(Notice { glyph: glyph::ALARM, role: Role::Alarm, text })
}

/// `a, b, c, d and 12 more`.
pub(super) fn names(endpoints: &[&Endpoint]) -> String {
    let first: Vec<_> = endpoints.iter().take(NAMED).map(std::string::ToString::to_string).collect();
    let rest = endpoints.len() - first.len();
    let more = if rest > 0 { format!(" and {} more", figure::count(rest as u64)) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

fn losses(app: &App) -> Option<Notice> {
    let losses = app.survey.losses;
    let parts: Vec<_> = [
        (losses.records, "records dropped"),
        (losses.frames, "frames lost"),
        (losses.untimed, "operations not timed"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{} {what}", figure::count(count)))
    .collect();
    let text = format!("not everything was seen: {}", parts.join(", "));
    (!parts.is_empty()).then_some(Notice { glyph: glyph::WARNING, role: Role::Warning, text })
}

fn calm(app: &App) -> Notice {
    let survey = &app.survey;
    let text = match survey.scale(Metric::Gemm) {
        _ if survey.is_over() => "the job has ended; these are its last figures".to_owned(),
        _ if survey.is_frozen() => "nothing is heard any more; these are the last figures".to_owned(),
        Some(scale) if survey.rows().len() > 1 => format!(
            "nothing stands out: {} within {} % of each other at GEMMs",
            figure::counted(survey.heard, "rank", "ranks"),
            figure::tenths(scale.spread() * 100.0),
        ),
        Some(_) => "nothing stands out".to_owned(),
        None => "no GEMM was timed yet".to_owned(),
    };
    Notice { glyph: glyph::GOOD, role: Role::Good, text }
}
