//! The dependencies of a pipeline's operations: one forward and one backward of each microbatch in each
//! stage, sends and receives between neighbouring stages, and the gradients' reduction and the optimizer at
//! the end.

use std::collections::BTreeMap;

use super::{Group, Index, Kind, Meets, Name, Refusal, Row};

pub(super) struct Waits {
    pub(super) after: Vec<Vec<Index>>,
    pub(super) groups: Vec<Group>,
}

/// The dependencies from one step of one replica, with all its operations in `names`.
pub(super) fn waits(rows: &[&Row], names: &BTreeMap<Name, Index>, stages: usize) -> Result<Waits, Refusal> {
    let microbatches = microbatches(names, stages)?;
    let mut waits = Waits { after: vec![Vec::new(); rows.len()], groups: Vec::new() };
    for stage in 0..stages as i64 {
        let of = |kind| all_of(names, stage, kind);
        let compute = launched(rows, names, stage);
        waits.chain(&compute);
        for (kind, send, receive) in [
            (Kind::ForwardCompute, Kind::ForwardSend, Kind::ForwardRecv),
            (Kind::BackwardCompute, Kind::BackwardSend, Kind::BackwardRecv),
        ] {
            let (computes, sends, receives) = (of(kind), of(send), of(receive));
            waits.chain(&sends);
            waits.chain(&receives);
            for (&send, &compute) in sends.iter().zip(&computes) {
                waits.after[send].push(compute);
            }
            // A receive is posted once the preceding compute is done.
            for (number, (&receive, &compute)) in receives.iter().zip(&computes).enumerate() {
                waits.after[compute].push(receive);
                if number > 0 {
                    waits.after[receive].push(computes[number - 1]);
                }
            }
        }
        waits.first_backward(rows, &compute, [of(Kind::BackwardSend), of(Kind::BackwardRecv)]);
        let (gathers, scatters) = (of(Kind::ParamsAllGather), of(Kind::GradsReduceScatter));
        waits.chain(&[gathers.clone(), scatters.clone()].concat());
        let first = compute.iter().find(|&&index| rows[index].kind == Kind::ForwardCompute);
        if let (Some(&gathered), Some(&first)) = (gathers.last(), first) {
            waits.after[first].push(gathered);
        }
        let mut end: Vec<Index> = last_to_end(rows, &compute).into_iter().collect();
        for kind in [Kind::Gc, Kind::LayernormGradsAllReduce, Kind::EmbeddingGradsAllReduce] {
            end.extend(of(kind));
        }
        end.extend(&scatters);
        end.extend(of(Kind::OptimizerClipMainGrad));
        end.extend(of(Kind::Optimizer));
        waits.chain(&end);
        waits.groups.extend(gathers.into_iter().chain(scatters).map(|index| of_all(vec![index])));
    }
    waits.between_stages(names, stages as i64, microbatches as i64);
    Ok(waits)
}

fn of_all(members: Vec<Index>) -> Group {
    Group { members, meets: Meets::All }
}

impl Waits {
    fn chain(&mut self, all: &[Index]) {
        for pair in all.windows(2) {
            self.after[pair[1]].push(pair[0]);
        }
    }

    /// The first backward send and receive are posted one forward before the first backward.
    fn first_backward(&mut self, rows: &[&Row], compute: &[Index], posted: [Vec<Index>; 2]) {
        let first = compute.iter().position(|&index| rows[index].kind == Kind::BackwardCompute);
        let Some(before) = first.and_then(|first| first.checked_sub(2)) else { return };
        for index in posted.iter().filter_map(|all| all.first()) {
            self.after[*index].push(compute[before]);
        }
    }

    fn between_stages(&mut self, names: &BTreeMap<Name, Index>, stages: i64, microbatches: i64) {
        for stage in 0..stages - 1 {
            for number in 0..microbatches {
                for (send, receive) in [
                    ((stage, Kind::ForwardSend), (stage + 1, Kind::ForwardRecv)),
                    ((stage + 1, Kind::BackwardSend), (stage, Kind::BackwardRecv)),
                ] {
                    let ends = [send, receive];
                    let members = ends.iter().filter_map(|&(stage, kind)| names.get(&(stage, kind, number)));
                    self.groups.push(Group { members: members.copied().collect(), meets: Meets::Itself });
                }
            }
        }
        let of = |kind: Kind| (0..stages).flat_map(|stage| all_of(names, stage, kind)).collect::<Vec<_>>();
        let embedding = of(Kind::EmbeddingGradsAllReduce);
        if !embedding.is_empty() {
            self.groups.push(Group { members: embedding, meets: Meets::Itself });
        }
        // The norm of all gradients is computed over all stages together.
        let clip = of(Kind::OptimizerClipMainGrad);
        if !clip.is_empty() {
            self.groups.push(of_all(clip));
        }
    }
}

/// The operations of a stage and kind, in order of their numbers.
fn all_of(names: &BTreeMap<Name, Index>, stage: i64, kind: Kind) -> Vec<Index> {
    names.range((stage, kind, 0)..=(stage, kind, i64::MAX)).map(|(_, &index)| index).collect()
}

/// The compute of a stage, in the order in which it began.
fn launched(rows: &[&Row], names: &BTreeMap<Name, Index>, stage: i64) -> Vec<Index> {
    let kinds = [Kind::ForwardCompute, Kind::BackwardCompute];
    let mut all: Vec<Index> = kinds.into_iter().flat_map(|kind| all_of(names, stage, kind)).collect();
    all.sort_by(|&one, &other| {
        let (one, other) = (rows[one], rows[other]);
        one.start
            .total_cmp(&other.start)
            .then_with(|| (one.number, one.kind).cmp(&(other.number, other.kind)))
    });
    all
}

fn last_to_end(rows: &[&Row], compute: &[Index]) -> Option<Index> {
    let end = |index: Index| rows[index].start + rows[index].duration;
    compute.iter().copied().max_by(|&one, &other| end(one).total_cmp(&end(other)))
}

/// The number of microbatches, equal in all stages; every neighbour must have as many sends and receives.
fn microbatches(names: &BTreeMap<Name, Index>, stages: usize) -> Result<usize, Refusal> {
    let last = stages as i64 - 1;
    let expected = all_of(names, 0, Kind::ForwardCompute).len();
    if expected == 0 {
        return Err(Refusal::Schedule("stage 0 has no forward-compute".to_owned()));
    }
    for stage in 0..=last {
        for (kind, is_there) in [
            (Kind::ForwardCompute, true),
            (Kind::BackwardCompute, true),
            (Kind::ForwardSend, stage < last),
            (Kind::ForwardRecv, stage > 0),
            (Kind::BackwardSend, stage > 0),
            (Kind::BackwardRecv, stage < last),
        ] {
            let (there, expected) = (all_of(names, stage, kind).len(), if is_there { expected } else { 0 });
            let numbered = (0..expected as i64).all(|number| names.contains_key(&(stage, kind, number)));
            if there != expected || !numbered {
                return Err(Refusal::Schedule(format!(
                    "stage {stage} has {there} {}, and not {expected} numbered from 0",
                    kind.name()
                )));
            }
        }
    }
    Ok(expected)
}

#[cfg(test)]
mod tests;
