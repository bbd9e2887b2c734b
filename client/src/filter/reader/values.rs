//! The values that a field is compared with: numbers with units, figures of the job, words.

use super::{Reader, Relation, fault};
use crate::filter::{
    Fault,
    expression::{Expression, FieldRef, Limit, Statistic},
    field::{Field, Units},
};

impl<'t> Reader<'t> {
    /// `3`, `0-7,16`, `median`.
    pub(super) fn ranges(
        &mut self,
        field: &'static Field,
        units: Units,
    ) -> Result<Vec<(Limit, Limit)>, Fault> {
        let mut ranges = Vec::new();
        loop {
            let from = self.limit(field, units)?;
            let to = if self.rest().starts_with('-') {
                self.at += 1;
                self.limit(field, units)?
            } else {
                from
            };
            ranges.push((from, to));
            if !self.take(",") {
                return Ok(ranges);
            }
        }
    }

    /// `64`, `1.2s`, `0.9*median`, `median*0.9`, `p99`.
    pub(super) fn limit(&mut self, field: &'static Field, units: Units) -> Result<Limit, Fault> {
        self.skip_blanks();
        let from = self.at;
        let unit = units.first().map_or_else(String::new, |(unit, _)| format!(" in {unit}"));
        let expected =
            format!("expected a number{unit}, or one times median, mean, min, max, p10, p90 or p99");
        if let Some(statistic) = Statistic::named(self.letters()) {
            self.at += self.letters().len();
            let factor = if self.takes_star() { self.number(&expected)? } else { 1.0 };
            return Ok(Limit { factor, of: Some(statistic) });
        }
        if !self.letters().is_empty() {
            return fault(from, format!("{}: unknown value {}: {expected}", field.name(), self.letters()));
        }
        let number = self.number(&expected)?;
        if self.takes_star() {
            self.skip_blanks();
            let name = self.letters();
            let Some(statistic) = Statistic::named(name) else {
                return self.fault("expected median, mean, min, max, p10, p90 or p99");
            };
            self.at += name.len();
            return Ok(Limit { factor: number, of: Some(statistic) });
        }
        let after = self.at;
        self.skip_blanks();
        let rest = self.rest();
        let name =
            &rest[..rest.find(|c: char| !(c.is_alphabetic() || "%°/".contains(c))).unwrap_or(rest.len())];
        if let Some((name, worth)) = units.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            self.at += name.len();
            return Ok(Limit { factor: number * worth, of: None });
        }
        if self.at == after && !name.is_empty() {
            let known: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
            let known = if known.is_empty() {
                "it has no unit".to_owned()
            } else {
                format!("write {}", known.join(", "))
            };
            return self.fault(format!("{name} is not a unit of {}: {known}", field.name()));
        }
        self.at = after;
        Ok(Limit { factor: number, of: None })
    }

    fn takes_star(&mut self) -> bool {
        let before = self.at;
        self.skip_blanks();
        let star = self.take("*");
        if !star {
            self.at = before;
        }
        star
    }

    /// A name of letters, digits and underlines that begins with a letter.
    fn letters(&self) -> &'t str {
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return "";
        }
        &rest[..rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())]
    }

    fn number(&mut self, expected: &str) -> Result<f64, Fault> {
        self.skip_blanks();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = &rest[sign..];
        let length = digits.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(digits.len());
        let Ok(number) = rest[..sign + length].parse::<f64>() else { return self.fault(expected) };
        self.at += sign + length;
        Ok(number)
    }

    pub(super) fn word_test(
        &mut self,
        field: &'static Field,
        only: Option<&'static [(&'static str, &'static str)]>,
        place: usize,
        relation: Relation,
    ) -> Result<Expression, Fault> {
        let whole = match relation {
            Relation::Same | Relation::Other => true,
            Relation::Like | Relation::Unlike => false,
            _ => return fault(place, format!("{} is a word: expected = != ~ or !~", field.name())),
        };
        let mut words = Vec::new();
        loop {
            self.skip_blanks();
            let from = self.at;
            let word = if self.rest().starts_with('"') { self.quoted()? } else { self.value() };
            if word.is_empty() {
                return fault(from, format!("expected a value for {}", field.name()));
            }
            words.push(match only.filter(|_| whole) {
                None => word,
                Some(only) => known(only, &word).ok_or_else(|| {
                    let names: Vec<_> = only.iter().map(|(name, _)| *name).collect();
                    let what = format!("unknown {} {word}: {}", field.name(), names.join(", "));
                    Fault { at: from, what }
                })?,
            });
            if !self.take(",") {
                break;
            }
        }
        let test = Expression::Word { field: FieldRef(field), words, whole };
        Ok(if relation.is_negative() { Expression::Not(Box::new(test)) } else { test })
    }

    /// The word up to a blank or an operator. A star belongs to the word.
    pub(super) fn value(&mut self) -> String {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || "&|(),\"".contains(c);
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word.to_owned()
    }

    pub(super) fn quoted(&mut self) -> Result<String, Fault> {
        let within = &self.rest()[1..];
        let Some(end) = within.find('"') else { return self.fault("this \" is not closed") };
        self.at += end + 2;
        Ok(within[..end].to_owned())
    }
}

/// The name of a field value, which may also be written as the screen shows it.
fn known(only: &[(&str, &str)], word: &str) -> Option<String> {
    let is = |known: &str| known.eq_ignore_ascii_case(word);
    only.iter().find(|(name, shown)| is(name) || is(shown)).map(|(name, _)| (*name).to_owned())
}
