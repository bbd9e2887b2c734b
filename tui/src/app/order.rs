//! The order of a list: by a column, worst first or reversed.

use std::cmp::Ordering;

/// A property by which a list can be sorted.
pub(crate) trait Sortable: Copy + PartialEq + 'static {
    /// All of them, in the order of the list's columns; the first is the default.
    const ALL: &'static [Self];

    /// Its name in the list of columns.
    fn title(self) -> &'static str;

    /// Whether large figures are of interest and come first.
    fn large_first(self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order<C> {
    pub by: C,
    pub reversed: bool,
}

impl<C: Sortable> Default for Order<C> {
    fn default() -> Self {
        Self { by: C::ALL[0], reversed: false }
    }
}

impl<C: Sortable> Order<C> {
    /// The order by the column of this number.
    pub(crate) fn nth(column: usize) -> Self {
        Self { by: C::ALL.get(column).copied().unwrap_or(C::ALL[0]), reversed: false }
    }

    #[must_use]
    pub(crate) fn turned(self) -> Self {
        Self { reversed: !self.reversed, ..self }
    }

    /// Whether figures grow downwards.
    pub(crate) fn is_rising(self) -> bool {
        self.by.large_first() == self.reversed
    }

    /// Compares two figures. Unknown ones come last in either direction.
    pub(crate) fn compare(self, one: Option<f64>, other: Option<f64>) -> Ordering {
        match (one, other) {
            (Some(one), Some(other)) if self.is_rising() => one.total_cmp(&other),
            (Some(one), Some(other)) => other.total_cmp(&one),
            (one, other) => other.is_some().cmp(&one.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum By {
        Age,
        Rate,
    }

    impl Sortable for By {
        const ALL: &'static [Self] = &[Self::Age, Self::Rate];

        fn title(self) -> &'static str {
            if self == Self::Age { "age" } else { "rate" }
        }

        fn large_first(self) -> bool {
            self == Self::Age
        }
    }

    #[test]
    fn the_worst_come_first_and_the_unknown_last_whichever_way_round() {
        let sorted = |order: Order<By>| {
            let mut figures = [Some(2.0), None, Some(3.0), Some(1.0)];
            figures.sort_by(|a, b| order.compare(*a, *b));
            figures.map(|figure| figure.unwrap_or(0.0))
        };
        let order = Order::default();
        assert_eq!(sorted(order), [3.0, 2.0, 1.0, 0.0]);
        assert_eq!(sorted(order.turned()), [1.0, 2.0, 3.0, 0.0]);
        let by_rate = Order::<By>::nth(1);
        assert_eq!(sorted(by_rate), [1.0, 2.0, 3.0, 0.0]);
        assert!(by_rate.is_rising() && !order.is_rising());
    }
}
