//! Turns `node[001-128,200]` into names, after counting them.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RangeError {
    #[error("`{0}` has an unmatched bracket; write node[1-8]")]
    Brackets(String),
    #[error("`{0}` is not a range; write node[1-8] or node[001-128,200]")]
    Items(String),
    #[error("the range `{from}-{to}` is descending; write {to}-{from}")]
    Down { from: String, to: String },
    #[error("more than 100000 hosts in all; write a smaller range")]
    TooMany,
}

/// A part of a name: literal, or one of several numbers.
enum Part<'a> {
    Literal(&'a str),
    Numbers(Vec<Numbers>),
}

struct Numbers {
    from: u64,
    to: u64,
    /// Numbers are padded with zeros to this width.
    width: usize,
}

impl Numbers {
    fn count(&self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }
}

/// All names of a pattern, at most `limit`.
pub(super) fn expand(pattern: &str, limit: usize) -> Result<Vec<String>, RangeError> {
    let parts = parts(pattern)?;
    let count = parts.iter().fold(1_u64, |count, part| match part {
        Part::Literal(_) => count,
        Part::Numbers(numbers) => {
            count.saturating_mul(numbers.iter().fold(0, |sum, n| n.count().saturating_add(sum)))
        }
    });
    if usize::try_from(count).map_or(true, |count| count > limit) {
        return Err(RangeError::TooMany);
    }
    let mut names = vec![String::new()];
    for part in &parts {
        names = match part {
            Part::Literal(text) => names.into_iter().map(|name| name + text).collect(),
            Part::Numbers(numbers) => names
                .iter()
                .flat_map(|name| every(numbers).map(move |number| format!("{name}{number}")))
                .collect(),
        };
    }
    Ok(names)
}

fn every(numbers: &[Numbers]) -> impl Iterator<Item = String> {
    numbers
        .iter()
        .flat_map(|&Numbers { from, to, width }| (from..=to).map(move |number| format!("{number:0width$}")))
}

fn parts(pattern: &str) -> Result<Vec<Part<'_>>, RangeError> {
    let brackets = || RangeError::Brackets(pattern.escape_default().to_string());
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some((literal, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or_else(brackets)?;
        if literal.contains(']') || inside.contains('[') {
            return Err(brackets());
        }
        parts.push(Part::Literal(literal));
        parts.push(Part::Numbers(inside.split(',').map(numbers).collect::<Result<_, _>>()?));
        rest = after;
    }
    if rest.contains(']') {
        return Err(brackets());
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

fn numbers(item: &str) -> Result<Numbers, RangeError> {
    let wrong = || RangeError::Items(item.escape_default().to_string());
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(wrong)
    };
    let item = item.trim();
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    let (from, to) = (number(first)?, number(last)?);
    if from > to {
        return Err(RangeError::Down { from: first.to_owned(), to: last.to_owned() });
    }
    // The first number's digits are the minimum width, as in Slurm.
    Ok(Numbers { from, to, width: first.len() })
}
