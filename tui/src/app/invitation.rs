//! The line that says how to watch from another terminal. It disappears after a while, because findings need
//! the space more.

use std::time::Duration;

use xpu_wire::unit::Moment;

use super::App;

/// How long it is shown.
const SHOWN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    text: String,
    until: Moment,
}

impl App {
    pub fn invite(&mut self, text: String) {
        self.invitation = Some(Invitation { text, until: self.now.after(SHOWN) });
    }

    pub(crate) fn invitation(&self) -> Option<&str> {
        // Time in a replay is not the user's time.
        let shown = |invitation: &&Invitation| self.now < invitation.until && !self.is_past();
        self.invitation.as_ref().filter(shown).map(|invitation| invitation.text.as_str())
    }
}
