//! Parses a filter: gives the expression, or the position of the error and what was expected.
//!
//! ```text
//! filter = word | any
//! any    = all { ("|" | "or") all }
//! all    = one { ("&" | "and") one }
//! one    = ("!" | "not") one | "(" any ")" | test
//! test   = field relation values | ranks
//! ```

mod values;

use super::{
    Fault, LONGEST,
    expression::{Expression, FieldRef, NumberTest},
    field::{FIELDS, Field, Kind, Units},
};
use crate::nearest::nearest;

/// Largest depth of nested brackets.
const DEEPEST: usize = 32;

const RELATIONS: [(&str, Relation); 11] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Same),
    ("!=", Relation::Other),
    ("<>", Relation::Other),
    ("!~", Relation::Unlike),
    ("<", Relation::Below),
    (">", Relation::Above),
    ("=", Relation::Same),
    ("~", Relation::Like),
    (":", Relation::Like),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Below,
    AtMost,
    Above,
    AtLeast,
    Same,
    Other,
    Like,
    Unlike,
}

impl Relation {
    fn is_negative(self) -> bool {
        matches!(self, Self::Other | Self::Unlike)
    }
}

pub(super) fn read(text: &str) -> Result<Expression, Fault> {
    if text.len() > LONGEST {
        return Err(Fault { at: 0, what: format!("a filter has at most {LONGEST} characters") });
    }
    let mut reader = Reader { text, at: 0, deep: 0 };
    if let Some(word) = reader.word_alone()? {
        return Ok(host(vec![word]));
    }
    let expression = reader.any()?;
    reader.skip_blanks();
    if reader.at < text.len() {
        let what = if reader.rest().starts_with(')') {
            "no `(` is open"
        } else {
            "expected & or | before the next test"
        };
        return reader.fault(what);
    }
    Ok(expression)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    deep: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn fault<T>(&self, what: impl Into<String>) -> Result<T, Fault> {
        fault(self.at, what)
    }

    fn take(&mut self, sign: &str) -> bool {
        let there = self.rest().starts_with(sign);
        self.at += if there { sign.len() } else { 0 };
        there
    }

    /// Takes an operator in any of its three forms: `&`, `&&` or `and`.
    fn takes_joint(&mut self, sign: &str, word: &str) -> bool {
        self.skip_blanks();
        if self.take(sign) {
            // The sign may be doubled, as in most languages.
            let _ = self.take(sign);
            return true;
        }
        let is_word = self.peek_word().eq_ignore_ascii_case(word);
        self.at += if is_word { word.len() } else { 0 };
        is_word
    }

    fn peek_word(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find(is_sign).unwrap_or(rest.len())]
    }

    fn any(&mut self) -> Result<Expression, Fault> {
        let mut all = vec![self.all()?];
        while self.takes_joint("|", "or") {
            all.push(self.all()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::Any(all) })
    }

    fn all(&mut self) -> Result<Expression, Fault> {
        let mut all = vec![self.one()?];
        while self.takes_joint("&", "and") {
            all.push(self.one()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::All(all) })
    }

    fn one(&mut self) -> Result<Expression, Fault> {
        self.skip_blanks();
        let open = self.at;
        let negated = self.rest().starts_with('!') || self.peek_word().eq_ignore_ascii_case("not");
        if !negated && !self.rest().starts_with('(') {
            return self.test();
        }
        if self.deep == DEEPEST {
            return self.fault(format!("brackets may nest {DEEPEST} deep"));
        }
        self.deep += 1;
        let expression = if negated {
            self.at += if self.rest().starts_with('!') { 1 } else { "not".len() };
            Expression::Not(Box::new(self.one()?))
        } else {
            self.at += 1;
            let within = self.any()?;
            self.skip_blanks();
            if !self.take(")") {
                return if self.at < self.text.len() {
                    self.fault("expected &, | or `)`")
                } else {
                    fault(open, "this `(` is not closed")
                };
            }
            within
        };
        self.deep -= 1;
        Ok(expression)
    }

    /// A single word is a part of a host's name, unless it is a number or begins a field's name.
    fn word_alone(&mut self) -> Result<Option<String>, Fault> {
        self.skip_blanks();
        let from = self.at;
        let word = if self.rest().starts_with('"') { self.quoted()? } else { self.value() };
        let alone = self.rest().trim().is_empty() && !word.is_empty();
        let otherwise = word.contains(is_sign) || is_ranks(&word) || field_beginning(&word).is_some();
        let quoted = self.text[from..].starts_with('"');
        if alone && (quoted || !otherwise) {
            return Ok(Some(word));
        }
        self.at = 0;
        Ok(None)
    }

    fn test(&mut self) -> Result<Expression, Fault> {
        let from = self.at;
        let word = self.peek_word();
        if word.is_empty() {
            return self.fault("expected a field (rank, host, state, tflops, ...) or a rank's number");
        }
        self.at += word.len();
        let after = self.at;
        self.skip_blanks();
        let relation = RELATIONS.into_iter().find(|(sign, _)| self.rest().starts_with(sign));
        let Some((sign, relation)) = relation else {
            self.at = after;
            return self.without_relation(from, word);
        };
        let Some(field) = Field::named(word) else {
            let names = FIELDS.iter().flat_map(|field| field.names).copied();
            return fault(from, format!("unknown field {word}: {}", did_you_mean(word, names)));
        };
        let place = self.at;
        self.at += sign.len();
        match field.kind {
            Kind::Number { units, .. } => self.number_test(field, units, place, relation),
            Kind::Word { only, .. } => self.word_test(field, only, place, relation),
        }
    }

    /// `37`, `0-7,16` are ranks.
    fn without_relation(&mut self, from: usize, word: &str) -> Result<Expression, Fault> {
        if is_ranks(word) {
            self.at = from;
            let ranges = self.ranges(&FIELDS[0], &[])?;
            return Ok(Expression::Number { field: FieldRef(&FIELDS[0]), test: NumberTest::Among(ranges) });
        }
        if let Some(name) = field_beginning(word) {
            let kind = Field::named(name).map(|field| field.kind);
            let relations =
                if matches!(kind, Some(Kind::Word { .. })) { "= != or ~" } else { "< <= > >= = or !=" };
            return self.fault(format!("expected {relations} after {name}"));
        }
        let names = FIELDS.iter().flat_map(|field| field.names).copied();
        match nearest(word, names) {
            Some(name) => fault(from, format!("unknown field {word}: did you mean {name}?")),
            None => fault(from, format!("unknown field {word}; of a host's name write host~{word}")),
        }
    }

    fn number_test(
        &mut self,
        field: &'static Field,
        units: Units,
        place: usize,
        relation: Relation,
    ) -> Result<Expression, Fault> {
        let name = field.name();
        let field_ref = FieldRef(field);
        let test = match relation {
            Relation::Like | Relation::Unlike => {
                return fault(place, format!("{name} is a number: expected < <= > >= = or !="));
            }
            Relation::Same | Relation::Other => NumberTest::Among(self.ranges(field, units)?),
            Relation::Below => NumberTest::Below(self.limit(field, units)?),
            Relation::AtMost => NumberTest::AtMost(self.limit(field, units)?),
            Relation::Above => NumberTest::Above(self.limit(field, units)?),
            Relation::AtLeast => NumberTest::AtLeast(self.limit(field, units)?),
        };
        let test = Expression::Number { field: field_ref, test };
        Ok(if relation.is_negative() { Expression::Not(Box::new(test)) } else { test })
    }
}

/// `37`, `0-7`
fn is_ranks(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || "-,".contains(c))
}

/// The field whose name begins with this text.
fn field_beginning(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    FIELDS.iter().flat_map(|field| field.names).copied().find(|name| name.starts_with(&word))
}

fn is_sign(c: char) -> bool {
    c.is_whitespace() || "&|!()<>=~:,\"".contains(c)
}

fn host(words: Vec<String>) -> Expression {
    let field = Field::named("host").unwrap_or(&FIELDS[1]);
    Expression::Word { field: FieldRef(field), words, whole: false }
}

fn fault<T>(at: usize, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, what: what.into() })
}

fn did_you_mean<'a>(word: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, names) {
        Some(name) => format!("did you mean {name}?"),
        None => "see ? for all of them".to_owned(),
    }
}
