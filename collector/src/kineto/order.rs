//! A trace requested from one rank: sent when its Kineto polls, watched while Kineto writes it, then
//! delivered.

use std::{
    io::{self, PipeWriter},
    time::Duration,
};

use xpu_wire::{
    frame::{KinetoOrder, KinetoPart, KinetoStanding, KinetoWindow},
    id::Pid,
    ledger::KinetoCount,
    unit::Moment,
};

use super::{
    JobRank,
    clients::Client,
    config::{self, Unfit},
    trace::{Piece, Place},
    written::Written,
};
use crate::{address::Address, request_time::RequestTime};

/// If Kineto neither traces nor writes a file within this time after the steps or the period of its order, it
/// has failed.
const GRACE: Duration = Duration::from_secs(15);

/// Steps that a rank must complete after the last requested one before that time begins: Kineto ends a trace
/// at the end of a later step.
const BEYOND: u64 = 2 + KinetoWindow::BEYOND as u64;

/// An order without a request about it for this time is abandoned.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// An order without a request from its requester for this time can be replaced by another requester's.
const RECENT: Duration = Duration::from_secs(30);

/// The rank's state when its order is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub lives: bool,
    pub client: Option<&'a Client>,
    pub count: Option<KinetoCount>,
    pub now: Moment,
}

#[derive(Debug)]
pub(super) struct Ordered {
    pub order: KinetoOrder,
    pub viewer: Address,
    pub asked: RequestTime,
    pub pid: Pid,
    pub standing: KinetoStanding,
    given: Moment,
    touched: Moment,
    instructed: Option<Moment>,
    /// When the steps or the period of the order were found to have passed.
    due: Option<Moment>,
    was_busy: bool,
    /// Whether the order is no longer wanted. Kineto has it, and it cannot be withdrawn.
    abandoned: bool,
    /// Whether Kineto may still write the trace after the order's time is over. The trace is then removed.
    may_come: bool,
    place: Place,
    /// The trace, once it is complete.
    pub written: Option<Written>,
}

impl Ordered {
    pub(super) fn new(
        order: KinetoOrder,
        viewer: Address,
        pid: Pid,
        place: Place,
        asked: RequestTime,
    ) -> Self {
        Self {
            order,
            viewer,
            asked,
            pid,
            standing: KinetoStanding::Asked,
            given: asked.at,
            touched: asked.at,
            instructed: None,
            due: None,
            was_busy: false,
            abandoned: false,
            may_come: false,
            place,
            written: None,
        }
    }

    /// Notes that a viewer still wants the trace.
    pub(super) fn touch(&mut self, viewer: &Address, now: Moment) {
        self.viewer = viewer.clone();
        self.touched = now;
    }

    /// Whether another order may take its place.
    pub(super) fn gives_way(&self, now: Moment) -> bool {
        let is_wanted = self.written.is_some() && !self.abandoned && now.since(self.touched) < RECENT;
        self.standing.is_last() && !self.may_come && !is_wanted
    }

    pub(super) fn is_forgotten(&self, now: Moment) -> bool {
        now.since(self.touched) >= FORGOTTEN
    }

    /// Notes that no viewer wants the trace any more. Returns whether the order can be dropped. It must stay
    /// while Kineto may still write the trace, so that the trace is removed.
    pub(super) fn abandon(&mut self) -> bool {
        self.abandoned = true;
        self.instructed.is_none() || (self.standing.is_last() && !self.may_come)
    }

    /// Takes a poll of the rank's Kineto. Returns the configuration, if it can be sent now.
    pub(super) fn instructions(
        &mut self,
        accepts: bool,
        count: Option<KinetoCount>,
        now: Moment,
    ) -> Option<String> {
        if self.standing != KinetoStanding::Asked {
            return None;
        }
        self.was_busy = !accepts;
        if !accepts {
            return None;
        }
        match config::text(&self.order, &self.place.log_file, count, RequestTime { at: now, ..self.asked }) {
            Ok(text) => Some(text),
            Err(unfit) => {
                self.refuse(self.why_unfit(&unfit));
                None
            }
        }
    }

    /// Notes that the configuration was sent.
    pub(super) fn instructed(&mut self, now: Moment) {
        (self.standing, self.instructed) = (KinetoStanding::Instructed, Some(now));
    }

    fn refuse(&mut self, why: String) {
        self.standing = KinetoStanding::Refused { why };
    }

    fn why_unfit(&self, unfit: &Unfit) -> String {
        match unfit {
            Unfit::TooLate if self.was_busy => {
                "its profiler was busy with another trace (torch.profiler in the program?): try again when it has ended".to_owned()
            }
            Unfit::TooLate => "its Kineto polled too late: give it more time, --start-in 15s".to_owned(),
            Unfit::TooFar => "the steps are too far ahead: try again later".to_owned(),
            Unfit::NoCount => {
                "its Kineto's step count is unknown, so no step can be agreed on: use --duration".to_owned()
            }
            Unfit::Path => format!(
                "Kineto cannot read the path {}: set KINETO_ONDEMAND_TRACE_DIR to one of letters and digits",
                self.place.log_file
            ),
        }
    }

