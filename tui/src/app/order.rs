//! What a list is sorted by: a column, worst first or the other way round.

use std::cmp::Ordering;

/// Something a list can be sorted by.
pub(crate) trait Sortable: Copy + PartialEq + 'static {
    /// In the order of the list's columns; the first is where sorting begins.
    const ALL: &'static [Self];

    /// Whether large figures are those that are looked for, and so come first.
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
    #[must_use]
    pub(crate) fn next(self) -> Self {
        let at = C::ALL.iter().position(|one| *one == self.by).unwrap_or(0);
        Self { by: C::ALL[(at + 1) % C::ALL.len()], reversed: false }
    }

    #[must_use]
    pub(crate) fn turned(self) -> Self {
        Self { reversed: !self.reversed, ..self }
    }

    /// Whether figures grow downwards.
    pub(crate) fn is_rising(self) -> bool {
        self.by.large_first() == self.reversed
    }

    /// How two figures follow each other. What is not known goes last, whichever way round.
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
        assert_eq!(sorted(order.next()), [1.0, 2.0, 3.0, 0.0]);
        assert_eq!(order.next().next(), order);
        assert!(order.next().is_rising() && !order.is_rising());
    }
}
