//! Views at every size. A new page is included, because it is in [`Page::ALL`].

use xpu_tests::Lab;
use xpu_tui::page::Page;

use crate::{SIZES, golden_at, one_slow};

/// These views request what they show; until it arrives, they look alike at each size. Their own tests draw
/// them in full.
const REQUESTING: [Page; 4] = [Page::Rank, Page::Gemms, Page::Stacks, Page::Captures];

/// The view with this number in [`Page::ALL`], which is also the order of the keys.
fn at(number: usize) -> Lab {
    let mut lab = one_slow();
    // The slow rank, which is listed first, has the most to show on its page.
    lab.keys("j").keys(&(number + 1).to_string());
    lab
}

fn name(page: Page) -> String {
    format!("{page:?}").to_lowercase()
}

#[test]
fn every_view_has_a_golden_screen_at_every_size() {
    for (number, page) in Page::ALL.into_iter().enumerate() {
        // The test of the findings draws the same job.
        if REQUESTING.contains(&page) || page == Page::Findings {
            continue;
        }
        let mut lab = at(number);
        for size in SIZES {
            golden_at(&format!("views/{}", name(page)), size, &mut lab);
        }
    }
}

#[test]
fn no_view_fails_at_a_size_between() {
    for number in 0..Page::ALL.len() {
        let mut lab = at(number);
        for (width, height) in (58..310).step_by(13).zip((18..104).step_by(4)) {
            lab.screen(width, height);
        }
    }
}
