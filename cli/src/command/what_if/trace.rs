//! A trace of operations from an untrusted Parquet file.

#[cfg(test)]
mod tests;

use std::{fs::File, panic::catch_unwind, path::Path};

use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    file::reader::{FileReader as _, SerializedFileReader},
};
use xpu_analysis::what_if::{Kind, Row};
use xpu_wire::text;

use super::pages::Pages;

/// Largest number of rows that are read: a day of a large job. A row takes 72 bytes.
const MOST_ROWS: usize = 8 << 20;

/// Rows that are read at once.
const BATCH: usize = 1 << 16;

/// The source of traces of this form.
const FORM: &str = "what-if reads traces in the form of github.com/ByteDance-Seed/StragglerAnalysis";

/// Reads the rows of a trace. Errors include the remedy.
pub(super) fn read(path: &Path) -> Result<Vec<Row>, String> {
    // The library has panicked on damaged files.
    catch_unwind(|| read_rows(path)).unwrap_or_else(|_| Err(damaged(&"the reader gave up")))
}

fn damaged(error: &dyn std::fmt::Display) -> String {
    let error = error.to_string();
    if error.contains("Disabled feature") {
        return "the compression of its columns is not supported: write it with Snappy".to_owned();
    }
    format!("the Parquet file is cut off or damaged ({}): copy it again", text::clean(&error))
}

/// A column of a row group, converted.
enum Cells {
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Kinds(Vec<Kind>),
}

fn read_rows(path: &Path) -> Result<Vec<Row>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader = SerializedFileReader::new(Pages::of(file)).map_err(|error| damaged(&error))?;
    let metadata = reader.metadata();
    let reported = metadata.file_metadata().num_rows();
    if usize::try_from(reported).map_or(true, |rows| rows > MOST_ROWS) {
        return Err(format!(
            "it has {reported} rows, and {MOST_ROWS} are read at most: write fewer steps to the file"
        ));
    }
    let columns = metadata.file_metadata().schema_descr().columns().to_vec();
    let place = |name: &str| {
        let found = columns.iter().position(|column| column.path().string() == name);
        found.ok_or_else(|| {
            let there: Vec<_> = columns.iter().take(20).map(|column| text::clean(column.name())).collect();
            format!("it has no column `{name}` (it has {}): {FORM}", there.join(", "))
        })
    };
    let whole = ["dp_rank", "stage", "rank", "step", "seq_id", "mc"];
    let whole = whole.map(|name| place(name).map(|place| (name, place)));
    let (kind, start, duration) = (place("optype")?, place("start_ts")?, place("duration")?);
    let mut rows: Vec<Row> = Vec::new();
    for number in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(number).map_err(|error| damaged(&error))?;
        let left = MOST_ROWS - rows.len();
        let read = |name: &str, place: usize| {
            let column = group.get_column_reader(place).map_err(|error| damaged(&error))?;
            cells(name, column, left)
        };
        let mut numbers = Vec::new();
        for of in &whole {
            let (name, place) = of.clone()?;
            let Cells::Whole(values) = read(name, place)? else {
                return Err(format!("column `{name}` does not hold whole numbers: {FORM}"));
            };
            numbers.push(values);
        }
        let real = |name: &str, place: usize| match read(name, place)? {
            Cells::Real(values) => Ok(values),
            Cells::Whole(_) | Cells::Kinds(_) => {
                Err(format!("column `{name}` does not hold seconds as floating-point numbers: {FORM}"))
            }
        };
        let (starts, durations) = (real("start_ts", start)?, real("duration", duration)?);
        let Cells::Kinds(kinds) = read("optype", kind)? else {
            return Err(format!("column `optype` does not hold text: {FORM}"));
        };
        let count = kinds.len();
        if numbers.iter().any(|values| values.len() != count)
            || starts.len() != count
            || durations.len() != count
        {
            return Err(damaged(&"its columns differ in length"));
        }
        rows.extend((0..count).map(|at| Row {
            replica: numbers[0][at],
            stage: numbers[1][at],
            rank: numbers[2][at],
            step: numbers[3][at],
            number: numbers[4][at],
            chunk: numbers[5][at],
            kind: kinds[at],
            start: starts[at],
            duration: durations[at],
        }));
    }
    Ok(rows)
}

fn cells(name: &str, column: ColumnReader, most: usize) -> Result<Cells, String> {
    Ok(match column {
        ColumnReader::Int32ColumnReader(column) => {
            Cells::Whole(values(name, column, most, |value| Ok(i64::from(*value)))?)
        }
        ColumnReader::Int64ColumnReader(column) => {
            Cells::Whole(values(name, column, most, |value| Ok(*value))?)
        }
        ColumnReader::FloatColumnReader(column) => {
            Cells::Real(values(name, column, most, |value| Ok(f64::from(*value)))?)
        }
        ColumnReader::DoubleColumnReader(column) => {
            Cells::Real(values(name, column, most, |value| Ok(*value))?)
        }
        ColumnReader::ByteArrayColumnReader(column) => Cells::Kinds(values(name, column, most, |value| {
            let text = String::from_utf8_lossy(value.data());
            Kind::of_trace(&text).ok_or_else(|| {
                let text: String = text.chars().take(40).flat_map(char::escape_default).collect();
                format!("`{text}` in column `{name}` is no operation that what-if simulates; docs/what-if.md lists them")
            })
        })?),
        _ => return Err(format!("column `{name}` has an unsupported type: {FORM}")),
    })
}

fn values<T: DataType, Value>(
    name: &str,
    mut column: ColumnReaderImpl<T>,
    most: usize,
    value: impl Fn(&T::T) -> Result<Value, String>,
) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    let (mut levels, mut batch) = (Vec::new(), Vec::new());
    loop {
        levels.clear();
        batch.clear();
        let read = column.read_records(BATCH, Some(&mut levels), None, &mut batch);
        let (records, ..) = read.map_err(|error| damaged(&error))?;
        if records == 0 {
            return Ok(all);
        }
        if batch.len() < records {
            return Err(format!("column `{name}` has empty cells: fill them, or leave out their rows"));
        }
        if all.len() + batch.len() > most {
            return Err(format!("it has more than {MOST_ROWS} rows: write fewer steps to the file"));
        }
        for one in &batch {
            all.push(value(one)?);
        }
    }
}
