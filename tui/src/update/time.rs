//! The effects of the keys that move time. Nothing is read here: an [`Effect`] requests needed frames.

use std::time::Duration;

use xpu_client::time;
use xpu_model::{duration::duration, figure};
use xpu_wire::unit::Moment;

use crate::{
    action::{Control, Effect},
    app::{App, Past},
    playback::{Mark, Of},
    prompt::{Kind, Prompt},
};

const NEAR: Duration = Duration::from_secs(10);
const FAR: Duration = Duration::from_mins(1);
const STEP: Duration = Duration::from_secs(1);

pub(super) fn control(app: &mut App, control: Control) -> Option<Effect> {
    if control == Control::Record {
        return Some(Effect::Record);
    }
    let Some(Past { playback, .. }) = &mut app.past else {
        // In a live job, only the past can be the target.
        return match control {
            Control::Pause => Some(Effect::LookBack(Duration::ZERO)),
            Control::Back => Some(Effect::LookBack(NEAR)),
            Control::FarBack => Some(Effect::LookBack(FAR)),
            Control::StepBack => Some(Effect::LookBack(STEP)),
            Control::Begin => Some(Effect::LookBack(Duration::MAX)),
            _ => {
                app.messages.done("the screen is live: Space pauses it, ← goes back");
                None
            }
        };
    };
    let (position, span) = (playback.position, playback.span);
    let back = |by: Duration| {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Moment(position.0.saturating_sub(by)).clamp(span.first, span.last)
    };
    let forward = |by| position.after(by).clamp(span.first, span.last);
    match control {
        Control::Pause if playback.paused && playback.is_at_end() => match playback.of {
            Of::Live => return Some(Effect::GoLive),
            // The replay starts again from the beginning.
            Of::File => {
                playback.paused = false;
                return Some(Effect::Seek(playback.span.first));
            }
        },
        Control::Pause => playback.paused = !playback.paused,
        Control::Back => return Some(Effect::Seek(back(NEAR))),
        Control::FarBack => return Some(Effect::Seek(back(FAR))),
        Control::Forward => return Some(Effect::Seek(forward(NEAR))),
        Control::FarForward => return Some(Effect::Seek(forward(FAR))),
        Control::Step => {
            playback.paused = true;
            return Some(Effect::Step);
        }
        Control::StepBack => {
            playback.paused = true;
            return Some(Effect::Seek(back(STEP)));
        }
        Control::Faster => playback.speed = playback.speed.faster(),
        Control::Slower => playback.speed = playback.speed.slower(),
        Control::Loop => playback.looped = !playback.looped,
        Control::NextFinding => return to_mark(app, true),
        Control::PreviousFinding => return to_mark(app, false),
        Control::AskTime => app.overlay.prompt = Some(Prompt::new(Kind::Time, "")),
        Control::Begin => return Some(Effect::Seek(playback.span.first)),
        Control::End => {
            return Some(match playback.of {
                Of::Live => Effect::GoLive,
                Of::File => Effect::Seek(playback.span.last),
            });
        }
        Control::Record => {}
    }
    None
}

/// Goes to the time that was typed.
pub(super) fn go_to(app: &mut App, text: &str) -> Option<Effect> {
    let Some(playback) = app.playback() else {
        // In a live job, the target is this long before now.
        if let Some(by) = text.trim().strip_prefix('-').and_then(duration) {
            return Some(Effect::LookBack(by));
        }
        app.messages
            .failed(format!("the screen is live: -30s goes back 30 s; {text} works only in a replay"));
        return None;
    };
    if let Some(moment) = time::moment(text, playback.span) {
        return Some(Effect::Seek(playback.within(moment)));
    }
    app.messages.failed(format!("`{text}` is not a time: {}", time::FORMS));
    None
}

fn to_mark(app: &mut App, forward: bool) -> Option<Effect> {
    let playback = &mut app.past.as_mut()?.playback;
    let mark = if forward { playback.next_mark() } else { playback.previous_mark() };
    if let Some(Mark { at, .. }) = mark {
        let at = *at;
        playback.paused = true;
        return Some(Effect::Seek(at));
    }
    let known = playback.searched >= playback.span.last;
    app.messages.done(match (forward, known) {
        (true, false) => format!("no finding yet; searched up to {}", figure::time_of_day(playback.searched)),
        (true, true) => "no finding begins after this".to_owned(),
        (false, _) => "no finding began before this".to_owned(),
    });
    None
}
