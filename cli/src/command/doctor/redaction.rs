//! Removes private data from every text: keys, tokens, the user's name and home.

use std::{env, fs, path::Path};

use xpu_net::key::Key;
use xpu_wire::endpoint::user_id;

/// Words in the name of a variable that holds a secret.
const SECRET: [&str; 8] = ["TOKEN", "KEY", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "AUTH", "COOKIE"];

/// Shortest redacted secret, in bytes. A shorter one would match everywhere.
const SHORTEST: usize = 5;

/// Prefixes of the variables that are shown.
const SHOWN: [&str; 9] =
    ["XPU_TOP_", "XPU_TIMER_", "NCCL_", "CUDA_", "SLURM_JOB", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LD_"];

#[derive(Debug)]
pub(super) struct Redaction {
    /// The redacted texts and their replacements, longest text first.
    pairs: Vec<(String, &'static str)>,
}

impl Redaction {
    /// The redaction of this user's key, secrets, home and name.
    pub(super) fn of_this_user(key_file: Option<&Path>) -> Self {
        let mut pairs = Vec::new();
        let file = key_file.map(Path::to_owned).or_else(Key::path);
        if let Some(text) = file.and_then(|path| fs::read_to_string(path).ok()) {
            pairs.extend(parts_of_key(text.trim()).map(|part| (part, "[key]")));
        }
        let secrets = env::vars().filter(|(name, _)| is_secret(name)).map(|(_, value)| (value, "[secret]"));
        pairs.extend(secrets);
        pairs.extend(env::var("HOME").map(|home| (home, "~")));
        let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok()).chain(user_name());
        pairs.extend(names.map(|name| (name, "[user]")));
        Self::new(pairs)
    }

    fn new(pairs: Vec<(String, &'static str)>) -> Self {
        // A user name is removed even if it is short.
        let worth = |(text, place): &(String, &str)| {
            text.len() >= if *place == "[user]" { 2 } else { SHORTEST } || *place == "~" && text.len() > 1
        };
        let mut pairs: Vec<_> = pairs.into_iter().filter(worth).collect();
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        pairs.dedup();
        Self { pairs }
    }

    pub(super) fn apply(&self, text: &str) -> String {
        self.pairs.iter().fold(text.to_owned(), |text, (secret, place)| text.replace(secret.as_str(), place))
    }

    /// The variables that control how a job is watched, with their values, and no others.
    pub(super) fn environment(&self) -> String {
        let shown = |name: &str| SHOWN.iter().any(|prefix| name.starts_with(prefix));
        let mut lines: Vec<_> = env::vars()
            .filter(|(name, _)| shown(name))
            .map(|(name, value)| {
                // The path of a key is no secret.
                let value = if is_secret(&name) && !value.starts_with('/') {
                    "[secret]".to_owned()
                } else {
                    self.apply(&value)
                };
                format!("{name}={value}\n")
            })
            .collect();
        lines.sort_unstable();
        lines.concat()
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET.iter().any(|word| name.contains(word)) && !name.ends_with("_FILE")
}

/// The whole key, and each half.
fn parts_of_key(text: &str) -> impl Iterator<Item = String> {
    let halves = text.split_at_checked(text.len() / 2).map(|(one, other)| [one.to_owned(), other.to_owned()]);
    [text.to_owned()].into_iter().chain(halves.into_iter().flatten())
}

fn user_name() -> Option<String> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let own = user_id().to_string();
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == own).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_secret_goes_first_and_short_words_stay() {
        let pairs = [("abcdefgh", "[key]"), ("abcd", "[secret]"), ("/home/eve", "~"), ("eve", "[user]")];
        let redaction = Redaction::new(pairs.map(|(text, place)| (text.to_owned(), place)).to_vec());
        let text = "abcdefgh in /home/eve/train.py of eve, abcd";
        assert_eq!(redaction.apply(text), "[key] in ~/train.py of [user], abcd");
    }

    #[test]
    fn variables_with_secrets_are_known_by_their_names() {
        assert!(
            ["WANDB_API_KEY", "hf_token", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"]
                .iter()
                .all(|name| is_secret(name))
        );
        assert!(!is_secret("XPU_TOP_KEY_FILE") && !is_secret("CUDA_HOME"));
    }
}
