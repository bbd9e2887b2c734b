//! The default name of a job: that of its script.

use std::{ffi::OsString, path::Path};

/// The script's name without its ending; for `-m package.module`, the module's name; otherwise, the program's
/// name.
pub(super) fn of_script(command: &[OsString]) -> String {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let stem = |word: &OsString| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let script = command.iter().find(|word| Path::new(word).extension().is_some_and(|ending| ending == "py"));
    let after_m = || command.iter().skip_while(|word| *word != "-m").nth(1).map(text);
    let module = || after_m().and_then(|module| module.rsplit('.').next().map(str::to_owned));
    script.and_then(stem).or_else(module).or_else(|| command.first().and_then(stem)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_after_its_script() {
        let name = |line: &str| of_script(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(name("python train.py --lr 1"), "train");
        assert_eq!(name("torchrun --nproc-per-node 8 /home/me/llama/pretrain.py config.py"), "pretrain");
        assert_eq!(name("python -m torch.distributed.run train.py"), "train");
        assert_eq!(name("python -m nanotron.train --x"), "train");
        assert_eq!(name("/usr/bin/all_reduce_perf -b 8"), "all_reduce_perf");
    }
}
