//! The report as one self-contained page, without network or scripts.

mod plot;

use std::fmt::Write as _;

use xpu_wire::{id::Step, text::is_steering};

use super::{tables, text};
use crate::capture::{Capture, RankCapture, Report};

const STYLE: &str = include_str!("html/style.css");

/// The page. Writing to a String cannot fail.
pub fn html(capture: &Capture, report: &Report, top: usize) -> String {
    let mut out = String::new();
    let title = format!("{}: capture of {} ranks", report.job, report.ranks.len());
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>\n<style>\n{STYLE}</style></head>\n\
         <body><h1>{0}</h1>\n",
        escaped(&title)
    );
    for line in text::preface(report) {
        let _ = writeln!(out, "<p>{}</p>", escaped(&line));
    }
    out.push_str(
        "<p class=\"legend\"><i class=\"compute\"></i>compute <i class=\"comm\"></i>communication \
         <i class=\"memory\"></i>memory <i class=\"gap\"></i>gap</p>\n",
    );
    plot::breakdown(report, &mut out);
    let is_whole = |step: &&Step| {
        let steps = report.ranks.iter().flat_map(|rank| &rank.steps);
        steps.filter(|its| its.step == Some(**step)).any(|its| its.summary.is_some())
    };
    if report.window.is_some() {
        plot::timeline("the window", &capture.lanes(RankCapture::WINDOW), &mut out);
    } else if let Some(&step) = report.steps.iter().find(is_whole) {
        plot::timeline(&format!("step {step}"), &capture.lanes(step), &mut out);
    }
    for table in [text::breakdown(report, top)].into_iter().chain(tables::all(report, top)) {
        table.write_html(&mut out);
    }
    out.push_str("</body></html>\n");
    out
}

/// Names are untrusted: they are escaped, as text and within quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if is_steering(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