    /// Checks the order. Returns whether its state changed.
    pub(super) fn check(&mut self, known: Known<'_>) -> bool {
        let before = self.standing.clone();
        match self.standing {
            KinetoStanding::Asked => self.check_asked(known),
            KinetoStanding::Instructed | KinetoStanding::Started => self.check_instructed(known),
            _ if self.may_come => self.check_late(known),
            _ => {}
        }
        self.standing != before
    }

    fn check_asked(&mut self, known: Known<'_>) {
        let passed = match self.order.window {
            KinetoWindow::Steps { latest, .. } => known.count.is_some_and(|count| count.step >= latest),
            KinetoWindow::Time { at, .. } => known.now >= self.asked.here(at),
        };
        if !known.lives {
            self.refuse("its process has ended".to_owned());
        } else if passed {
            self.refuse(self.why_unfit(&Unfit::TooLate));
        } else if self.is_over(known.now) {
            self.refuse("it did not reach the steps in time: allow more with --wait".to_owned());
        }
    }

    fn check_instructed(&mut self, known: Known<'_>) {
        if let Some(file) = self.place.open() {
            let written = Written::new(file);
            self.standing = KinetoStanding::Written { bytes: written.bytes() };
            self.written = Some(written);
            // The open file stays readable, and no file is left behind, even if this process is killed.
            self.place.remove();
            return;
        }
        if self.is_begun(known) {
            self.standing = KinetoStanding::Started;
        }
        if !known.lives {
            self.refuse("its process ended before it had written its trace".to_owned());
        } else if self.is_over(known.now) {
            self.refuse("it did not write its trace in time: allow more with --wait".to_owned());
            self.may_come = true;
        } else if self.writes_nothing(known) {
            self.refuse(
                "its Kineto received the request but wrote nothing: start the program with KINETO_LOG_LEVEL=1 and read its output"
                    .to_owned(),
            );
        }
    }

    /// Removes the trace of an order whose time is over.
    fn check_late(&mut self, known: Known<'_>) {
        let came = self.place.open().is_some();
        if came || !known.lives || self.writes_nothing(known) {
            self.place.remove();
            self.may_come = false;
        }
    }

    fn is_begun(&self, known: Known<'_>) -> bool {
        let traces =
            known.client.is_some_and(|client| !client.accepts && Some(client.polled) > self.instructed);
        traces || self.place.is_begun()
    }

    /// Whether Kineto neither traces nor has begun a file, long after the steps or the period of the order.
    fn writes_nothing(&mut self, known: Known<'_>) -> bool {
        if self.is_begun(known) {
            self.due = None;
            return false;
        }
        self.is_done(known) && known.now.since(*self.due.get_or_insert(known.now)) >= GRACE
    }

    /// Whether the steps or the period of the order have passed.
    fn is_done(&self, known: Known<'_>) -> bool {
        match self.order.window {
            KinetoWindow::Steps { first, steps, .. } => {
                known.count.is_some_and(|count| count.step.0 > first.0 + u64::from(steps) + BEYOND)
            }
            KinetoWindow::Time { at, length } => {
                known.now > self.asked.here(at).after(Duration::from_nanos(length.0))
            }
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        now.since(self.given) >= Duration::from_nanos(self.order.limit.0)
    }

    /// The part of the trace with this number, if it has been read.
    pub(super) fn part(
        &mut self,
        part: u32,
        of: &JobRank,
        bell: impl FnOnce() -> io::Result<PipeWriter>,
    ) -> Option<KinetoPart> {
        let Piece { bytes, end } = self.written.as_mut()?.part(part, bell)?;
        Some(KinetoPart { number: self.order.number, job: of.job.clone(), rank: of.rank, part, bytes, end })
    }
}

/// Abandons a trace that Kineto is still writing, and removes its file.
impl Drop for Ordered {
    fn drop(&mut self) {
        if self.instructed.is_some() {
            self.place.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use xpu_wire::{endpoint::user_id, frame::KinetoOptions, id::Step, unit::Nanoseconds};

    use super::{super::Which, *};
    use crate::address::Identity;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * SECOND)
    }

    fn ordered() -> Ordered {
        let window = KinetoWindow::Steps { first: Step(100), steps: 3, latest: Step(97), calls: 1 };
        let order = KinetoOrder {
            number: 1,
            window,
            limit: Nanoseconds(60 * SECOND),
            options: KinetoOptions::default(),
        };
        let viewer = Address { to: Identity(vec![1]), route: Vec::new() };
        let place = Place::of(std::process::id(), 7, user_id(), "xpu-top-test-that-nobody-writes");
        Ordered::new(order, viewer, Pid(7), place, RequestTime { at: at(0), ahead: 0 })
    }

