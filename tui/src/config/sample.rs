//! A complete file with all defaults: every setting, every key.

use std::fmt::Write as _;

use super::SETTINGS;
use crate::{
    keymap::{BINDINGS, Scope},
    page::Page,
};

pub fn sample() -> String {
    let mut text = String::from(
        "# Settings of xpu-top: ~/.config/xpu-top/config.toml, --config FILE or XPU_TOP_CONFIG.\n\
         # All values are defaults; remove the # of a line to change it.\n",
    );
    let pages: Vec<_> = Page::first().map(|(name, _)| name).collect();
    for setting in SETTINGS {
        let means = setting.means.replace("{pages}", &pages.join(", "));
        let _ = write!(text, "\n# {means}\n#{} = {}\n", setting.name, setting.usual);
    }
    text.push_str(
        "\n# Keys of each action: a letter, Space, Enter, Up, PgDn, F5, Ctrl-w, Shift-Left, or several in [ ]; [] for none.\n\
         # Under [keys] an action has these keys in every view where it has any; under [keys.VIEW] in that view only.\n#[keys]\n",
    );
    for scope in Scope::all() {
        let bindings: Vec<_> = BINDINGS.iter().filter(|binding| binding.scope == scope).collect();
        if bindings.is_empty() {
            continue;
        }
        let _ = write!(text, "\n# {}\n#[keys.{}]\n", scope.title(), scope.name());
        for binding in bindings {
            let Some(name) = binding.action.name() else { continue };
            let keys: Vec<_> = binding.keys.iter().map(|key| quoted(&key.written())).collect();
            let _ = writeln!(text, "#{name} = [{}]  # {}", keys.join(", "), binding.help);
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains(['"', '\\']) { format!("'{text}'") } else { format!("\"{text}\"") }
}
