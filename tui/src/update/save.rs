//! Saves the screen: pictures and texts, each with its own name.

use std::path::PathBuf;

use xpu_analysis::flame;
use xpu_model::figure;
use xpu_wire::id::JobName;

use crate::{action::Effect, app::App, report};

pub(super) fn picture(app: &mut App) -> Effect {
    app.settle();
    Effect::Save(named(app, "xpu-top", "svg"))
}

/// Writes the screen to a file of this name, or the data as text, depending on the name.
pub(super) fn to(app: &mut App, path: PathBuf) -> Option<Effect> {
    app.settle();
    if path.extension().is_some_and(|ending| ending == "txt") {
        app.job()?;
        return Some(Effect::Write(path, report::text(app)));
    }
    Some(Effect::Save(path))
}

pub(super) fn flame(app: &mut App) -> Option<Effect> {
    app.settle();
    let job = app.job()?.name().clone();
    if app.stacks.rows().is_empty() {
        app.messages.failed(format!("there are no stacks to draw: {} reads them", app.key("read-stacks")));
        return None;
    }
    match flame::svg(app.stacks.tree(), &job) {
        Ok(svg) => Some(Effect::Write(
            named(app, "xpu-top-stacks", "svg"),
            String::from_utf8_lossy(&svg).into_owned(),
        )),
        Err(error) => {
            app.messages.failed(format!("{error:#}"));
            None
        }
    }
}

pub(super) fn report(app: &mut App) -> Option<Effect> {
    app.settle();
    app.job()?;
    Some(Effect::Copy(named(app, "xpu-top-report", "txt"), report::text(app)))
}

/// `xpu-top-llama-70b-20270115T080000Z.svg`
fn named(app: &App, what: &str, ending: &str) -> PathBuf {
    // The name came over the network; once cleaned, it cannot be a path.
    let job = app.job().map(|job| format!("{}-", JobName::cleaned(job.name().as_str()))).unwrap_or_default();
    PathBuf::from(format!("{what}-{job}{}.{ending}", figure::stamp(app.now())))
}
