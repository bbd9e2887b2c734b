//! A replay's position. It is part of the app, so nothing here reads a file or a clock.
#![forbid(unsafe_code)]

use std::{fmt, time::Duration};

use xpu_model::finding::Finding;
use xpu_recording::Span;
use xpu_wire::{id::JobName, unit::Moment};

/// The source of the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// A file.
    File,
    /// The last minutes of a running job.
    Live,
}

/// A moment at which a new finding began.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub at: Moment,
    pub job: JobName,
    /// The finding at that moment.
    pub finding: Finding,
}

impl Mark {
    /// Whether it marks the start of this finding.
    fn begins(&self, job: &JobName, finding: &Finding) -> bool {
        let Finding { kind, class, ranks, .. } = &self.finding;
        self.job == *job && (*kind, *class, ranks) == (finding.kind, finding.class, &finding.ranks)
    }
}

#[derive(Clone, Debug)]
pub struct Playback {
    pub of: Of,
    /// When the first and the last frame arrived.
    pub span: Span,
    pub position: Moment,
    pub speed: Speed,
    pub paused: bool,
    pub looped: bool,
    /// The marks, in order of time.
    pub marks: Vec<Mark>,
    /// The moment up to which the marks are known.
    pub searched: Moment,
}

impl Playback {
    pub fn new(of: Of, span: Span) -> Self {
        let (position, paused) = match of {
            Of::File => (span.first, false),
            Of::Live => (span.last, true),
        };
        Self {
            of,
            span,
            position,
            speed: Speed::default(),
            paused,
            looped: false,
            marks: Vec::new(),
            searched: span.first,
        }
    }

    pub fn length(&self) -> Duration {
        self.span.last.since(self.span.first)
    }

    /// Time since the start of the recording.
    pub fn passed(&self) -> Duration {
        self.position.since(self.span.first)
    }

    pub fn within(&self, moment: Moment) -> Moment {
        moment.clamp(self.span.first, self.span.last)
    }

    pub fn is_at_end(&self) -> bool {
        self.position >= self.span.last
    }

    /// The position after this much of the user's time has passed.
    pub fn after(&self, passed: Duration) -> Moment {
        if self.paused { self.position } else { self.within(self.position.after(self.speed.of(passed))) }
    }

    /// The start of a finding that is present at the current position.
    pub(crate) fn since(&self, job: &JobName, finding: &Finding) -> Option<Moment> {
        let before = self.marks.iter().rev().filter(|mark| mark.at <= self.position);
        before.into_iter().find(|mark| mark.begins(job, finding)).map(|mark| mark.at)
    }

    pub fn next_mark(&self) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.at > self.position)
    }

    pub fn previous_mark(&self) -> Option<&Mark> {
        self.marks.iter().rev().find(|mark| mark.at < self.position)
    }
}

/// Recorded seconds per second: a power of two from 1/4 to 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speed(i8);

impl Speed {
    pub fn faster(self) -> Self {
        Self((self.0 + 1).min(6))
    }

    pub fn slower(self) -> Self {
        Self((self.0 - 1).max(-2))
    }

    pub fn of(self, passed: Duration) -> Duration {
        passed.mul_f64(f64::from(self.0).exp2())
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", f64::from(self.0).exp2())
    }
}
