//! Every view at every size. A new page is included, because it is in [`Page::ALL`].

use xpu_tests::Lab;
use xpu_tui::page::Page;

use crate::{golden, one_slow};

const SIZES: [(u16, u16); 5] = [(60, 20), (80, 24), (132, 40), (200, 60), (300, 100)];

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
fn every_view_has_its_picture_at_every_size() {
    for (number, page) in Page::ALL.into_iter().enumerate() {
        let mut lab = at(number);
        for (width, height) in SIZES {
            golden(&format!("views/{}-{width}x{height}", name(page)), &lab.screen(width, height));
        }
    }
}

#[test]
fn no_view_fails_at_a_size_between() {
    for number in 0..Page::ALL.len() {
        let mut lab = at(number);
        for (width, height) in (58..300).step_by(13).zip((18..100).step_by(4)) {
            lab.screen(width, height);
        }
    }
}
