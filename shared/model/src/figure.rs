//! Numbers as people read them: with separated thousands, and with only the useful digits. Every page and
//! command formats its figures here, so that the same figure looks the same everywhere.
//!
//! Most forms come in two precisions: [`time`] and [`short_time`], [`bytes`] and [`exact_bytes`],
//! [`whole_percent`], [`percent`] and [`fine_percent`].
#![forbid(unsafe_code)]

use std::time::Duration;

use xpu_wire::unit::{Moment, Nanoseconds};

/// `18,204`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1,234.5`: one digit after the point.
pub fn tenths(number: f64) -> String {
    if !number.is_finite() {
        return "?".to_owned();
    }
    let rounded = (number.abs() * 10.0).round() as u64;
    let sign = if number < 0.0 && rounded > 0 { "-" } else { "" };
    format!("{sign}{}.{}", count(rounded / 10), rounded % 10)
}

/// In at most four columns: `0.52`, `51.2`, `640`, `12k`.
pub fn four_columns(number: f64) -> String {
    match number.abs() {
        n if !n.is_finite() => "?".to_owned(),
        n if n < 9.995 => format!("{number:.2}"),
        n if n < 99.95 => format!("{number:.1}"),
        n if n < 9_999.5 => format!("{number:.0}"),
        n if n < 999_500.0 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.0}M", number / 1e6),
    }
}

