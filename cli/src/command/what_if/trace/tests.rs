use std::{fs, io::Write as _, path::PathBuf, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type},
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};
use xpu_analysis::what_if::{Job, WhatIf};

use super::*;

/// Two replicas; the second one computes twice as long. A row is an operation: replica, kind, start,
/// duration.
const OPERATIONS: [(i32, &str, f32, f32); 8] = [
    (0, "forward-compute", 0.0, 1.0),
    (0, "backward-compute", 1.0, 2.0),
    (0, "grads-reduce-scatter", 3.0, 3.5),
    (0, "optimizer", 6.5, 0.5),
    (1, "forward-compute", 0.0, 2.0),
    (1, "backward-compute", 2.0, 4.0),
    (1, "grads-reduce-scatter", 6.0, 0.5),
    (1, "optimizer", 6.5, 0.5),
];

/// The columns of the public traces, with their types.
const SCHEMA: &str = "message trace {
    optional int32 dp_rank; optional int32 stage; optional int32 rank; optional int64 step; optional binary optype (UTF8);
    optional float start_ts; optional float duration; optional int32 seq_id; optional int32 mc; optional int32 mb_id; optional int32 gmc;
}";

/// A file of that schema, or of a changed one; `null` names a column whose last cell is empty.
fn file(schema: &str, rows: &[(i32, &str, f32, f32)], null: &str) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("it is a schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema.clone(), properties).expect("memory takes it");
    let mut group = writer.next_row_group().expect("memory takes it");
    for field in schema.get_fields() {
        let mut column = group.next_column().expect("memory takes it").expect("there is one more");
        write(&mut column, field.name(), field.get_physical_type(), rows, field.name() == null);
        column.close().expect("memory takes it");
    }
    group.close().expect("memory takes it");
    writer.into_inner().expect("memory takes it")
}

fn write(
    column: &mut SerializedColumnWriter<'_>,
    name: &str,
    kind: parquet::basic::Type,
    rows: &[(i32, &str, f32, f32)],
    has_null: bool,
) {
    let mut levels = vec![1_i16; rows.len()];
    if let Some(last) = levels.last_mut().filter(|_| has_null) {
        *last = 0;
    }
    let rows = &rows[..rows.len() - usize::from(has_null)];
    let number = |row: &(i32, &str, f32, f32)| match name {
        "dp_rank" | "rank" => row.0,
        "step" => 7,
        _ => 0,
    };
    let seconds = |row: &(i32, &str, f32, f32)| if name == "start_ts" { row.2 } else { row.3 };
    let levels = Some(&*levels);
    let written = match kind {
        parquet::basic::Type::INT32 => {
            let values: Vec<_> = rows.iter().map(number).collect();
            column.typed::<Int32Type>().write_batch(&values, levels, None)
        }
        parquet::basic::Type::INT64 => {
            let values: Vec<_> = rows.iter().map(|row| i64::from(number(row))).collect();
            column.typed::<Int64Type>().write_batch(&values, levels, None)
        }
        parquet::basic::Type::FLOAT => {
            let values: Vec<_> = rows.iter().map(seconds).collect();
            column.typed::<FloatType>().write_batch(&values, levels, None)
        }
        parquet::basic::Type::DOUBLE => {
            let values: Vec<_> = rows.iter().map(|row| f64::from(seconds(row))).collect();
            column.typed::<DoubleType>().write_batch(&values, levels, None)
        }
        _ => {
            let values: Vec<_> = rows.iter().map(|row| ByteArray::from(row.1)).collect();
            column.typed::<ByteArrayType>().write_batch(&values, levels, None)
        }
    };
    written.expect("memory takes it");
}

