//! The price of lost GPU-hours, if one is set.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{Cost, EndedFinding, Finding};

/// Sets the price of a GPU-hour if the command line does not.
pub const PRICE: &str = "XPU_TOP_GPU_HOUR_PRICE";

/// The price of one GPU hour: `2.5`, `2.5 EUR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    per_hour: f64,
    currency: Option<Currency>,
}

/// Three letters, as in ISO 4217.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Currency([u8; 3]);

/// A sum of money, in whole cents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Money {
    pub amount: f64,
    currency: Option<Currency>,
}

impl Price {
    pub fn is_free(self) -> bool {
        self.per_hour == 0.0
    }

    pub fn of(self, gpu_hours: f64) -> Money {
        Money { amount: self.per_hour * gpu_hours, currency: self.currency }
    }

    /// Adds to each ended finding the price of its lost GPU-hours.
    pub fn apply_to_ended(self, ended: &mut [EndedFinding]) {
        for finding in ended {
            finding.money = finding.gpu_hours.map(|gpu_hours| self.of(gpu_hours));
        }
    }

    /// Adds to each finding the price of its lost GPU-hours.
    pub fn apply(self, findings: &mut [Finding]) {
        for Cost { gpu_hours, money, .. } in findings.iter_mut().filter_map(|finding| finding.cost.as_mut()) {
            *money = Some(self.of(*gpu_hours));
        }
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a price is a number, optionally with a currency: 2.5, `2.5 EUR`");
        let mut words = text.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        let per_hour = number.filter(|price: &f64| price.is_finite() && *price >= 0.0).ok_or_else(wrong)?;
        let currency = words.next().map(|word| Currency::of(word).ok_or_else(wrong)).transpose()?;
        if words.next().is_some() { Err(wrong()) } else { Ok(Self { per_hour, currency }) }
    }
}

impl Currency {
    fn of(word: &str) -> Option<Self> {
        let letters: [u8; 3] = word.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_alphabetic).then(|| Self(letters.map(|c| c.to_ascii_uppercase())))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::ops::Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { amount: self.amount + other.amount, currency: self.currency }
    }
}

/// Writes the price in its input format: `2.5 EUR`
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.per_hour)?;
        self.currency.map_or(Ok(()), |currency| write!(f, " {}", currency.text()))
    }
}

/// `1.23 EUR`
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.amount)?;
        self.currency.map_or(Ok(()), |currency| write!(f, " {}", currency.text()))
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("money", &((self.amount * 100.0).round() / 100.0))?;
        if let Some(currency) = &self.currency {
            map.serialize_entry("currency", currency.text())?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_a_number_and_a_currency() {
        let shown = |text: &str| text.parse::<Price>().map(|price| price.of(10.0).to_string());
        assert_eq!(shown("2.5"), Ok("25.00".to_owned()));
        assert_eq!(shown(" 2.5  eur "), Ok("25.00 EUR".to_owned()));
        assert_eq!(shown("0"), Ok("0.00".to_owned()));
        let written = "2.5 eur".parse::<Price>().map(|price| price.to_string());
        assert_eq!(written, Ok("2.5 EUR".to_owned()));
        for wrong in ["", "EUR", "-1", "nan", "inf", "2.5 euros", "2.5 EUR a GPU", "2,5"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
