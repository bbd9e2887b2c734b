//! Compute beside a collective that waits for another rank. NCCL's kernel occupies SMs while it waits, so GEMMs
//! beside it take longer, which is a cost of the rank that is waited for.

use super::{Meets, Shape, cut::Cut};

/// Share of an operation's time in which a collective must wait beside it.
const MOST: f64 = 0.5;

/// For each operation in each place, the replica for which the rank waited for most of the operation's time.
pub(super) fn crowded_by(cuts: &[Cut], meets: &[Meets], shape: Shape) -> Vec<Option<usize>> {
    let row = shape.row();
    let mut all = vec![None; 2 * meets.len() * row];
    for (step, of_step) in cuts.chunks(shape.replicas).enumerate() {
        let waits = waits(of_step, meets);
        for (replica, (cut, waits)) in of_step.iter().zip(&waits).enumerate() {
            let place = shape.place(step, replica);
            for (k, compute) in cut.compute.iter().enumerate() {
                let Some((begin, end)) = *compute else { continue };
                // Collectives of a rank begin in the order of their launch, so the last ones are near.
                let first_after = waits.partition_point(|wait| wait.begin < end);
                let beside = waits[..first_after].iter().rev().take_while(|wait| wait.until > begin);
                let longest = beside
                    .map(|wait| (wait.until.min(end) - wait.begin.max(begin), wait.of))
                    .max_by(|one, other| one.0.total_cmp(&other.0));
                let longest = longest.filter(|(beside, of)| *beside > MOST * (end - begin) && *of != replica);
                all[2 * k * row + place] = longest.map(|(_, of)| of);
            }
        }
    }
    all
}

/// The time for which a rank waits in a collective, and the replica that enters last.
struct Wait {
    begin: f64,
    until: f64,
    of: usize,
}

/// The waits of each rank of a step, in the order of the collectives.
fn waits(of_step: &[Cut], meets: &[Meets]) -> Vec<Vec<Wait>> {
    let mut all: Vec<Vec<Wait>> = of_step.iter().map(|_| Vec::with_capacity(meets.len())).collect();
    for (k, meets) in meets.iter().enumerate() {
        let begins: Vec<f64> = of_step.iter().map(|cut| cut.launches[k].0).collect();
        for (replica, of) in meets.last(&begins).into_iter().enumerate() {
            all[replica].push(Wait { begin: begins[replica], until: begins[of], of });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_beside_a_collective_that_waits_is_crowded_by_the_last_rank() {
        let cut = |compute, launches| Cut { compute, launches, parts: Vec::new() };
        // Both compute from 0 to 4 and from 4 to 8. Rank 0 enters the first collective at 4, rank 1 at 7.
        let cuts = [
            cut(vec![Some((0.0, 4.0)), Some((4.0, 8.0))], vec![(4.0, 7.5), (8.0, 9.0)]),
            cut(vec![Some((0.0, 4.0)), Some((4.0, 8.0))], vec![(7.0, 7.5), (8.0, 9.0)]),
        ];
        let shape = Shape { replicas: 2, steps: 1 };
        let crowded = crowded_by(&cuts, &[Meets::All, Meets::All], shape);
        let of = |operation: usize, replica: usize| crowded[operation * 2 + replica];
        assert_eq!([of(0, 0), of(0, 1), of(2, 0), of(2, 1)], [None, None, Some(1), None]);
    }

    #[test]
    fn the_last_rank_is_one_of_the_same_communicator() {
        let cut = |begin| Cut { launches: vec![(begin, 8.0)], ..Cut::default() };
        // Ranks 0 and 2 meet, and so do ranks 1 and 3. The last of both enter at 7.
        let waits = waits(&[4.0, 7.0, 7.0, 4.0].map(cut), &[Meets::Sets(vec![0, 1, 0, 1])]);
        assert_eq!(waits.iter().map(|of_rank| of_rank[0].of).collect::<Vec<_>>(), [2, 1, 2, 1]);
    }
}
