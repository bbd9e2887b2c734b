//! The last calls of a communicator on the informative ranks: the divergence, and the calls before it.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::Line,
};
use xpu_model::{figure, finding::Finding, job::Job, ras::Witness};
use xpu_wire::{
    frame::{CallState, RankRecord, RecordedCall},
    id::{CommunicatorId, Rank},
};

use super::super::{
    headline,
    panel::{self, Title},
};
use crate::{
    app::App,
    palette::Role,
    widget::{
        row::{self, Column},
        wrap::cut,
    },
    width::Breakpoint,
};

/// Number of calls per rank, and of ranks.
const CALLS: usize = 6;
const RANKS: usize = 4;

#[derive(Debug)]
pub(super) struct Calls {
    /// The sentence on the divergence, if it is in this communicator.
    sentence: Option<String>,
    /// The progress of each rank's GPU in the collective that does not end.
    gpus: Option<String>,
    /// The statement of NCCL's RAS about it, and whether it agrees.
    ras: Option<(Role, String)>,
    rows: Vec<(Stage, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The call at which they diverge.
    Parts,
    /// The call is known to have ended.
    Done,
    Open,
}

/// `None` while none of its calls are known.
pub(super) fn of(job: &Job, findings: &[Finding], communicator: CommunicatorId) -> Option<Calls> {
    let divergence = job.divergence().filter(|found| found.id == communicator);
    let mut ranks: Vec<Rank> = Vec::new();
    if let Some(found) = divergence {
        ranks.extend(&found.ranks);
        ranks.extend(found.calls.iter().flat_map(|call| &call.ranks));
    }
    ranks.extend(job.records().map(|record| record.rank));
    let mut rows = Vec::new();
    let mut shown: Vec<Rank> = Vec::new();
    for rank in ranks {
        if shown.len() == RANKS || shown.contains(&rank) {
            continue;
        }
        let Some(record) = job.record(rank) else { continue };
        let is_of =
            |call: &&RecordedCall| record.communicator(call).is_some_and(|one| one.id == communicator);
        let all: Vec<_> = record.calls.iter().filter(is_of).collect();
        let parts = |call: &RecordedCall| {
            divergence.is_some_and(|found| found.number.is_some() && call.number == found.number)
                && call.operation.is_collective()
        };
        let end = all.iter().position(|call| parts(call)).map_or(all.len(), |at| (at + 2).min(all.len()));
        let kept = &all[end.saturating_sub(CALLS)..end];
        if kept.is_empty() {
            continue;
        }
        shown.push(rank);
        rows.extend(kept.iter().map(|call| {
            let stage = match call.state {
                _ if parts(call) => Stage::Parts,
                CallState::Done => Stage::Done,
                _ => Stage::Open,
            };
            (stage, row(record, call))
        }));
    }
    let ras = || {
        let statement = Witness::of_communicator(job, communicator)?;
        let role = if statement.agrees == Some(false) { Role::Warning } else { Role::Muted };
        Some((role, statement.sentence()))
    };
    let is_about = |finding: &&Finding| {
        let of = finding.collective.as_ref();
        of.is_some_and(|of| of.communicator == communicator.to_string())
    };
    let gpus = findings.iter().find(is_about).and_then(|finding| finding.evidence.gpus_sentence());
    let sentence = divergence.map(|found| found.sentence.clone());
    (!rows.is_empty()).then(|| Calls { sentence, gpus, ras: ras(), rows })
}

/// Rank, number, operation and size.
const COLUMNS: [Column; 4] =
    [Column::figure(5).whole(), Column::figure(7).whole(), Column::name(10), Column::figure(8).whole()];

fn row(record: &RankRecord, call: &RecordedCall) -> String {
    let number = call.number.map_or_else(String::new, figure::count);
    let site = record.site(call).and_then(xpu_wire::frame::CallSite::place).unwrap_or_default();
    let (rank, operation) = (record.rank.to_string(), call.operation.to_string());
    let cells = row::line(&COLUMNS, &[rank, number, operation, figure::bytes(call.bytes)]);
    format!("{cells} {site}")
}

pub(super) fn draw(app: &App, breakpoint: Breakpoint, calls: &Calls, area: Rect, buffer: &mut Buffer) {
    let title = Title {
        name: "Last calls",
        about: "rank, number, operation, size, place; faint: done".to_owned(),
        ..Title::default()
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let height = |text: Option<&String>, most: u16| {
        text.map_or(0, |text| (text.len().div_ceil(usize::from(inner.width.max(1))) as u16 + 1).min(most))
    };
    let ras = calls.ras.as_ref();
    let lengths = [
        Constraint::Length(height(calls.sentence.as_ref(), inner.height / 2)),
        Constraint::Length(height(calls.gpus.as_ref(), inner.height / 4)),
        Constraint::Length(height(ras.map(|(_, text)| text), inner.height / 4)),
        Constraint::Fill(1),
    ];
    let [above, gpus, beside, below] = Layout::vertical(lengths).areas(inner);
    if let Some((role, text)) = ras {
        panel::paragraph(app.palette, *role, text, beside, buffer);
    }
    if let Some(sentence) = &calls.sentence {
        panel::paragraph(app.palette, Role::Warning, sentence, above, buffer);
    }
    if let Some(text) = &calls.gpus {
        panel::paragraph(app.palette, Role::Text, text, gpus, buffer);
    }
    let width = usize::from(below.width);
    let line = |(stage, row): &(Stage, String)| {
        let role = match stage {
            Stage::Parts => Role::Warning,
            Stage::Done => Role::Muted,
            Stage::Open => Role::Text,
        };
        Line::styled(cut(row, width), app.palette.of(role))
    };
    headline::lines(&calls.rows.iter().map(line).collect::<Vec<_>>(), below, buffer);
}
