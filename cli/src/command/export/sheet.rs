//! A capture as tables, one per kind of operation, with a row for each operation; for CSV and Parquet.

mod rows;

use std::path::{Path, PathBuf};

use xpu_analysis::capture::{Capture, Clocks, Groups};

use crate::args::ExportKind;

/// One value of a row. All integers are signed, because none here needs the 64th bit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    None,
    Number(i64),
    Real(f64),
    Text(String),
    Flag(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Real,
    Text,
    Flag,
}

/// A table without its rows. The columns of [`RANK`] come first, then one for each axis of the groups, then
/// the common ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSchema {
    pub(super) name: &'static str,
    common: &'static [(&'static str, Kind)],
    columns: &'static [(&'static str, Kind)],
    /// The kinds of operations in it; the table of steps covers all.
    of: Option<ExportKind>,
    rows: fn(&Source<'_>, &mut Put<'_>) -> anyhow::Result<()>,
}

pub(super) type Put<'a> = dyn FnMut(Vec<Cell>) -> anyhow::Result<()> + 'a;

/// The source of rows.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) capture: &'a Capture,
    pub(super) clocks: &'a Clocks,
    pub(super) groups: Option<&'a Groups>,
}

use Kind::{Flag, Number, Real, Text};

const RANK: [(&str, Kind); 3] = [("rank", Number), ("host", Text), ("step", Number)];

/// The columns of every operation on a GPU.
const ON_GPU: [(&str, Kind); 6] = [
    ("launched_ns", Number),
    ("begin_ns", Number),
    ("took_ns", Number),
    ("stream", Number),
    ("thread", Number),
    ("sampled", Flag),
];

pub(super) const SHEETS: [TableSchema; 6] = [
    TableSchema {
        name: "steps",
        common: &[],
        columns: &[
            ("begin_ns", Number),
            ("took_ns", Number),
            ("sampled", Flag),
            ("compute_ns", Number),
            ("communication_ns", Number),
            ("exposed_ns", Number),
            ("memory_ns", Number),
            ("gap_ns", Number),
            ("blocked_ns", Number),
        ],
        of: None,
        rows: rows::steps,
    },
    TableSchema {
        name: "gemms",
        common: &ON_GPU,
        columns: &[
            ("m", Number),
            ("n", Number),
            ("k", Number),
            ("batch", Number),
            ("datatype", Text),
            ("transposed", Text),
            ("routine", Text),
            ("flops", Real),
        ],
        of: Some(ExportKind::Gemm),
        rows: rows::gemms,
    },
    TableSchema {
        name: "collectives",
        common: &ON_GPU,
        columns: &[
            ("communicator", Text),
            ("operation", Text),
            ("sequence", Number),
            ("group_launch", Flag),
            ("bytes", Number),
            ("bus_bytes", Number),
            ("algorithm", Text),
            ("protocol", Text),
            ("channels", Number),
        ],
        of: Some(ExportKind::Collective),
        rows: rows::collectives,
    },
    TableSchema {
        name: "kernels",
        common: &ON_GPU,
        columns: &[("name", Text), ("work", Text)],
        of: Some(ExportKind::Kernel),
        rows: rows::kernels,
    },
    TableSchema {
        name: "copies",
        common: &ON_GPU,
        columns: &[("what", Text), ("bytes", Number), ("held_ns", Number)],
        of: Some(ExportKind::Copy),
        rows: rows::copies,
    },
    TableSchema {
        name: "host",
        common: &[],
        columns: &[
            ("begin_ns", Number),
            ("took_ns", Number),
            ("thread", Number),
            ("sampled", Flag),
            ("kind", Text),
            ("name", Text),
        ],
        of: Some(ExportKind::Host),
        rows: rows::host,
    },
];

impl TableSchema {
    /// Whether the table is written for these requested kinds; an empty list means all.
    pub(super) fn is_selected(&self, kinds: &[ExportKind]) -> bool {
        kinds.is_empty() || self.of.is_none_or(|of| kinds.contains(&of))
    }

    pub(super) fn path(&self, place: &Path, ending: &str) -> PathBuf {
        place.join(format!("{}.{ending}", self.name))
    }

    pub(super) fn columns(&self, source: &Source<'_>) -> Vec<(String, Kind)> {
        let axes = source.groups.into_iter().flat_map(Groups::axes).map(|axis| (axis.to_owned(), Number));
        let owned = |&(name, kind): &(&str, Kind)| (name.to_owned(), kind);
        RANK.iter().map(owned).chain(axes).chain(self.common.iter().chain(self.columns).map(owned)).collect()
    }

    pub(super) fn rows(&self, source: &Source<'_>, put: &mut Put<'_>) -> anyhow::Result<()> {
        (self.rows)(source, put)
    }
}
