//! Tables as Parquet.

use std::{fmt::Write as _, io::Write, mem::take, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};

use super::sheet::{Cell, Kind, Source, TableSchema};

/// Rows that are kept and then written together.
const GROUP: usize = 1 << 16;

pub(super) fn write(sheet: &TableSchema, source: &Source<'_>, out: impl Write + Send) -> anyhow::Result<()> {
    let columns = sheet.columns(source);
    let mut schema = format!("message {} {{", sheet.name);
    for (name, kind) in &columns {
        let kind = match kind {
            Kind::Number => format!("int64 {name}"),
            Kind::Real => format!("double {name}"),
            Kind::Flag => format!("boolean {name}"),
            Kind::Text => format!("binary {name} (UTF8)"),
        };
        // Writing to a String cannot fail.
        let _ = write!(schema, " optional {kind};");
    }
    let schema = Arc::new(parse_message_type(&(schema + " }"))?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(out, schema, properties)?;
    let mut held: Vec<Vec<Cell>> = vec![Vec::new(); columns.len()];
    sheet.rows(source, &mut |row| {
        for (column, cell) in held.iter_mut().zip(row) {
            column.push(cell);
        }
        if held.first().is_some_and(|column| column.len() >= GROUP) {
            group(&mut writer, &columns, &mut held)
        } else {
            Ok(())
        }
    })?;
    if held.first().is_some_and(|column| !column.is_empty()) {
        group(&mut writer, &columns, &mut held)?;
    }
    writer.close()?;
    Ok(())
}

fn group(
    writer: &mut SerializedFileWriter<impl Write + Send>,
    columns: &[(String, Kind)],
    held: &mut [Vec<Cell>],
) -> anyhow::Result<()> {
    let mut group = writer.next_row_group()?;
    for ((_, kind), cells) in columns.iter().zip(held) {
        let Some(mut column) = group.next_column()? else { break };
        let cells = take(cells);
        let into = &mut column;
        match kind {
            Kind::Number => put::<Int64Type>(into, &cells, |cell| match cell {
                Cell::Number(number) => Some(*number),
                _ => None,
            }),
            Kind::Real => put::<DoubleType>(into, &cells, |cell| match cell {
                Cell::Real(number) => Some(*number),
                _ => None,
            }),
            Kind::Flag => put::<BoolType>(into, &cells, |cell| match cell {
                Cell::Flag(is) => Some(*is),
                _ => None,
            }),
            Kind::Text => put::<ByteArrayType>(into, &cells, |cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                _ => None,
            }),
        }?;
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Unknown values are left out and marked by the levels.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    cells: &[Cell],
    value: impl Fn(&Cell) -> Option<T::T>,
) -> anyhow::Result<()> {
    let all: Vec<_> = cells.iter().map(value).collect();
    let levels: Vec<_> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<_> = all.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}
