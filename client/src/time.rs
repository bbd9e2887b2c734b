//! Parses and shows the times of a recording as people write them.

use std::time::Duration;

use xpu_model::{duration::duration, figure};
use xpu_recording::Span;
use xpu_wire::unit::Moment;

const DAY: u64 = 86_400;
const SECOND: u64 = 1_000_000_000;

/// `1:02:03`, `12:04:05`.
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The message about a moment that cannot be parsed.
pub const FORMS: &str =
    "write 02:14:07 (time of day, UTC), +10m (after the begin), -30s (before the end) or 50%";

/// The moment that an argument names. An error if it is outside the recording; the error states the
/// recording's range.
pub fn moment_within(text: &str, span: Span) -> Result<Moment, String> {
    let Span { first, last } = span;
    let meant = moment(text, span).ok_or_else(|| format!("--at {text}: {FORMS}"))?;
    // The last second counts in full.
    if meant < first || meant >= last.after(Duration::from_secs(1)) {
        return Err(format!(
            "--at {text}: the recording is from {} to {} UTC, {} long; {FORMS}",
            figure::time_of_day(first),
            figure::time_of_day(last),
            self::span(last.since(first)),
        ));
    }
    Ok(meant.min(last))
}

/// The moment of a recording that `text` names. A time of day is the first after the recording's begin.
pub fn moment(text: &str, Span { first, last }: Span) -> Option<Moment> {
    let text = text.trim();
    if let Some(after) = text.strip_prefix('+') {
        return Some(first.after(duration(after)?));
    }
    if let Some(before) = text.strip_prefix('-') {
        let nanoseconds = u64::try_from(duration(before)?.as_nanos()).ok()?;
        return Some(Moment(last.0.saturating_sub(nanoseconds)));
    }
    if let Some(share) = text.strip_suffix('%') {
        let share: f64 = share.trim().parse().ok().filter(|share| (0.0..=100.0).contains(share))?;
        return Some(first.after(last.since(first).mul_f64(share / 100.0)));
    }
    let mut parts = text.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let of_day = (hours * 3600 + minutes * 60 + seconds) * SECOND;
    let day = first.0 - first.0 % (DAY * SECOND);
    let today = Moment(day.saturating_add(of_day));
    // A named second means its end, because the screen shows the state there.
    let meant = if today.0 + SECOND <= first.0 { Moment(today.0 + DAY * SECOND) } else { today };
    Some(meant.after(Duration::from_nanos(SECOND - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * SECOND)
    }

    #[test]
    fn moments_are_parsed_in_all_notations() {
        // 23:59:50 to 00:10:00 of the next day.
        let span = Span { first: at(10 * DAY - 10), last: at(10 * DAY + 600) };
        let seconds_of = |text: &str| moment(text, span).map(|moment| moment.0 / SECOND);
        assert_eq!(seconds_of("23:59:55"), Some(10 * DAY - 5));
        assert_eq!(seconds_of("00:05"), Some(10 * DAY + 300));
        assert_eq!(seconds_of("+1m30s"), Some(10 * DAY + 80));
        assert_eq!(seconds_of("-1m"), Some(10 * DAY + 540));
        assert_eq!(seconds_of("50%"), Some(10 * DAY + 295));
        for wrong in ["", "x", "25:00", "1:60", "1:2:3:4", "+", "-x", "101%", "+1y", "12", "::"] {
            assert_eq!(seconds_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_moment_outside_the_recording_is_refused_with_its_span() {
        let span = Span { first: at(10 * DAY), last: at(10 * DAY + 600) };
        assert_eq!(moment_within("+10m", span), Ok(span.last));
        assert_eq!(moment_within("00:10:00", span), Ok(span.last));
        assert_eq!(moment_within("-10m", span), Ok(span.first));
        for outside in ["+99m", "00:10:02", "-11m", "23:59:59"] {
            let why = moment_within(outside, span).unwrap_err();
            assert!(why.contains("00:00:00 to 00:10:00 UTC, 00:10:00 long"), "{outside}: {why}");
        }
        assert!(moment_within("x", span).unwrap_err().contains("+10m"));
    }
}
