//! Reads keys, on a separate thread.
//!
//! Crossterm never stops reading a terminal that is gone: its loop ends neither at the end of the input nor
//! at an error. This does no harm on a detached thread. The drawing thread notices the loss at its next
//! redraw, and ends the process.

use std::{io, thread};

use crossterm::event::{Event, EventStream};
use tokio::{runtime::Builder, sync::mpsc};
use tokio_stream::StreamExt as _;

use super::background::LateAnswer;

/// Number of events that may wait for the screen; the terminal keeps later ones.
const QUEUE: usize = 256;

/// keys --Event--> watch
pub type Keys = mpsc::Receiver<io::Result<Event>>;

/// Reads until there is no receiver.
pub fn keys() -> io::Result<Keys> {
    let (sender, keys) = mpsc::channel(QUEUE);
    let runtime = Builder::new_current_thread().build()?;
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut events = EventStream::new();
            let mut late = LateAnswer::is_awaited().then(LateAnswer::default);
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    event = events.next() => {
                        let Some(event) = event else { return };
                        if let (Ok(event), Some(late)) = (&event, &mut late)
                            && late.has(event)
                        {
                            continue;
                        }
                        if sender.send(event).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
    })?;
    Ok(keys)
}
