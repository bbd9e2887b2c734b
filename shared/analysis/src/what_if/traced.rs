//! A job from a trace of its operations: pipeline stages and data-parallel replicas, in the form of the
//! public traces.

mod waits;

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::id::{Rank, Step};

use super::{
    Job, Kind, Refusal,
    graph::{Durations, Graph, Group, Index, Meets, Operation, Shape},
};

/// One operation of a trace. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub replica: i64,
    pub stage: i64,
    pub rank: i64,
    pub step: i64,
    pub kind: Kind,
    /// Its number among the operations of its kind in the step, on its rank.
    pub number: i64,
    /// In an interleaved pipeline, the part of the model; otherwise 0 or negative.
    pub chunk: i64,
    pub start: f64,
    pub duration: f64,
}

/// Stage, kind and number: they identify an operation in a step of a replica.
type Name = (i64, Kind, i64);

/// Largest time by which a transfer may seem to end before it began, because clocks differ. A larger
/// difference cannot come from one transfer.
const CLOCKS_DIFFER: f64 = 0.01;

impl Job {
    /// A job from the operations of an untrusted trace.
    pub fn of_trace(rows: &[Row]) -> Result<Self, Refusal> {
        check(rows)?;
        let replicas = numbers(rows, |row| row.replica);
        let steps = numbers(rows, |row| row.step);
        let stages = numbers(rows, |row| row.stage);
        for (what, all) in [("data-parallel rank", &replicas), ("stage", &stages)] {
            if let Some(absent) = (0..).zip(all).find(|(number, known)| number != *known) {
                return Err(Refusal::Trace(format!("it has no {what} {}", absent.0)));
            }
        }
        let shape = Shape { replicas: replicas.len(), steps: steps.len() };
        let mut template: Vec<&Row> =
            rows.iter().filter(|row| row.replica == 0 && row.step == steps[0]).collect();
        template.sort_by_key(|row| (row.stage, row.kind, row.number));
        let names: BTreeMap<Name, Index> =
            template.iter().map(|row| (row.stage, row.kind, row.number)).zip(0..).collect();
        if names.len() < template.len() {
            return Err(Refusal::Trace(format!("step {} has an operation twice", steps[0])));
        }
        // Otherwise, a few rows could claim any number of cells.
        if names.len().saturating_mul(shape.row()) > rows.len() {
            return Err(Refusal::Trace(format!(
                "{} operations in {} steps of {} data-parallel ranks are {} rows, but it has {}: rows are missing",
                names.len(),
                shape.steps,
                shape.replicas,
                names.len().saturating_mul(shape.row()),
                rows.len()
            )));
        }
        let class = |kind: Kind| Kind::OF_TRACES.iter().position(|known| *known == kind).unwrap_or_default();
        let operations: Vec<_> = template
            .iter()
            .map(|row| Operation {
                kind: row.kind,
                stage: row.stage as usize,
                class: class(row.kind),
                number: row.number as usize,
                share: 1.0,
            })
            .collect();
        let waits::Waits { after, groups } = waits::waits(&template, &names, stages.len())?;
        let cells = Cells::of(rows, &names, &steps, shape)?;
        let actual = cells.durations(&groups, shape);
        Ok(Self {
            ranks: ranks(rows, stages.len(), shape),
            hosts: Vec::new(),
            measured: cells.measured(shape),
            graph: Graph::new(operations, after, groups)?,
            shape,
            actual,
            stages: stages.len(),
            steps: steps.iter().map(|&step| Step(step as u64)).collect(),
            left_out: 0,
            host_steps: Vec::new(),
            crowded_by: Vec::new(),
        })
    }
}

fn check(rows: &[Row]) -> Result<(), Refusal> {
    if rows.is_empty() {
        return Err(Refusal::Empty);
    }
    for (number, row) in rows.iter().enumerate() {
        let whole = [
            ("dp_rank", row.replica),
            ("stage", row.stage),
            ("rank", row.rank),
            ("step", row.step),
            ("seq_id", row.number),
        ];
        if let Some((what, value)) = whole.into_iter().find(|(_, value)| *value < 0) {
            return Err(Refusal::Trace(format!("row {number} has {what} {value}")));
        }
        if row.rank > i64::from(u32::MAX) {
            return Err(Refusal::Trace(format!("row {number} has rank {}", row.rank)));
        }
        if !row.start.is_finite() || !row.duration.is_finite() || row.duration < 0.0 {
            let (start, duration) = (row.start, row.duration);
            return Err(Refusal::Trace(format!("row {number} has start_ts {start} and duration {duration}")));
        }
        if row.chunk > 0 {
            return Err(Refusal::Schedule(format!(
                "row {number} has mc {}, an interleaved pipeline",
                row.chunk
            )));
        }
    }
    Ok(())
}