/// A file that is removed at the end of the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("xpu-top-{name}-{}.parquet", std::process::id())))
    }

    fn read(&self, bytes: &[u8]) -> Result<Vec<Row>, String> {
        fs::write(&self.0, bytes).expect("the place takes it");
        read(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_trace_is_read_whatever_the_width_of_its_numbers() {
    let place = Place::new("widths");
    let doubles = SCHEMA.replace("float", "double").replace("int32", "int64").replace("optional", "required");
    for schema in [SCHEMA, &doubles] {
        let rows = place.read(&file(schema, &OPERATIONS, "")).expect("it can be read");
        assert_eq!((rows.len(), rows[6].kind, rows[6].rank), (8, Kind::GradsReduceScatter, 1));
        assert_eq!((rows[6].start, rows[6].duration, rows[6].step), (6.0, 0.5, 7));
        let figures = WhatIf::of(&Job::of_trace(&rows).expect("it can be simulated"));
        assert!((figures.slowdown - 7.0 / 5.5).abs() < 1e-6, "{figures:?}");
    }
}

#[test]
fn a_bad_trace_file_is_refused_with_advice() {
    let place = Place::new("wrong");
    let refused = |schema: &str, null: &str, what: &str| {
        let why = place.read(&file(schema, &OPERATIONS, null)).expect_err("it is refused");
        assert!(why.contains(what), "{why}");
    };
    let without = SCHEMA.replace("optional int32 stage;", "");
    refused(&without, "", "it has no column `stage` (it has dp_rank, rank, step, optype");
    refused(
        &SCHEMA.replace("float start_ts", "int32 start_ts"),
        "",
        "column `start_ts` does not hold seconds",
    );
    refused(&SCHEMA.replace("int64 step", "double step"), "", "column `step` does not hold whole numbers");
    for column in ["duration", "rank", "optype"] {
        refused(SCHEMA, column, &format!("column `{column}` has empty cells"));
    }
    let mut altered = OPERATIONS;
    altered[3].1 = "separate-grads\u{1b}[31m";
    let why = place.read(&file(SCHEMA, &altered, "")).expect_err("it is refused");
    assert!(why.starts_with("`separate-grads\\u{1b}[31m` in column `optype` is no operation"), "{why}");
    assert_eq!(place.read(&file(SCHEMA, &[], "")), Ok(Vec::new()));

    // The names of its columns are untrusted too.
    let mut renamed = file(&SCHEMA.replace("stage", "aaaaa"), &OPERATIONS, "");
    let names: Vec<_> = renamed.windows(5).enumerate().filter(|(_, name)| *name == b"aaaaa").collect();
    let places: Vec<_> = names.into_iter().map(|(at, _)| at).collect();
    for at in places {
        renamed[at..at + 5].copy_from_slice("\u{1b}[\u{202e}".as_bytes());
    }
    let why = place.read(&renamed).expect_err("it is refused");
    assert!(why.contains("it has no column `stage` (it has dp_rank,  [ , rank, step"), "{why}");
    let damaged = damaged(&"column \u{1b}[2J\u{202e}\n");
    assert!(damaged.contains("damaged (column  [2J  ): copy it again"), "{damaged}");
}

#[test]
fn a_file_that_is_cut_or_flipped_is_read_or_refused() {
    let place = Place::new("cut");
    let whole = file(SCHEMA, &OPERATIONS, "");
    for length in 0..whole.len() {
        let why = place.read(&whole[..length]).expect_err("it is cut");
        assert!(why.contains("cut off or damaged") && why.ends_with("copy it again"), "{why}");
    }
    for at in 0..whole.len() {
        for bit in [0, 3, 7] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            // A file is read or refused, and a trace that was read is simulated or refused.
            let _ = place.read(&flipped).map(|rows| Job::of_trace(&rows).map(|job| WhatIf::of(&job)));
        }
    }
}

#[test]
fn a_page_cannot_claim_more_memory_than_a_page_takes() {
    use parquet::file::reader::ChunkReader as _;
    let place = Place::new("claim");
    // Field 1: a data page. Field 2: 2 GiB - 1 when uncompressed, or 64 MiB.
    for (claim, is_refused) in
        [([0xfe, 0xff, 0xff, 0xff, 0x0f], true), ([0x80, 0x80, 0x80, 0x40, 0x15], false)]
    {
        let mut out = fs::File::create(&place.0).expect("the place takes it");
        out.write_all(&[0x15, 0x00, 0x15]).and_then(|()| out.write_all(&claim)).expect("the place takes it");
        let pages = Pages::of(fs::File::open(&place.0).expect("it is there"));
        assert_eq!(pages.get_read(0).is_err(), is_refused);
        assert!(pages.get_bytes(0, 9).is_err() && pages.get_bytes(u64::MAX, 9).is_err());
        assert_eq!(pages.get_bytes(0, 8).map(|bytes| bytes.len()).ok(), Some(8));
    }
}

/// The public traces and their authors' published figures, in the given folder. They are at
/// <https://github.com/ByteDance-Seed/StragglerAnalysis>, in `data`.
#[test]
#[ignore = "needs the public traces"]
fn the_public_traces_give_the_published_figures() {
    let folder =
        PathBuf::from(std::env::var_os("XPU_TOP_STRAGGLER_TRACES").expect("the folder of the traces"));
    let published = |kind: &str, trace: &str, figure: &str| -> f64 {
        let text = fs::read(folder.join(format!("{kind}-{trace}.json"))).expect("it is there");
        let document: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
        document[figure].as_f64().expect("a number")
    };
    for trace in ["AR", "SE", "ST"] {
        let rows = read(&folder.join(format!("trace-{trace}.parquet"))).expect("it can be read");
        let figures = WhatIf::of(&Job::of_trace(&rows).expect("it can be simulated"));
        for (name, here, there) in [
            ("S", Some(figures.slowdown), published("result", trace, "blocking_slowdown")),
            ("M_W", figures.m_w, published("mw", trace, "Mw")),
            ("M_S", figures.m_s, published("ms", trace, "Ms")),
        ] {
            let here = here.expect("it is known");
            println!("{trace} {name}: {here:.7}, published {there:.7}");
            assert!((here / there - 1.0).abs() < 0.01, "{trace} {name}: {here}, published {there}");
        }
    }
}
