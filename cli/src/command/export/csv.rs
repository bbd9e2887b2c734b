//! Tables as CSV (RFC 4180); unknown values are empty.

use std::io::Write;

use super::sheet::{Cell, Source, TableSchema};

pub(super) fn write(sheet: &TableSchema, source: &Source<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let names: Vec<_> = sheet.columns(source).into_iter().map(|(name, _)| name).collect();
    writeln!(out, "{}", names.join(","))?;
    sheet.rows(source, &mut |row| {
        for (place, cell) in row.iter().enumerate() {
            if place > 0 {
                out.write_all(b",")?;
            }
            match cell {
                Cell::None => {}
                Cell::Number(number) => write!(out, "{number}")?,
                Cell::Real(number) => write!(out, "{number}")?,
                Cell::Flag(is) => write!(out, "{is}")?,
                Cell::Text(text) => out.write_all(quoted(text).as_bytes())?,
            }
        }
        Ok(out.write_all(b"\n")?)
    })
}

fn quoted(text: &str) -> String {
    let quote = if is_formula(text) { "'" } else { "" };
    format!("\"{quote}{}\"", text.replace('"', "\"\""))
}

/// Whether a spreadsheet would evaluate it; names may be any text.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_no_formulas() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"] {
            assert_eq!(quoted(text), format!("\"'{text}\""));
        }
        for text in ["gemm", "", "a=b"] {
            assert_eq!(quoted(text), format!("\"{text}\""));
        }
        assert_eq!(quoted("=\"a,b\""), "\"'=\"\"a,b\"\"\"");
    }
}
