//! Plays a recording: moves an app along a frame cursor.

use std::{collections::BTreeSet, io, sync::Arc, time::Instant};

use xpu_recording::FrameCursor;
use xpu_wire::{id::Rank, unit::Moment};

use super::{Search, drop_thread::DropThread};
use crate::{
    action::{Action, Effect},
    app::App,
    update::update,
};

#[derive(Debug)]
pub struct Player {
    cursor: FrameCursor,
    search: Search,
    /// When the app was last advanced.
    moved: Instant,
    shown_complaints: usize,
    /// The recorded moment of the last update of the view.
    looked: Moment,
    drop_thread: DropThread,
}

impl Player {
    /// Shows the beginning, while `search` searches the recording.
    pub fn new(cursor: FrameCursor, search: Search, now: Instant) -> Self {
        Self {
            cursor,
            search,
            moved: now,
            shown_complaints: 0,
            looked: Moment(0),
            drop_thread: DropThread::open(),
        }
    }

    /// Lets replay time pass; `true` if this changed what is shown.
    pub fn advance(&mut self, app: &mut App, now: Instant) -> io::Result<bool> {
        let passed = now.duration_since(self.moved);
        self.moved = now;
        let mut changed = false;
        for (marks, searched) in self.search.news() {
            changed = true;
            update(app, Action::Found(marks, searched));
        }
        let Some(playback) = app.playback().filter(|playback| !playback.paused) else {
            return Ok(changed);
        };
        if playback.is_at_end() {
            let begin = playback.span.first;
            if playback.looped {
                self.seek(app, begin)?;
            } else {
                update(app, Action::Ended);
            }
            return Ok(true);
        }
        let to = playback.after(passed);
        self.show(app, to)?;
        Ok(true)
    }

    /// Goes to any moment.
    pub fn seek(&mut self, app: &mut App, to: Moment) -> io::Result<()> {
        let Some(playback) = app.playback() else { return Ok(()) };
        let _rest = self.search.rest();
        let to = playback.within(to);
        if to < playback.position || !self.cursor.is_near(to) {
            self.rewind(app, to)?;
        } else {
            self.cursor.read_ahead(to);
        }
        self.moved = Instant::now();
        self.show(app, to)
    }

    /// Reads the frames before a moment again.
    pub fn rewind(&mut self, app: &mut App, to: Moment) -> io::Result<()> {
        let _rest = self.search.rest();
        update(app, Action::Rewind);
        self.looked = Moment(0);
        self.cursor.rewind(to);
        self.show(app, to)
    }

    /// Goes to the next frames.
    pub fn step(&mut self, app: &mut App) -> io::Result<()> {
        let Some(position) = app.playback().map(|playback| playback.position) else { return Ok(()) };
        match self.cursor.after(position)? {
            Some(next) => self.show(app, next),
            None => Ok(()),
        }
    }

    /// Includes the details of these ranks, even those from before this moment.
    pub fn watch_ranks(&mut self, app: &mut App, ranks: BTreeSet<Rank>) -> io::Result<()> {
        let more = !ranks.is_subset(self.cursor.ranks());
        self.cursor.watch_ranks(ranks);
        match app.playback().map(|playback| playback.position) {
            Some(position) if more => self.rewind(app, position),
            _ => Ok(()),
        }
    }

    fn show(&mut self, app: &mut App, to: Moment) -> io::Result<()> {
        while let Some((at, frame)) = self.cursor.next(to)? {
            // As in a live job, findings are computed and kept at each moment on the way.
            if at.since(self.looked) >= app.between_settlings() {
                self.looked = at;
                app.settle();
                update(app, Action::Reach(at));
            }
            let frame = Arc::new(frame);
            update(app, Action::Show(at, Arc::clone(&frame)));
            self.drop_thread.take(frame);
        }
        if let Some(Effect::AskStacks { .. }) = update(app, Action::Reach(to)) {
            let why = "a recording has no processes to read; these stacks were not recorded";
            update(app, Action::NoStacks(why.to_owned()));
        }
        let complaints = self.cursor.complaints();
        // Damage is found only when the damaged part is read.
        if complaints.len() != self.shown_complaints {
            self.shown_complaints = complaints.len();
            app.messages.warn_only(complaints);
        }
        Ok(())
    }
}
