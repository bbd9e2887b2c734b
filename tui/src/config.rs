//! The user's settings: keys, and the screen's initial state. Errors in the file are reported with their
//! line.
#![forbid(unsafe_code)]

mod choices;
mod sample;
mod state;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

pub use sample::sample;
pub use state::State;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use xpu_client::{filter::Filter, nearest::nearest};
use xpu_model::{duration::WhatIfEvery, finding::Price};

use crate::{
    app::{Metric, Sort},
    key::Key,
    keymap::{Keymap, Scope},
    look::RequestedLook,
    page::Page,
    palette::Theme,
    prompt_command,
};

/// The variable that names a file instead of the usual one.
pub const VARIABLE: &str = "XPU_TOP_CONFIG";

/// Largest file; a larger one is no settings file.
const LARGEST: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    pub page: Option<Page>,
    pub metric: Option<Metric>,
    pub sort: Option<Sort>,
    pub filter: Option<Filter>,
    pub mouse: bool,
    pub look: RequestedLook,
    /// Whether the next screen begins where this one ended.
    pub keep_state: bool,
    pub price: Option<Price>,
    /// How often a collector that `xpu-top run` starts estimates what stragglers cost.
    pub what_if_every: WhatIfEvery,
    pub keymap: Keymap,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            page: None,
            metric: None,
            sort: None,
            filter: None,
            mouse: true,
            look: RequestedLook::default(),
            keep_state: false,
            price: None,
            what_if_every: WhatIfEvery::default(),
            keymap: Keymap::default(),
        }
    }
}

/// The error and its place: `config.toml:3: ...`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: usize,
    pub what: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {error}", path = path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path}:{line}: {what}", path = path.display())]
    Wrong { path: PathBuf, line: usize, what: String },
}

/// A setting with one value.
struct Setting {
    name: &'static str,
    /// The comment above it in the sample; `{pages}` stands for the names of the pages.
    means: &'static str,
    /// Its value in the sample.
    usual: &'static str,
    read: fn(&DeValue<'_>, &mut Config) -> Result<(), String>,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "page",
        means: "The view it opens with: {pages}.",
        usual: "\"overview\"",
        read: |value, config| {
            config.page = Some(one_of(text(value)?, "view", Page::first())?);
            Ok(())
        },
    },
    Setting {
        name: "metric",
        means: "The quantity the heatmaps open with, as in `:metric`.",
        usual: "\"tflops\"",
        read: |value, config| {
            let all = Metric::ALL.map(|metric| (metric.word(), metric));
            let word = text(value)?;
            config.metric =
                Some(Metric::called(word).map_or_else(|| one_of(word, "quantity", all.into_iter()), Ok)?);
            Ok(())
        },
    },
    Setting {
        name: "sort",
        means: "The order of the ranks, as after `:sort`: \"skew\", \"tflops reversed\".",
        usual: "\"findings\"",
        read: |value, config| {
            config.sort = Some(prompt_command::sort(text(value)?).map_err(|fault| fault.what)?);
            Ok(())
        },
    },
    Setting {
        name: "filter",
        means: "Only these ranks, as after `/`; \"\" lists all.",
        usual: "\"\"",
        read: |value, config| {
            let text = Some(text(value)?).filter(|text| !text.trim().is_empty());
            config.filter = text.map(Filter::read).transpose().map_err(|fault| fault.what)?;
            Ok(())
        },
    },
    Setting {
        name: "theme",
        means: "The colours: dark, cividis, light, high-contrast, mono; default: asks the terminal for its background.",
        usual: "\"dark\"",
        read: |value, config| {
            let all = Theme::ALL.map(|theme| (theme.name(), theme));
            config.look.theme = Some(one_of(text(value)?, "theme", all.into_iter())?);
            Ok(())
        },
    },
    Setting {
        name: "ascii",
        means: "Whether only plain ASCII is drawn; default: by the locale.",
        usual: "false",
        read: |value, config| {
            config.look.ascii = Some(boolean(value)?);
            Ok(())
        },
    },
    Setting {
        name: "reduced_motion",
        means: "Whether the screen updates at most once a second.",
        usual: "false",
        read: |value, config| {
            config.look.reduced_motion = Some(boolean(value)?);
            Ok(())
        },
    },
    Setting {
        name: "mouse",
        means: "Whether to capture the mouse; most terminals then select text with Shift.",
        usual: "true",
        read: |value, config| {
            config.mouse = boolean(value)?;
            Ok(())
        },
    },
    Setting {
        name: "keep_state",
        means: "Whether xpu-top starts with the view, quantity, order and filter of the last run.",
        usual: "false",
        read: |value, config| {
            config.keep_state = boolean(value)?;
            Ok(())
        },
    },
    Setting {
        name: "gpu_hour_price",
        means: "Price of a GPU-hour, \"2.50 EUR\": lost GPU-hours are then also reported in money.",
        usual: "\"0\"",
        read: |value, config| {
            config.price = Some(price(value)?).filter(|price| !price.is_free());
            Ok(())
        },
    },
    Setting {
        name: "what_if_every",
        means: "How often the collector of `xpu-top run` estimates what stragglers cost: \"5m\".",
        usual: "\"0\"",
        read: |value, config| {
            config.what_if_every = text(value)?.parse()?;
            Ok(())
        },
    },
];

