//! `/api/v1/replay`: the moment of a recording that the pages show. All pages of this program show the same
//! moment.

use std::sync::Arc;

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::json;
use xpu_wire::unit::Moment;

use super::{
    api::{Answer, body},
    app::{App, run_blocking},
    error::Problem,
};
use crate::follow::{Recording, Replay, Steering};

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaybackRequest {
    /// The moment in seconds since 1970, clamped to the recording.
    at: Option<f64>,
    /// Seconds to move from the moment that is shown.
    by: Option<f64>,
    is_playing: Option<bool>,
    speed: Option<f64>,
}

pub(super) async fn show(State(app): State<Arc<App>>) -> Answer {
    answer(&app, |steering| steering.replay()).await
}

pub(super) async fn steer(
    State(app): State<Arc<App>>,
    wish: Result<Json<PlaybackRequest>, JsonRejection>,
) -> Answer {
    let wish = body(wish)?;
    if wish.speed.is_some_and(|speed| !Recording::SPEEDS.contains(&speed)) {
        let error = format!("speed {:?}", wish.speed.unwrap_or_default());
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, "choose a speed from 0.25 to 64"));
    }
    let answered = answer(&app, move |steering| wish.apply(steering)).await?;
    app.events.wake();
    Ok(answered)
}

impl PlaybackRequest {
    fn apply(self, steering: &mut Steering<'_>) -> Replay {
        let now = steering.replay();
        if let Some(to) = self.at.or_else(|| Some(now.at + self.by?)) {
            // Clamped as a float: negative and huge numbers become the begin and the end.
            steering.seek(Moment((to.clamp(now.begin, now.end) * 1e9) as u64));
        }
        if let Some(speed) = self.speed {
            steering.set_speed(speed);
        }
        if let Some(plays) = self.is_playing {
            // A recording at its end plays from its begin.
            if plays && steering.replay().is_at_end() {
                steering.seek(Moment((now.begin * 1e9) as u64));
            }
            steering.play(plays);
        }
        steering.replay()
    }
}

async fn answer(app: &Arc<App>, steer: impl FnOnce(&mut Steering<'_>) -> Replay + Send + 'static) -> Answer {
    let follow = Arc::clone(&app.follow);
    let replay = run_blocking(move || follow.steer(steer)).await?.ok_or_else(|| {
        let next =
            "`xpu-top serve FILE` shows a recording; xpu-top in a terminal shows the last minutes of a job";
        Problem::new(StatusCode::CONFLICT, "these pages show a running job, not a recording", next)
    })?;
    Ok(Json(json!(replay)))
}