/// Two significant digits, and all before the point: `2.0`, `31`, `1234`.
pub fn two(number: f64) -> String {
    match number.abs() {
        n if !n.is_finite() => "?".to_owned(),
        n if n < 9.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// `18,204` if that fits into this many columns, else three significant digits: `1.82M`.
pub fn count_within(columns: usize, number: u64) -> String {
    let whole = count(number);
    if whole.len() <= columns { whole } else { three(number as f64) }
}

/// A share in whole percent: `31 %`.
pub fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A share in percent: `31.4 %`, `100 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 99.95 { format!("{} %", tenths(percent)) } else { format!("{percent:.0} %") }
}

/// A small share in percent: `0.03 %`.
pub fn fine_percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A time to the microsecond, a tenth of a millisecond, or a millisecond: `812 µs`, `102.4 ms`, `1.024 s`.
pub fn time(span: Nanoseconds) -> String {
    match span.0 {
        0..1_000_000 => format!("{} µs", span.0 / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", tenths(span.milliseconds())),
        1_000_000_000..100_000_000_000 => format!("{:.3} s", span.seconds()),
        _ => format!("{} s", tenths(span.seconds())),
    }
}

/// A time with three significant digits in the usual unit: `28.1 µs`, `827 µs`, `1.61 ms`, `12.3 s`.
pub fn short_time(span: Nanoseconds) -> String {
    match span.0 {
        0..999_500 => format!("{} µs", three(span.0 as f64 / 1e3)),
        999_500..999_500_000 => format!("{} ms", three(span.milliseconds())),
        _ => format!("{} s", three(span.seconds())),
    }
}

/// For a column of milliseconds: `102.43`.
pub fn milliseconds(span: Nanoseconds) -> String {
    format!("{:.2}", span.milliseconds())
}

/// For a column of microseconds: `28.1`.
pub fn microseconds(span: Nanoseconds) -> String {
    format!("{:.1}", span.0 as f64 / 1e3)
}

/// A size: `64 MiB`, `1.5 KiB`, `12 B`.
pub fn bytes(number: u64) -> String {
    let (unit, size) = match number {
        0..1_024 => return format!("{number} B"),
        1_024..1_048_576 => ("KiB", 1_u64 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    };
    if number.is_multiple_of(size) {
        format!("{} {unit}", count(number / size))
    } else {
        format!("{} {unit}", tenths(number as f64 / size as f64))
    }
}

/// A size such that different sizes look different: `64 MiB`, `1.5 KiB`, `1,540 B`.
pub fn exact_bytes(number: u64) -> String {
    let unit = match number {
        0..1_024 => 1,
        1_024..1_048_576 => 1_u64 << 10,
        1_048_576..1_073_741_824 => 1 << 20,
        _ => 1 << 30,
    };
    let is_in_tenths = number.checked_mul(10).is_some_and(|tenths| tenths.is_multiple_of(unit));
    if is_in_tenths { bytes(number) } else { format!("{} B", count(number)) }
}

/// A rate of bytes in powers of ten, as usual for networks: `25.4 MB/s`.
pub fn bytes_per_second(rate: u64) -> String {
    match rate {
        0..1_000 => format!("{rate} B/s"),
        1_000..1_000_000 => format!("{:.1} kB/s", rate as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB/s", rate as f64 / 1e6),
        _ => format!("{:.1} GB/s", rate as f64 / 1e9),
    }
}

/// Three significant digits: `9.87`, `61.3`, `395`, `1,234`, `12.3k`.
pub fn three(number: f64) -> String {
    match number.abs() {
        n if !n.is_finite() => "?".to_owned(),
        n if n < 9.995 => format!("{number:.2}"),
        n if n < 99.95 => format!("{number:.1}"),
        n if n < 9_999.5 => count(n.round() as u64),
        n if n < 99_950.0 => format!("{:.1}k", number / 1e3),
        n if n < 999_500.0 => format!("{:.0}k", number / 1e3),
        n if n < 9_995_000.0 => format!("{:.2}M", number / 1e6),
        _ => format!("{:.0}M", number / 1e6),
    }
}

/// How long ago: `4 s`, `12 m`, `3 h`, `2 d`.
pub fn age(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// `1 rank`, `64 ranks`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { one } else { many })
}

/// Numbers in order; consecutive ones are joined: `0-5,7`.
pub fn runs(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let said = |&(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    runs.iter().map(said).collect::<Vec<_>>().join(",")
}

/// The moment in UTC, for a file's name: `20270115T080000Z`.
pub fn stamp(moment: Moment) -> String {
    let seconds = moment.0 / 1_000_000_000;
    let Date { year, month, day } = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The moment in UTC, to be read: `2027-01-15 08:00:00 UTC`.
pub fn clock(moment: Moment) -> String {
    let seconds = moment.0 / 1_000_000_000;
    let Date { year, month, day } = date(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02} {} UTC", time_of_day(moment))
}

/// `08:00:00`, in UTC.
pub fn time_of_day(moment: Moment) -> String {
    let seconds = moment.0 / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// The Gregorian date of a day counted from 1970-01-01, by eras of 400 years that begin in March, so that the
/// leap day is the last of its year.
fn date(days: u64) -> Date {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    Date { year: era * 400 + year_of_era + u64::from(month <= 2), month, day }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let texts: Vec<_> = [0, 999, 1_000, 18_204, 1_234_567].map(count).into();
        assert_eq!(texts, ["0", "999", "1,000", "18,204", "1,234,567"]);
        assert_eq!(tenths(1_234.56), "1,234.6");
        assert_eq!(tenths(999.96), "1,000.0");
        assert_eq!(tenths(-0.04), "0.0");
        assert_eq!(tenths(-3.25), "-3.3");
        assert_eq!(tenths(f64::NAN), "?");
    }

    #[test]
    fn a_short_figure_has_at_most_four_columns() {
        for number in [0.0, 0.004, 9.994, 9.996, 51.23, 99.96, 640.4, 9_999.0, 9_999.9, 123_456.0, 5e7] {
            assert!(four_columns(number).len() <= 4, "{number}: {}", four_columns(number));
        }
        assert_eq!([51.23, 640.4, 12_345.0].map(four_columns), ["51.2", "640", "12k"]);
    }

    #[test]
    fn three_digits_count_and_no_figure_is_wider_than_five_columns() {
        let said: Vec<_> =
            [9.874, 9.996, 61.34, 395.2, 1_234.4, 9_999.6, 12_345.0, 99_960.0, 123_456.0, 1.5e6, 2e8]
                .map(three)
                .into();
        let wanted =
            ["9.87", "10.0", "61.3", "395", "1,234", "10.0k", "12.3k", "100k", "123k", "1.50M", "200M"];
        assert_eq!(said, wanted);
        assert_eq!(three(f64::INFINITY), "?");
        assert_eq!([2.04, 9.96, 31.4, 1_234.4].map(two), ["2.0", "10", "31", "1234"]);
        assert_eq!([71_760, 1_000_000].map(|number| count_within(7, number)), ["71,760", "1.00M"]);
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!(whole_percent(0.314), "31 %");
        assert_eq!([0.3141, 0.9996].map(percent), ["31.4 %", "100 %"]);
        assert_eq!(fine_percent(0.00028), "0.03 %");
    }

    #[test]
    fn times_have_a_suitable_unit() {
        let said: Vec<_> =
            [812_000, 102_400_000, 1_024_000_000, 250_000_000_000].map(|n| time(Nanoseconds(n))).into();
        assert_eq!(said, ["812 µs", "102.4 ms", "1.024 s", "250.0 s"]);
        let spans: Vec<_> =
            [28_123, 999_900, 1_612_000, 12_300_000_000].map(|n| short_time(Nanoseconds(n))).into();
        assert_eq!(spans, ["28.1 µs", "1.00 ms", "1.61 ms", "12.3 s"]);
        let ages: Vec<_> = [4, 119, 150, 7_300, 400_000].map(|s| age(Duration::from_secs(s))).into();
        assert_eq!(ages, ["4 s", "119 s", "2 m", "2 h", "4 d"]);
    }

    #[test]
    fn sizes_are_binary() {
        let sizes: Vec<_> = [12, 1_536, 64 << 20, 3 << 30].map(bytes).into();
        assert_eq!(sizes, ["12 B", "1.5 KiB", "64 MiB", "3 GiB"]);
        let exact: Vec<_> = [12, 1_536, 1_540, 64 << 20, (64 << 20) + 4].map(exact_bytes).into();
        assert_eq!(exact, ["12 B", "1.5 KiB", "1,540 B", "64 MiB", "67,108,868 B"]);
    }

    #[test]
    fn rates_of_bytes_are_decimal() {
        let rates = [999, 1_500, 25_400_000, 63_000_000_000].map(bytes_per_second);
        assert_eq!(rates, ["999 B/s", "1.5 kB/s", "25.4 MB/s", "63.0 GB/s"]);
    }

    #[test]
    fn a_stamp_is_the_date_in_utc() {
        let at = |seconds: u64| stamp(Moment(seconds * 1_000_000_000));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(1_800_000_000), "20270115T080000Z");
    }
}
