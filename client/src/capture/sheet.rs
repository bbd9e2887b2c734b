//! The capture's file: the sheet that states its content, and how the file ends.

use xpu_wire::{
    frame::{Body, CaptureSheet, CaptureWindow, Frame, TimedCaptureSheet},
    id::HostName,
    unit::Moment,
};

use super::{Outcome, Taking};

impl Taking<'_> {
    /// Writes the request before all other frames, so that a reader of the file knows what it is.
    pub(super) fn open_sheet(&mut self) -> anyhow::Result<()> {
        let before = self.following.recall()?;
        let at = before.first().map_or_else(Moment::now, |block| block.entry.first);
        let sheet = self.sheet(false);
        let mut blocks: Vec<_> = self.recording.packer.push(at, &sheet)?.into_iter().collect();
        blocks.extend(self.recording.packer.rest()?);
        blocks.extend(before);
        Ok(self.recording.write(blocks)?)
    }

    pub(super) fn sheet(&self, closed: bool) -> Frame {
        let sheet = CaptureSheet {
            order: self.tally.order(),
            job: self.tally.job().clone(),
            ranks: self.tally.ranks().collect(),
            closed,
            missing: if closed { self.tally.missing() } else { Vec::new() },
            stall: self.stall.clone(),
        };
        let body = match self.tally.window() {
            Some(window) => {
                let length = self.tally.recorded().filter(|_| closed).unwrap_or(window.length);
                let window = CaptureWindow { length, ..window };
                Body::TimedCaptureSheet(TimedCaptureSheet { sheet, window })
            }
            None => Body::CaptureSheet(sheet),
        };
        Frame { host: HostName::default(), number: 0, now: Moment::now(), lost: 0, body }
    }

    /// Whether the file has content. The file of a hung job has the stacks, even without data of any rank.
    pub(super) fn has_content(&self) -> bool {
        self.tally.has_parts() || self.stall.is_some()
    }

    pub(super) fn complaints(&self) -> Vec<String> {
        let mut all = self.tally.complaints(self.stall.as_deref());
        if self.plan.python.is_some() {
            all.extend(self.samples.complaints(self.tally.sending()));
        }
        all
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Outcome> {
        self.tally.give_up();
        let complaints = self.complaints();
        let bytes = if self.has_content() {
            let sheet = self.sheet(true);
            self.recording.take(&sheet)?;
            self.recording.close()?.0.bytes
        } else {
            self.recording.discard();
            0
        };
        Ok(Outcome {
            path: self.path,
            complaints,
            summary: self.tally.summary(),
            bytes,
            whole: self.tally.whole(),
            done: self.tally.done(),
            ranks: self.tally.ranks().count(),
        })
    }
}
