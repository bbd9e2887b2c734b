//! The time range to which the heatmaps over time are zoomed, and the range being marked with the mouse.

use crate::action::ZoomAction;

/// The first and the last column of the history.
pub type Columns = (u64, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zoom {
    /// The shown range; `None` shows all.
    only: Option<Columns>,
    /// The cell where the drag began, and the present one.
    marked: Option<(Columns, Columns)>,
}

impl Zoom {
    /// `known`: the remembered range.
    pub(crate) fn act(&mut self, what: ZoomAction, known: Columns) {
        match what {
            ZoomAction::Begin(cell) => self.marked = Some((cell, cell)),
            ZoomAction::To(cell) => self.marked = self.marked.map(|(begin, _)| (begin, cell)),
            ZoomAction::Keep => {
                self.only = self.marked().or(self.only);
                self.marked = None;
            }
            ZoomAction::Halve => {
                let (first, last) = self.shown(known);
                self.only = Some((last - (last - first) / 2, last));
            }
            ZoomAction::Double => {
                let (first, last) = self.shown(known);
                let first = first.saturating_sub(last - first + 1);
                self.only = (first > known.0).then_some((first, last));
            }
        }
    }

    /// The marked range, if it is more than the first cell.
    pub fn marked(&self) -> Option<Columns> {
        let (begin, end) = self.marked.filter(|(begin, end)| begin != end)?;
        Some((begin.0.min(end.0), begin.1.max(end.1)))
    }

    /// Whether a drag is in progress.
    pub fn is_begun(&self) -> bool {
        self.marked.is_some()
    }

    /// The shown part of the remembered range.
    pub fn only(&self, known: Columns) -> Option<Columns> {
        let (first, last) = self.only?;
        let (first, last) = (first.max(known.0), last.min(known.1));
        (first <= last).then_some((first, last))
    }

    pub fn shown(&self, known: Columns) -> Columns {
        self.only(known).unwrap_or(known)
    }

    /// Whether there is anything to undo.
    pub(crate) fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Shows all again. Returns whether there was anything to undo.
    pub(crate) fn clear(&mut self) -> bool {
        std::mem::take(self) != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Columns = (100, 199);

    #[test]
    fn a_drag_in_either_direction_zooms_when_it_ends() {
        let mut zoom = Zoom::default();
        zoom.act(ZoomAction::Begin((150, 155)), KNOWN);
        assert_eq!((zoom.marked(), zoom.is_begun()), (None, true));
        zoom.act(ZoomAction::To((120, 125)), KNOWN);
        assert_eq!((zoom.marked(), zoom.shown(KNOWN)), (Some((120, 155)), KNOWN));
        zoom.act(ZoomAction::Keep, KNOWN);
        assert_eq!((zoom.marked(), zoom.shown(KNOWN)), (None, (120, 155)));
        // A click marks nothing and changes nothing.
        zoom.act(ZoomAction::Begin((130, 135)), KNOWN);
        zoom.act(ZoomAction::Keep, KNOWN);
        assert_eq!(zoom.shown(KNOWN), (120, 155));
        // A range that is no longer remembered is no longer shown.
        assert_eq!(zoom.shown((140, 240)), (140, 155));
        assert_eq!(zoom.shown((200, 300)), (200, 300));
        assert!(zoom.clear() && !zoom.clear());
        assert_eq!(zoom.shown(KNOWN), KNOWN);
    }

    #[test]
    fn keys_halve_and_double_the_zoom() {
        let mut zoom = Zoom::default();
        let mut after = |what| {
            zoom.act(what, KNOWN);
            zoom.only(KNOWN)
        };
        assert_eq!(after(ZoomAction::Halve), Some((150, 199)));
        assert_eq!(after(ZoomAction::Halve), Some((175, 199)));
        assert_eq!(after(ZoomAction::Double), Some((150, 199)));
        assert_eq!(after(ZoomAction::Double), None);
        for _ in 0..20 {
            after(ZoomAction::Halve);
        }
        assert_eq!(after(ZoomAction::Halve), Some((199, 199)));
    }
}
