//! A table with a name, a figure and a limit in each row.

use std::fmt::Write as _;

#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    figure: f64,
    unit: &'static str,
    budget: Option<f64>,
    note: String,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, figure: f64, unit: &'static str) -> Self {
        Self { what: what.into(), figure, unit, budget: None, note: String::new() }
    }

    pub(crate) fn at_most(mut self, budget: f64) -> Self {
        self.budget = Some(budget);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// Prints each row at once, because some take a while.
#[derive(Debug)]
pub(crate) struct Table {
    over: usize,
}

impl Table {
    /// Begins with the name of the machine.
    pub(crate) fn of(machine: &str) -> Self {
        println!("{machine}\n");
        println!("{:<58} {:>10} {:>16}", "what", "here", "budget");
        Self { over: 0 }
    }

    pub(crate) fn row(&mut self, row: Row) {
        let over = row.budget.is_some_and(|budget| row.figure > budget);
        self.over += usize::from(over);
        let mut line = format!("{:<58} {:>10}", row.what, digits(row.figure));
        let budget =
            row.budget.map_or_else(String::new, |budget| format!("<= {} {}", digits(budget), row.unit));
        let _ = write!(line, " {:>16}", if budget.is_empty() { row.unit.to_owned() } else { budget });
        if over {
            line += "  OVER";
        }
        if !row.note.is_empty() {
            let _ = write!(line, "  {}", row.note);
        }
        println!("{line}");
    }

    pub(crate) fn foot(&self) {
        match self.over {
            0 => println!("\nAll within budget."),
            over => println!("\n{over} over budget."),
        }
    }
}

/// Three significant digits.
fn digits(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.1 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}