impl Config {
    /// The file named by `named` or the variable, else the usual one if it exists.
    pub fn find(named: Option<&Path>) -> Result<Self, ConfigError> {
        let asked = named.is_some() || from_variable().is_some();
        match path(named).filter(|path| asked || path.exists()) {
            Some(path) => Self::load(&path),
            None => Ok(Self::default()),
        }
    }

    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            read_small(path).map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        Self::read(&text).map_err(|Fault { line, what }| ConfigError::Wrong {
            path: path.to_owned(),
            line,
            what,
        })
    }

    pub fn read(file: &str) -> Result<Self, Fault> {
        let line = |at: usize| 1 + file.get(..at).unwrap_or(file).matches('\n').count();
        let table = DeTable::parse(file).map_err(|error| Fault {
            line: line(error.span().map_or(0, |span| span.start)),
            what: error.message().to_owned(),
        })?;
        let mut config = Self::default();
        let mut bound = Vec::new();
        for (name, value) in table.get_ref() {
            let at = name.span().start;
            let fault_here = |what: String| Fault { line: line(at), what };
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name.get_ref().as_ref()) {
                (setting.read)(value.get_ref(), &mut config)
                    .map_err(|what| fault_here(format!("{}: {what}", setting.name)))?;
            } else if name.get_ref().as_ref() == "keys" {
                let DeValue::Table(keys) = value.get_ref() else {
                    return Err(fault_here("keys is a table: write [keys]".to_owned()));
                };
                bind(&mut config.keymap, None, keys, &mut bound)
                    .map_err(|(at, what)| Fault { line: line(at), what })?;
            } else {
                let names = SETTINGS.iter().map(|setting| setting.name).chain(["keys"]);
                return Err(fault_here(unknown("setting", name.get_ref(), names)));
            }
        }
        if let Some(clash) = config.keymap.clash() {
            // The binding that the file contains.
            let own =
                bound.iter().rev().find(|(name, _)| [clash.names.0, clash.names.1].contains(&name.as_str()));
            return Err(Fault { line: own.map_or(1, |(_, at)| line(*at)), what: clash.to_string() });
        }
        Ok(config)
    }
}

/// Binds the keys of a table: `pause = "p"`; `[keys.stacks]` for one view.
fn bind(
    keymap: &mut Keymap,
    scope: Option<Scope>,
    table: &DeTable<'_>,
    bound: &mut Vec<(String, usize)>,
) -> Result<(), (usize, String)> {
    for (name, value) in table {
        let at = name.span().start;
        let name = name.get_ref().as_ref();
        if let DeValue::Table(within) = value.get_ref() {
            let known = Scope::all().find(|known| scope.is_none() && known.name() == name);
            let Some(known) = known else {
                return Err((at, unknown("view", name, Scope::all().map(Scope::name))));
            };
            bind(keymap, Some(known), within, bound)?;
            continue;
        }
        let keys = keys(value).map_err(|(at, what)| (at, format!("{name}: {what}")))?;
        if !keymap.bind(scope, name, &keys) {
            let names = crate::keymap::BINDINGS.iter().filter_map(|binding| binding.action.name());
            let there = scope.map_or_else(String::new, |scope| format!(" in {}", scope.name()));
            return Err((at, unknown("action", name, names) + &there));
        }
        bound.push((name.to_owned(), at));
    }
    Ok(())
}

/// Reads one key, or several.
fn keys(value: &Spanned<DeValue<'_>>) -> Result<Vec<Key>, (usize, String)> {
    let one = |value: &Spanned<DeValue<'_>>| {
        let at = value.span().start;
        text(value.get_ref()).and_then(str::parse).map_err(|what| (at, what))
    };
    match value.get_ref() {
        DeValue::Array(all) => all.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| "expected text in quotes".to_owned())
}

fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "expected true or false".to_owned())
}

/// Reads a number, or text with a currency.
fn price(value: &DeValue<'_>) -> Result<Price, String> {
    match value {
        DeValue::Integer(number) => number.as_str().parse(),
        DeValue::Float(number) => number.as_str().parse(),
        _ => value.as_str().ok_or_else(|| "expected a number, or text in quotes".to_owned())?.parse(),
    }
}

fn one_of<T>(
    text: &str,
    kind: &str,
    mut all: impl Iterator<Item = (&'static str, T)> + Clone,
) -> Result<T, String> {
    let names: Vec<_> = all.clone().map(|(name, _)| name).collect();
    all.find(|(name, _)| *name == text)
        .map(|(_, one)| one)
        .ok_or_else(|| format!("unknown {kind} `{text}`: write one of {}", names.join(", ")))
}

fn unknown<'a>(kind: &str, name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(near) => format!("unknown {kind} {name}: did you mean {near}?"),
        None => format!("unknown {kind} {name}: `xpu-top config --print` lists all"),
    }
}

fn from_variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The file that is read: the given one, that of the variable, or `~/.config/xpu-top/config.toml`.
pub fn path(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("config.toml"));
    named.map(Path::to_owned).or_else(from_variable).or_else(usual)
}

/// The user's folder for xpu-top's files of this kind. A relative path is ignored, as the XDG specification
/// demands.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home));
    set.or_else(home).map(|path| path.join("xpu-top"))
}

fn read_small(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

#[cfg(test)]
mod tests;
