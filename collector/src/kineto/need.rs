//! Whether a living rank polls the shared name, so that the collector must have it.
//!
//! A rank in another process namespace, or whose environment is unknown, counts as one that does. One of another user gets no orders.

use std::collections::BTreeMap;

use xpu_wire::{endpoint::user_id, id::Pid, process, unit::Moment};

use super::{Kineto, KinetoName, Which, trace};
use crate::roster::{LivingProcess, Roster};

/// The settings of processes, by process id and start. They are read once: they are those of its start.
#[derive(Debug, Default)]
pub(super) struct Settings(BTreeMap<(Pid, Moment), Setting>);

/// Kineto's variables of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    uses_daemon: bool,
    folder: Option<String>,
}

impl Setting {
    fn of(pid: Pid) -> Self {
        Self {
            uses_daemon: trace::variable(pid.0, KinetoName::USE_DAEMON).is_some()
                || !trace::has_variables(pid.0),
            folder: trace::variable(pid.0, KinetoName::FOLDER),
        }
    }
}

impl Kineto {
    /// Whether a living rank polls the shared name, or may poll it.
    pub(super) fn needs_shared(&mut self, roster: &Roster) -> bool {
        let living: Vec<_> = roster.living_processes().collect();
        self.settings.0.retain(|known, _| living.iter().any(|one| (one.pid, one.started) == *known));
        living.iter().any(|one| self.is_polled_by(one))
    }

    fn is_polled_by(&mut self, one: &LivingProcess) -> bool {
        if let Some((_, client)) = self.clients.of(one.pid) {
            return client.at == Which::Shared;
        }
        if !one.is_here {
            return true;
        }
        if process::owner(one.pid) != Some(user_id()) {
            return false;
        }
        let own = self.own.as_ref().and_then(|own| own.name.folder());
        let setting = self.settings.0.entry((one.pid, one.started)).or_insert_with(|| Setting::of(one.pid));
        // A program can set the variable itself.
        let uses_daemon = setting.uses_daemon || one.counts;
        uses_daemon && self.shared.name.is_polled_with(setting.folder.as_deref(), own)
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;
    use crate::kineto::clients::Poll;

    /// A program that waits, with these variables and no others.
    fn program(set: &[(&str, &str)]) -> std::process::Child {
        let mut command = Command::new("sleep");
        let started = command.arg("60").env_clear().envs(set.iter().copied()).spawn().unwrap();
        let is_executed = || trace::variable(started.id(), "SET").is_some();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_executed() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        started
    }

    fn kineto(name: KinetoName, folder: &Path) -> Kineto {
        Kineto::new(name, folder, Moment::default())
    }

    #[test]
    fn only_programs_that_ask_there_need_the_shared_name() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let own_text = own.to_str().unwrap();
        let abstract_name = || KinetoName::Abstract(b"xpu-top-test-need".to_vec());
        let in_folder = || KinetoName::Folder("/run/k".into());
        let mut number = 0;
        let mut needs = |name: KinetoName, set: &[(&str, &str)], counts: bool| {
            let mut program = program(&[&[("SET", "1")], set].concat());
            number += 1;
            let one =
                LivingProcess { pid: Pid(program.id()), started: Moment(number), is_here: true, counts };
            let needs = kineto(name, &own).is_polled_by(&one);
            program.kill().unwrap();
            program.wait().unwrap();
            needs
        };
        let uses = (KinetoName::USE_DAEMON, "1");
        assert!(needs(abstract_name(), &[uses], false));
        assert!(needs(abstract_name(), &[], true), "the program has set it itself");
        assert!(!needs(abstract_name(), &[], false));
        assert!(!needs(abstract_name(), &[uses, (KinetoName::FOLDER, own_text)], true));
        assert!(!needs(abstract_name(), &[uses, (KinetoName::FOLDER, "/run/k")], true));
        assert!(needs(in_folder(), &[uses, (KinetoName::FOLDER, "/run/k")], false));
        assert!(needs(in_folder(), &[uses, (KinetoName::FOLDER, "/run/./k")], false), "to report it");
        assert!(!needs(in_folder(), &[uses, (KinetoName::FOLDER, own_text)], false));
        assert!(!needs(in_folder(), &[uses], false), "it asks at dynolog's name");
        assert!(!needs(KinetoName::Off, &[uses], true));
    }

    #[test]
    fn a_rank_of_another_namespace_needs_it_until_it_polls_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let mut kineto = kineto(KinetoName::Abstract(b"xpu-top-test-there".to_vec()), folder.path());
        let one = LivingProcess { pid: Pid(7), started: Moment(1), is_here: false, counts: false };
        assert!(kineto.is_polled_by(&one));
        for (at, needs) in [(Which::Own, false), (Which::Shared, true)] {
            let poll = Poll { own: Pid(7), job: 0, accepts: true, unanswerable: None, at };
            kineto.clients.polled(4007, poll, Moment(2));
            assert_eq!(kineto.is_polled_by(&one), needs);
        }
    }
}