    fn known(step: u64, accepts: bool, now: u64, client: &mut Option<Client>) -> Known<'_> {
        let count = Some(KinetoCount { step: Step(step), counted: step as u32 });
        *client = Some(Client {
            own: Pid(7),
            job: 0,
            polled: at(now),
            every: None,
            accepts,
            unanswerable: None,
            at: Which::Own,
        });
        Known { lives: true, client: client.as_ref(), count, now: at(now) }
    }

    fn why(ordered: &Ordered) -> &str {
        match &ordered.standing {
            KinetoStanding::Refused { why } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_that_asks_in_time_is_instructed_once() {
        let mut ordered = ordered();
        let count = |step| Some(KinetoCount { step: Step(step), counted: 50 });
        assert_eq!(ordered.instructions(false, count(90), at(1)), None, "it is busy");
        let text = ordered.instructions(true, count(90), at(2)).unwrap();
        assert!(text.contains("PROFILE_START_ITERATION=58\n"), "{text}");
        assert!(ordered.instructions(true, count(90), at(2)).is_some(), "that could not be sent");
        ordered.instructed(at(2));
        assert_eq!(ordered.instructions(true, count(91), at(3)), None);
    }

    #[test]
    fn a_client_that_asks_too_late_is_not_instructed_and_the_reason_is_reported() {
        let mut late = ordered();
        assert_eq!(late.instructions(true, Some(KinetoCount { step: Step(97), counted: 97 }), at(1)), None);
        assert!(why(&late).contains("--start-in"));
        let (mut silent, mut client) = (ordered(), None);
        assert!(!silent.check(known(96, true, 1, &mut client)));
        assert!(silent.check(known(97, true, 2, &mut client)));
        assert!(why(&silent).contains("polled too late"));
        let mut busy = ordered();
        assert_eq!(busy.instructions(false, None, at(1)), None);
        assert!(busy.check(known(97, false, 2, &mut client)));
        assert!(why(&busy).contains("torch.profiler"));
        let mut uncounted = ordered();
        assert_eq!(uncounted.instructions(true, None, at(1)), None);
        assert!(why(&uncounted).contains("--duration"));
    }

    #[test]
    fn a_client_is_awaited_only_while_it_writes() {
        let (mut ordered, mut client) = (ordered(), None);
        ordered.instructed(at(1));
        assert!(!ordered.check(known(100, true, 2, &mut client)));
        assert!(ordered.check(known(101, false, 3, &mut client)), "it traces");
        assert_eq!(ordered.standing, KinetoStanding::Started);
        for now in 4..30 {
            assert!(!ordered.check(known(200, false, now, &mut client)), "writing takes long");
        }
        for now in 30..45 {
            assert!(!ordered.check(known(300, true, now, &mut client)), "{now}");
        }
        assert!(ordered.check(known(300, true, 45, &mut client)));
        assert!(why(&ordered).contains("KINETO_LOG_LEVEL"));
    }

    #[test]
    fn no_client_is_awaited_beyond_the_limit_or_its_end() {
        let (mut slow, mut gone, mut client) = (ordered(), ordered(), None);
        assert!(slow.check(known(1, true, 60, &mut client)));
        gone.instructed(at(1));
        assert!(gone.check(Known { lives: false, ..known(1, true, 2, &mut client) }));
        assert!(why(&gone).contains("its process ended"));
    }

    #[test]
    fn an_instructed_client_keeps_its_place_until_it_is_done() {
        let (mut ordered, mut client) = (ordered(), None);
        assert!(!ordered.gives_way(at(1)) && ordered.abandon(), "it was not told");
        ordered.instructed(at(1));
        assert!(!ordered.abandon() && !ordered.gives_way(at(50)));
        assert!(ordered.check(known(1, true, 60, &mut client)));
        assert!(!ordered.gives_way(at(60)), "it has not reached the steps");
        assert!(!ordered.check(known(200, true, 61, &mut client)));
        assert!(!ordered.check(known(200, true, 76, &mut client)));
        assert!(ordered.gives_way(at(76)));
    }

    /// The requester's time limit was shorter than Kineto needed.
    #[test]
    fn a_trace_that_comes_too_late_is_removed() {
        let (mut ordered, mut client) = (ordered(), None);
        let stem = format!("xpu-top-test-late-{}", std::process::id());
        ordered.place = Place::of(std::process::id(), 7, user_id(), &stem);
        ordered.instructed(at(1));
        assert!(ordered.check(known(101, false, 2, &mut client)), "it traces");
        assert!(ordered.check(known(102, false, 60, &mut client)));
        assert!(why(&ordered).contains("--wait") && !ordered.abandon());
        let file = Path::new(&ordered.place.log_file).with_file_name(format!("{stem}_7.json"));
        std::fs::write(&file, "{\"traceName\": \"\"}").unwrap();
        ordered.check(known(103, true, 70, &mut client));
        assert!(!file.exists() && ordered.abandon());
    }
}
