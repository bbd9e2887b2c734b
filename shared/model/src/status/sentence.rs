//! Sentences that the screen and the commands share.

/// A sentence about hooks that are off.
pub fn switched_off(hooks: usize) -> String {
    let are = if hooks == 1 { "hook is" } else { "hooks are" };
    format!(
        "{hooks} {are} off: the figures of those ranks are old; `xpu-top ctl --hook on` switches them on again"
    )
}

/// A sentence about a second job of the same name.
pub fn claims(processes: u32, job: &str) -> String {
    let (who, claim) = if processes == 1 { ("process", "claims") } else { ("processes", "claim") };
    format!(
        "{processes} {who} {claim} ranks of job {job} that are taken: give each job a name of its own with `xpu-top run --job NAME`"
    )
}
