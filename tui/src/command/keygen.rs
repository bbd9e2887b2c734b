//! `xpu-top keygen`: makes the key by hand, for hosts without a shared home.

use std::process::ExitCode;

use xpu_shared::key::Key;

use crate::args::{KeygenArgs, UsageError};

pub fn keygen(args: &KeygenArgs) -> Result<ExitCode, UsageError> {
    let path = args.output.clone().or_else(Key::path).ok_or_else(|| {
        UsageError::Value("no home directory to put the key into; name a file with -o FILE".to_owned())
    })?;
    Key::generate()?.write_new(&path)?;
    println!("{}", path.display());
    eprintln!(
        "Hosts that share this file show their jobs to you and to nobody else. Copy it, mode 0600, to hosts that do \
         not share your home."
    );
    Ok(ExitCode::SUCCESS)
}
