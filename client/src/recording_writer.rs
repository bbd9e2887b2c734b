//! Writes frames to a recording as they arrive.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use xpu_recording::{Header, Packer, SealedBlock, Totals, Writer};
use xpu_wire::{
    frame::{Body, Frame},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use crate::{arrival::Endpoint, new_file};

/// The file and its content.
#[derive(Debug)]
pub struct RecordingWriter {
    path: PathBuf,
    writer: Writer<File>,
    pub packer: Packer,
    seen: Seen,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub ranks: BTreeSet<Rank>,
    /// Hosts with ranks: relays and viewers send frames too.
    pub hosts: BTreeSet<HostName>,
}

impl RecordingWriter {
    /// Creates a file that does not exist yet.
    pub fn begin(path: &Path, header: &Header) -> io::Result<Self> {
        let path = path.to_owned();
        match Writer::begin(new_file::create(&path)?, header) {
            Ok(writer) => Ok(Self { path, writer, packer: Packer::default(), seen: Seen::default() }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    pub fn take(&mut self, frame: &Frame) -> io::Result<()> {
        if let Body::Digest(digest) = &frame.body {
            self.seen.hosts.insert(frame.host.clone());
            self.seen.ranks.extend(digest.ranks.iter().map(|rank| rank.rank));
        }
        let full = self.packer.push(Moment::now(), frame)?;
        self.write(full.into_iter().collect())?;
        // Each rank's captured data is in its own blocks: damage to one does not affect another.
        if matches!(frame.body, Body::CapturePart(_) | Body::PythonSamples(_)) {
            let part = self.packer.rest()?;
            self.write(part)?;
        }
        Ok(())
    }

    pub fn write(&mut self, blocks: Vec<SealedBlock>) -> io::Result<()> {
        blocks.iter().try_for_each(|block| self.writer.write(block))
    }

    /// Removes a file without useful content, so that the next attempt may use its name.
    pub fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }

    pub fn close(mut self) -> io::Result<(Totals, Seen)> {
        let rest = self.packer.rest()?;
        self.write(rest)?;
        let (file, totals) = self.writer.finish()?;
        file.sync_all()?;
        Ok((totals, self.seen))
    }
}

/// The header of a new file.
pub fn header(job: Option<&JobName>, hosts: &[Endpoint]) -> Header {
    Header {
        job: job.map_or_else(String::new, ToString::to_string),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        made: Moment::now(),
        by: xpu_wire::VERSION.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use xpu_simulation::Simulation;

    use super::*;

    #[test]
    fn only_hosts_of_ranks_are_counted() {
        let path = env::temp_dir().join(format!("xpu-top-recording-writer-{}", process::id()));
        let mut recording = RecordingWriter::begin(&path, &Header::default()).unwrap();
        let digests = Simulation::new(1, 2, 4).digests(1);
        let relays = Frame { host: HostName::from(""), body: Body::Goodbye, ..digests[0].clone() };
        for frame in digests.iter().chain([&relays]) {
            recording.take(frame).unwrap();
        }
        let (totals, seen) = recording.close().unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!((totals.frames, seen.ranks.len(), seen.hosts.len()), (3, 8, 2));
    }
}
