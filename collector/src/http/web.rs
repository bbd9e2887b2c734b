//! Serves the web page: files of `collector/web`, which are part of this program. They contain no data, so
//! they need no token. The page requests data from the API with its reader's token.

use axum::{
    body::Body,
    extract::Path,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};

use super::error::Problem;

/// The folder of all files except the page itself.
const FOLDER: &str = "/web/";

/// Allows scripts and styles only from this address, none within the page, and no other page may show it in a
/// frame.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

const INDEX: &str = include_str!("../../web/index.html");

macro_rules! files {
    ($($name:literal: $kind:ident,)*) => {
        &[$(($name, $kind, include_bytes!(concat!("../../web/", $name)))),*]
    };
}

/// The files below [`FOLDER`]: names, kinds, and contents.
const FILES: &[(&str, &str, &[u8])] = files! {
    "access.js": SCRIPT,
    "captures.js": SCRIPT,
    "dom.js": SCRIPT,
    "figure.js": SCRIPT,
    "filter.js": SCRIPT,
    "findings.js": SCRIPT,
    "functions.js": SCRIPT,
    "header.js": SCRIPT,
    "heatmap.js": SCRIPT,
    "hosts.js": SCRIPT,
    "icon.svg": PICTURE,
    "keys.js": SCRIPT,
    "live.js": SCRIPT,
    "main.js": SCRIPT,
    "metric.js": SCRIPT,
    "overview.js": SCRIPT,
    "rank.js": SCRIPT,
    "ranks.js": SCRIPT,
    "replay.js": SCRIPT,
    "scale.js": SCRIPT,
    "stacks.js": SCRIPT,
    "state.js": SCRIPT,
    "steps.js": SCRIPT,
    "style.css": CSS,
    "tables.css": CSS,
    "theme.js": SCRIPT,
    "vendor/LICENSE": TEXT,
    "vendor/uPlot.esm.js": SCRIPT,
    "vendor/uPlot.min.css": CSS,
};

pub(super) async fn index() -> Response {
    answer(HTML, INDEX.as_bytes())
}

pub(super) async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, kind, bytes)| answer(kind, bytes)).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "the page has no such file", "GET / is the page; reload it")
    })
}

fn answer(kind: &'static str, bytes: &'static [u8]) -> Response {
    ([(header::CONTENT_TYPE, kind)], Body::from(bytes)).into_response()
}

/// Whether a path is one of the page's files.
pub(super) fn is_of_page(path: &str) -> bool {
    path == "/" || path.starts_with(FOLDER)
}

/// Adds headers to every answer, also to errors, that restrict what a browser does with it.
pub(super) fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let said: [(HeaderName, &str); 4] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in said {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path as FilePath};

    use super::*;

    /// All bytes of the page, as a browser fetches them.
    const MOST: usize = 1_000_000;

    fn folder() -> std::path::PathBuf {
        FilePath::new(env!("CARGO_MANIFEST_DIR")).join("web")
    }

    fn names(folder: &FilePath, before: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{before}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                names(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_all_are_small() {
        let mut there = BTreeSet::new();
        names(&folder(), "", &mut there);
        // `index.html` is served as `/`. The others describe the origin of the vendored files and are never
        // requested.
        for apart in ["index.html", "package.json", "package-lock.json", "vendor/SHA512SUMS"] {
            assert!(there.remove(apart), "{apart}");
        }
        let served: BTreeSet<_> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(served, there);
        let bytes = FILES.iter().map(|(.., bytes)| bytes.len()).sum::<usize>() + INDEX.len();
        assert!(bytes < MOST, "{bytes}");
    }

    #[test]
    fn files_name_no_other_host_and_hold_no_script_in_the_page() {
        let vendored = |name: &str| name.starts_with("vendor/");
        let texts = FILES.iter().filter(|(name, ..)| !vendored(name)).map(|(_, _, bytes)| *bytes);
        for text in texts.chain([INDEX.as_bytes()]) {
            let text = String::from_utf8_lossy(text);
            let hosts = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!hosts.contains("://"), "{text}");
            for unsafe_call in ["innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(unsafe_call), "{unsafe_call}");
            }
        }
        assert!(!INDEX.contains("<style") && !INDEX.contains(" style=") && !INDEX.contains("onclick"));
        assert!(
            INDEX.matches("<script").count()
                == INDEX.matches("<script src=").count()
                    + INDEX.matches("<script type=\"module\" src=").count()
        );
    }
}
