use proptest::prelude::*;

use super::*;

fn density(groups: usize, size: usize, width: usize, height: usize) -> Density {
    Grid::fit(Shape { groups, size }, width, height, true).density
}

#[test]
fn the_ladder_goes_from_figures_to_folds() {
    assert_eq!(density(8, 8, 55, 12), Density::Figures);
    assert_eq!(density(8, 8, 30, 12), Density::Double);
    assert_eq!(density(16, 8, 30, 8), Density::Single);
    assert_eq!(density(128, 8, 55, 12), Density::Half);
    assert_eq!(density(128, 8, 30, 8), Density::Folded { ranks: 4 });
    assert_eq!(density(1250, 8, 55, 12), Density::Folded { ranks: 8 });
}

#[test]
fn without_colours_no_half_blocks_are_used() {
    let grid = Grid::fit(Shape { groups: 128, size: 8 }, 55, 12, false);
    assert_eq!((grid.density, grid.halves()), (Density::Folded { ranks: 2 }, false));
}

#[test]
fn a_host_wider_than_the_screen_goes_on_in_the_next_line() {
    let grid = Grid::fit(Shape { groups: 1, size: 128 }, 40, 10, true);
    assert_eq!((grid.density, grid.cell_of(20).line), (Density::Double, 1));
    // But groups do not share lines to make room for figures.
    assert_eq!(Grid::fit(Shape { groups: 1, size: 8 }, 52, 10, true).lines(), 1);
}

#[test]
fn a_line_holds_one_host_where_there_are_lines_enough() {
    let lines = |groups, height| {
        let grid = Grid::fit(Shape { groups, size: 4 }, 120, height, true);
        (0..groups).map(|group| grid.cell_of(group * 4).line).collect::<Vec<_>>()
    };
    assert_eq!(lines(2, 20), [0, 1]);
    assert_eq!(lines(3, 3), [0, 1, 2]);
    // But no group is left out to achieve that.
    assert_eq!(lines(4, 2), [0, 0, 1, 1]);
}

proptest! {
    #[test]
    fn each_slot_is_found_where_it_is_drawn(
        groups in 1_usize..200, size in 1_usize..20, width in 1_usize..150, height in 1_usize..40, halves: bool,
    ) {
        let grid = Grid::fit(Shape { groups, size }, width, height, halves);
        prop_assert!(grid.height() <= height);
        prop_assert!(grid.width() <= width);
        for slot in 0..grid.slots() {
            let place = grid.cell_of(slot);
            prop_assert!(place.x + place.width <= width, "{slot} at {place:?}");
            for x in place.x..place.x + place.width {
                let found = grid.slots_at(x, place.line);
                prop_assert!(found.clone().is_some_and(|slots| slots.contains(&slot)), "{slot} at {place:?}: {found:?}");
            }
        }
    }

    #[test]
    fn the_item_found_at_a_place_is_drawn_there(
        groups in 1_usize..200, size in 1_usize..20, width in 1_usize..150, height in 1_usize..40, halves: bool,
    ) {
        let grid = Grid::fit(Shape { groups, size }, width, height, halves);
        for (x, line) in (0..width).flat_map(|x| (0..grid.lines()).map(move |line| (x, line))) {
            for slot in grid.slots_at(x, line).into_iter().flatten() {
                let place = grid.cell_of(slot);
                prop_assert!(place.line == line && (place.x..place.x + place.width).contains(&x));
            }
        }
    }
}
