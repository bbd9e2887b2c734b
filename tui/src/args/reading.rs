//! What is asked of captures that are there.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A file that `xpu-top capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// As a JSON document
    #[arg(long)]
    pub json: bool,
    /// So many rows of each table of text
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub top: usize,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A file that `xpu-top capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write Perfetto's own form, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "OUT")]
    pub perfetto: Option<PathBuf>,
    /// Write Chrome's JSON
    #[arg(long, value_name = "OUT")]
    pub chrome: Option<PathBuf>,
}
