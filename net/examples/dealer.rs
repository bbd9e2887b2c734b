//! A DEALER without libzmq, for tests in other languages. The program connects to the Unix socket at a path,
//! sends each line of its input as a message, and prints each received message as a line. It ends when the
//! peer closes the connection.
//!
//!     dealer PATH

use std::{
    env,
    error::Error,
    io::{self, BufRead as _, ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use xpu_wire::zmtp::Dealer;

const LARGEST: usize = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: dealer PATH")?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_millis(5)))?;
    stream.set_write_timeout(Some(Duration::from_millis(5)))?;
    let (mut dealer, mut bytes) = (Dealer::new(LARGEST), vec![0; 64 * 1024]);
    let lines = lines();
    loop {
        if dealer.is_ready() && dealer.unsent().is_empty() {
            lines.try_iter().take(100).for_each(|line| dealer.send(&line));
        }
        if !dealer.unsent().is_empty() {
            match stream.write(dealer.unsent()) {
                Ok(count) => dealer.written(count),
                Err(error) if for_now(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => dealer.receive(&bytes[..count])?,
            Err(error) if for_now(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let mut out = io::stdout().lock();
        while let Some(message) = dealer.message() {
            out.write_all(&message)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
    }
}

/// input --lines--> the connection
fn lines() -> mpsc::Receiver<Vec<u8>> {
    let (line_tx, line_rx) = mpsc::sync_channel(100);
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if line_tx.send(line).is_err() {
                return;
            }
        }
    });
    line_rx
}

fn for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
