//! The hosts of a Slurm job, from `squeue`, which writes ranges as a hosts file does.

use std::{io, process::Command};

/// A job's nodes, as a list for `--hosts`; or the error with its remedy.
pub fn nodes(id: &str) -> Result<String, String> {
    let is_id = |c: char| c.is_ascii_digit() || matches!(c, '_' | '+');
    if id.is_empty() || !id.chars().all(is_id) {
        return Err(format!(
            "--slurm-job {}: write the job's number, as squeue shows it: 4711, 4711_3 or 4711+0",
            id.escape_default()
        ));
    }
    let asked = Command::new("squeue").args(["--noheader", "--format=%T|%N", "--jobs", id]).output();
    let said = asked.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "squeue is not in PATH: run this where Slurm's commands are, or name the hosts with --hosts"
                .to_owned()
        }
        _ => format!("squeue cannot be run: {error}; name the hosts with --hosts"),
    })?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        return Err(format!("squeue does not know job {id} ({}); `squeue --me` lists yours", why.trim()));
    }
    listed(id, &String::from_utf8_lossy(&said.stdout))
}

/// Parses lines of `STATE|nodes`. A job of several parts (arrays, heterogeneous jobs) has one line per part.
fn listed(id: &str, text: &str) -> Result<String, String> {
    let lines: Vec<_> = text.lines().filter_map(|line| line.trim().split_once('|')).collect();
    let nodes: Vec<_> =
        lines.iter().map(|(_, nodes)| nodes.trim()).filter(|nodes| !nodes.is_empty()).collect();
    match (nodes.is_empty(), lines.first()) {
        (false, _) => Ok(nodes.join(",")),
        (true, Some((state, _))) => Err(format!(
            "Slurm job {id} is {state} and has no nodes yet; ask again when it runs (`squeue --jobs {id}`)"
        )),
        (true, None) => {
            Err(format!("Slurm job {id} is over: squeue does not list it any more; `sacct --jobs {id}` does"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_all_parts_are_used_and_a_job_without_any_is_refused_with_a_reason() {
        let some = "RUNNING|node[001-004,7]\nRUNNING|gpu12\n";
        assert_eq!(listed("7", some), Ok("node[001-004,7],gpu12".to_owned()));
        let why = listed("7", "PENDING|\n").unwrap_err();
        assert!(why.contains("is PENDING and has no nodes yet"), "{why}");
        assert!(listed("7", "").unwrap_err().contains("sacct"));
    }

    #[test]
    fn a_job_id_that_is_no_number_is_not_given_to_squeue() {
        for id in ["", "-h", "7 --help", "$(x)"] {
            assert!(nodes(id).unwrap_err().contains("the job's number"), "{id}");
        }
    }
}
