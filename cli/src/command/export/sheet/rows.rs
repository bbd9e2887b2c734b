//! The rows of each table, rank by rank, in order of launch.

use xpu_analysis::capture::{
    RankCapture, Report, Seen, Single, Summary, Work, copied, host_function, kernel, transposed,
};
use xpu_wire::{
    frame::{CapturedLabel, CapturedOperation, CapturedSpan},
    id::{Rank, Step},
};

use super::{
    Cell::{self, Flag, None, Number, Real, Text},
    Put, Source,
};

fn number(value: u64) -> Cell {
    Number(value as i64)
}

fn perhaps(value: Option<u64>) -> Cell {
    value.map_or(None, number)
}

/// CUPTI does not report the launching thread.
fn thread(single: &Single) -> Cell {
    if single.thread == CapturedOperation::NO_THREAD { None } else { number(single.thread.into()) }
}

impl Source<'_> {
    fn place(&self, rank: Rank, host: &str, step: Option<Step>) -> Vec<Cell> {
        let mut row =
            vec![number(rank.process().0.into()), Text(host.to_owned()), perhaps(step.map(|step| step.0))];
        let at = self.groups.map(|groups| groups.coordinates(rank)).unwrap_or_default();
        row.extend(at.into_iter().map(|at| number(at.into())));
        row
    }

    /// The step's number; a period instead of steps has none.
    fn number(&self, step: Step) -> Option<Step> {
        self.capture.window.is_none().then_some(step)
    }

    /// A row for each operation for which `cells` returns values; time and place come first.
    fn of_gpu(
        &self,
        put: &mut Put<'_>,
        cells: impl Fn(&Single, Seen) -> Option<Vec<Cell>>,
    ) -> anyhow::Result<()> {
        self.each(|rank, of, step, single| {
            let Some(cells) = cells(single, of.seen()) else { return Ok(()) };
            let at = |moment| self.clocks.aligned(&of.host, moment).0;
            let stream = match single.span {
                CapturedSpan::Gpu { stream, .. } => number(stream.into()),
                _ => None,
            };
            let mut row = self.place(rank, of.host.as_str(), self.number(step));
            row.extend([
                number(at(single.at)),
                perhaps(single.on_gpu().map(|(begin, _)| at(begin))),
                perhaps(single.took_on_gpu()),
                stream,
                thread(single),
                Flag(of.is_sampled(step)),
            ]);
            row.extend(cells);
            put(row)
        })
    }

    fn each(
        &self,
        mut take: impl FnMut(Rank, &RankCapture, Step, &Single) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (&rank, of) in &self.capture.ranks {
            for (step, from, to) in of.steps() {
                for single in of.between(from, to) {
                    take(rank, of, step, single)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn steps(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    let report = Report::of(source.capture);
    for rank in &report.ranks {
        for step in &rank.steps {
            let mut row = source.place(rank.rank, rank.host.as_str(), step.step);
            let of = |each: fn(&Summary) -> u64| perhaps(step.summary.as_ref().map(each));
            row.extend([
                number(step.begin.0),
                number(step.took_ns),
                Flag(step.sampled),
                of(|spent| spent.compute_ns),
                of(|spent| spent.communication_ns),
                of(|spent| spent.exposed_ns),
                of(|spent| spent.memory_ns),
                of(|spent| spent.gap_ns),
                of(|spent| spent.blocked_ns),
            ]);
            put(row)?;
        }
    }
    Ok(())
}

pub(super) fn gemms(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    source.of_gpu(put, |single, _| {
        let CapturedLabel::Gemm(shape) = &*single.label else { return Option::None };
        let sides = [shape.m, shape.n, shape.k, shape.batch].map(number);
        let words = [shape.datatype.to_string(), transposed(shape), shape.routine.name().to_owned()];
        let words = words.map(Text).into_iter().chain([Real(shape.flops())]);
        Some(sides.into_iter().chain(words).collect())
    })
}

pub(super) fn collectives(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    source.of_gpu(put, |single, _| {
        let (communicator, operation, bytes, bus_bytes, plan, group) = match *single.label {
            CapturedLabel::Collective { communicator, operation, bytes, bus_bytes, plan, .. } => {
                (communicator, operation, bytes, bus_bytes, plan, false)
            }
            CapturedLabel::Group { communicator, operation, bytes, bus_bytes, plan, .. } => {
                (communicator, operation, bytes, bus_bytes, plan, true)
            }
            _ => return Option::None,
        };
        Some(vec![
            Text(communicator.to_string()),
            Text(operation.to_string()),
            perhaps(single.sequence.map(|sequence| sequence.0)),
            Flag(group),
            number(bytes),
            number(bus_bytes),
            plan.map_or(Cell::None, |plan| Text(plan.algorithm.name().to_owned())),
            plan.map_or(Cell::None, |plan| Text(plan.protocol.name().to_owned())),
            perhaps(plan.map(|plan| u64::from(plan.channels))),
        ])
    })
}

pub(super) fn kernels(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    source.of_gpu(put, |single, seen| {
        let name = match (&*single.label, seen) {
            (CapturedLabel::Activity(name), _) => name,
            (CapturedLabel::Kernel(pattern), Seen::Operations) => pattern,
            _ => return Option::None,
        };
        let work = match single.work(seen) {
            Some(Work::Communication) => "communication",
            _ => "compute",
        };
        Some(vec![Text(kernel::demangled(name)), Text(work.to_owned())])
    })
}

pub(super) fn copies(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    source.of_gpu(put, |single, _| {
        let (what, bytes) = copied(&single.label)?;
        let held = match single.span {
            CapturedSpan::Host { took } => number(took.0),
            _ => None,
        };
        Some(vec![Text(what), number(bytes), held])
    })
}

pub(super) fn host(source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
    source.each(|rank, of, step, single| {
        let Some((kind, name)) = host_function(&single.label) else { return Ok(()) };
        let took = match single.span {
            CapturedSpan::Host { took } => number(took.0),
            _ => None,
        };
        let mut row = source.place(rank, of.host.as_str(), source.number(step));
        row.extend([
            number(source.clocks.aligned(&of.host, single.at).0),
            took,
            thread(single),
            Flag(of.is_sampled(step)),
            Text(kind.to_string()),
            Text(name.to_owned()),
        ]);
        put(row)
    })
}
