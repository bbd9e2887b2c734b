//! The hosts to watch. Turns a hosts file or a list in the notation of clusters into endpoints.
//!
//! An invalid line causes a warning and is left out. The other lines still count, because a list of a
//! thousand hosts always has a wrong one.

mod name;
mod range;
pub mod service;
pub mod slurm;

use std::{
    fmt::{self, Write as _},
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use xpu_wire::endpoint::{BasePort, Endpoint};

/// Largest number of hosts in total. The largest clusters have a third of it, and a typo in a range gives
/// more.
const MOST_HOSTS: usize = 100_000;

/// Largest hosts file that is read.
const LARGEST_FILE: u64 = 16 << 20;

/// Warnings kept; a file of the wrong kind would cause one for each of its lines.
const MOST_WARNINGS: usize = 20;

/// The named hosts, each once, and the invalid parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    pub endpoints: Vec<Endpoint>,
    pub warnings: Vec<Warning>,
}

/// An error in a part of the list, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub place: String,
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl Hosts {
    /// This host alone.
    pub fn here(base: BasePort) -> Self {
        let endpoints = vec![Endpoint { host: "127.0.0.1".to_owned(), base, ssh: None }];
        Self { endpoints, warnings: Vec::new() }
    }

    /// Reads a file with one host per line. `base` is for hosts without a port.
    pub fn from_file(path: &Path, base: BasePort) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Self::from_lines(&String::from_utf8_lossy(&bytes), &name, base))
    }

    fn from_lines(text: &str, file: &str, base: BasePort) -> Self {
        let mut hosts = Gathering::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                hosts.take_line(line, base, || format!("{file}:{}", number + 1));
            }
        }
        hosts.done()
    }

    /// Reads the text after `--hosts`: names separated by commas.
    pub fn from_list(text: &str, base: BasePort) -> Self {
        let mut hosts = Gathering::default();
        hosts.take_names(text, base, || "--hosts".to_owned());
        hosts.done()
    }
}

#[derive(Default)]
struct Gathering {
    hosts: Hosts,
    known: std::collections::HashSet<Endpoint>,
    unsaid: usize,
}

impl Gathering {
    /// `host[:port]`, then words such as `slots=8` that are ignored.
    fn take_line(&mut self, line: &str, base: BasePort, place: impl Fn() -> String) {
        let mut words = line.split_whitespace();
        let Some(names) = words.next() else { return };
        if let Some(unexpected) = words.find(|word| !is_setting(word)) {
            let what = format!(
                "`{unexpected}` is neither a host nor a setting such as slots=8; write one host per line"
            );
            return self.warn(place(), what);
        }
        self.take_names(names, base, place);
    }

    fn take_names(&mut self, names: &str, base: BasePort, place: impl Fn() -> String) {
        for one in name::split(names) {
            let limit = MOST_HOSTS - self.hosts.endpoints.len();
            match name::expand(one.trim(), base, limit) {
                Ok(endpoints) => {
                    for endpoint in endpoints {
                        if self.known.insert(endpoint.clone()) {
                            self.hosts.endpoints.push(endpoint);
                        }
                    }
                }
                Err(error) => self.warn(place(), error.to_string()),
            }
        }
    }

    fn warn(&mut self, place: String, what: String) {
        if self.hosts.warnings.len() < MOST_WARNINGS {
            self.hosts.warnings.push(Warning { place, what });
        } else {
            self.unsaid += 1;
        }
    }

    fn done(mut self) -> Hosts {
        if let Some(last) = self.hosts.warnings.last_mut().filter(|_| self.unsaid > 0) {
            let _ = write!(last.what, " (and {} more like it)", self.unsaid);
        }
        self.hosts
    }
}

fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| !key.is_empty())
}

#[cfg(test)]
mod tests;