fn numbers(rows: &[Row], which: fn(&Row) -> i64) -> Vec<i64> {
    rows.iter().map(which).collect::<BTreeSet<_>>().into_iter().collect()
}

fn ranks(rows: &[Row], stages: usize, shape: Shape) -> Vec<Vec<Rank>> {
    let mut ranks = vec![vec![Rank(0); shape.replicas]; stages];
    for row in rows {
        ranks[row.stage as usize][row.replica as usize] = Rank(row.rank as u32);
    }
    ranks
}

/// When each operation began and ended in each place.
struct Cells {
    begin: Vec<f64>,
    end: Vec<f64>,
}

impl Cells {
    fn of(rows: &[Row], names: &BTreeMap<Name, Index>, steps: &[i64], shape: Shape) -> Result<Self, Refusal> {
        let mut begin = vec![f64::NAN; names.len() * shape.row()];
        let mut end = begin.clone();
        for row in rows {
            let of = || {
                let (kind, number, stage) = (row.kind.name(), row.number, row.stage);
                let (replica, step) = (row.replica, row.step);
                format!("{kind} {number} of stage {stage} and data-parallel rank {replica} in step {step}")
            };
            let Some(index) = names.get(&(row.stage, row.kind, row.number)) else {
                return Err(Refusal::Trace(format!("only some steps and ranks have {}", of())));
            };
            let step = steps.binary_search(&row.step).unwrap_or_default();
            let cell = index * shape.row() + shape.place(step, row.replica as usize);
            if !begin[cell].is_nan() {
                return Err(Refusal::Trace(format!("it has {} twice", of())));
            }
            begin[cell] = row.start;
            end[cell] = row.start + row.duration;
        }
        if let Some(cell) = begin.iter().position(|begin| begin.is_nan()) {
            let (index, place) = (cell / shape.row(), cell % shape.row());
            let name = names.iter().find(|(_, known)| **known == index).map(|(name, _)| *name);
            let (stage, kind, number) = name.unwrap_or((0, Kind::Gc, 0));
            let (step, replica) = (steps[place / shape.replicas], place % shape.replicas);
            return Err(Refusal::Trace(format!(
                "{} {number} of stage {stage} and data-parallel rank {replica} is missing in step {step}",
                kind.name()
            )));
        }
        Ok(Self { begin, end })
    }

    /// The duration of a transfer counts from the start of the last member of its group; that of any other
    /// operation is its whole time.
    fn durations(&self, groups: &[Group], shape: Shape) -> Durations {
        let row = shape.row();
        let mut durations = Durations::zero(self.begin.len() / row, shape);
        for (own, (begin, end)) in durations.own.iter_mut().zip(self.begin.iter().zip(&self.end)) {
            *own = end - begin;
        }
        for group in groups {
            for step in 0..shape.steps {
                let places = (0..shape.replicas).map(|replica| shape.place(step, replica));
                let begin = |place: usize| {
                    let begins = group.members.iter().map(|index| self.begin[index * row + place]);
                    begins.fold(f64::NEG_INFINITY, f64::max)
                };
                let mut last: Vec<f64> = places.clone().map(begin).collect();
                group.meets.wait_for_the_last(&mut last);
                for (place, last) in places.zip(last) {
                    for index in &group.members {
                        let cell = index * row + place;
                        let transfer = self.end[cell] - last;
                        durations.own[cell] = 0.0;
                        durations.transfer[cell] = if transfer <= -CLOCKS_DIFFER { 0.0 } else { transfer };
                    }
                }
            }
        }
        durations
    }

    fn measured(&self, shape: Shape) -> Vec<f64> {
        let row = shape.row();
        let of_step = |cells: &[f64], step: usize| {
            let cells =
                cells.chunks(row).flat_map(|row| row[step * shape.replicas..][..shape.replicas].to_vec());
            cells.collect::<Vec<_>>()
        };
        (0..shape.steps)
            .map(|step| {
                let begin = of_step(&self.begin, step).into_iter().fold(f64::INFINITY, f64::min);
                let end = of_step(&self.end, step).into_iter().fold(f64::NEG_INFINITY, f64::max);
                end - begin
            })
            .collect()
    }
}
