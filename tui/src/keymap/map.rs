//! The active keys: those of the table, or the user's own.

use std::fmt;

use crossterm::event::KeyCode;

use super::{Anywhere, BINDINGS, Binding, List, Picker, Prompt, Scope, Time};
use crate::{
    action::{self, Action},
    key::Key,
    prompt::Edit,
};

/// The keys of each of [`BINDINGS`], in its order.
#[derive(Clone, Debug)]
pub struct Keymap {
    keys: Vec<Vec<Key>>,
}

impl Default for Keymap {
    fn default() -> Self {
        Self { keys: BINDINGS.iter().map(|binding| binding.keys.to_vec()).collect() }
    }
}

/// Two actions on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    pub key: Key,
    /// Names of the actions.
    pub names: (&'static str, &'static str),
    pub scope: Scope,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = self.names;
        write!(
            f,
            "{} is bound to both {one} and {other} ({}): give one of them another key",
            self.key,
            self.scope.title()
        )
    }
}

impl Keymap {
    /// All bindings with their keys.
    pub fn all(&self) -> impl Iterator<Item = (&'static Binding, &[Key])> {
        BINDINGS.iter().zip(self.keys.iter().map(Vec::as_slice))
    }

    /// The active bindings: those of the scope, and those of all scopes.
    pub fn in_force(&self, scope: Scope) -> impl Iterator<Item = (&'static Binding, &[Key])> {
        self.all().filter(move |(binding, _)| match binding.scope {
            List => scope.is_list(),
            // In these scopes, other keys are letters: those of the line being typed, or a letter to search
            // for.
            Anywhere => !matches!(scope, Prompt | Picker),
            Time => scope.has_time(),
            other => other == scope,
        })
    }

    /// The key of this action in a scope, for sentences: the first key that is no digit, else the digit.
    /// Without a key, the action's name in quotes.
    pub fn key(&self, scope: Scope, name: &str) -> String {
        let mut named = self.in_force(scope).filter(|(binding, _)| binding.action.name() == Some(name));
        let is_digit = |key: &&Key| matches!(key.code, KeyCode::Char('0'..='9'));
        let key = named.find_map(|(_, keys)| keys.iter().find(|key| !is_digit(key)).or_else(|| keys.first()));
        key.map_or_else(|| format!("\u{201c}{name}\u{201d}"), ToString::to_string)
    }

    /// The action of the key now.
    pub fn lookup(&self, key: Key, scope: Scope) -> Option<Action> {
        let bound = self.in_force(scope).find(|(_, keys)| keys.contains(&key));
        bound.map(|(binding, _)| binding.action.clone()).or_else(|| match key.code {
            // This key always quits the program, whatever else is bound.
            KeyCode::Char('c') if key.control => Some(Action::Quit),
            KeyCode::Char('z') if key.control => Some(Action::Suspend),
            KeyCode::Char(c) if scope == Prompt && !key.control => Some(Action::Edit(Edit::Type(c))),
            KeyCode::Char(c) if scope == Picker && !key.control => Some(Action::Jump(c)),
            _ => None,
        })
    }

    /// Binds these keys to every action of this name, in one scope or in all. `false` if there is no such
    /// action.
    pub fn bind(&mut self, scope: Option<Scope>, name: &str, keys: &[Key]) -> bool {
        let name = action::present(name);
        let mut found = false;
        for (binding, own) in BINDINGS.iter().zip(&mut self.keys) {
            let is_bound =
                binding.action.name() == Some(name) && scope.is_none_or(|scope| scope == binding.scope);
            if is_bound {
                *own = keys.to_vec();
                found = true;
            }
        }
        found
    }

    /// The first key that would have two actions in one scope.
    pub fn clash(&self) -> Option<Clash> {
        Scope::all().find_map(|scope| {
            let bound: Vec<_> = self
                .in_force(scope)
                .flat_map(|(binding, keys)| keys.iter().map(move |key| (*key, binding)))
                .collect();
            bound.iter().enumerate().find_map(|(index, (key, binding))| {
                let name = binding.action.name()?;
                let other =
                    |(known, other): &&(Key, &Binding)| known == key && other.action.name() != Some(name);
                let (_, other) = bound[..index].iter().find(other)?;
                Some(Clash { key: *key, names: (other.action.name()?, name), scope })
            })
        })
    }
}
