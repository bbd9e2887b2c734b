//! The merged tree as a flame graph, drawn by inferno.

use std::fmt::Write as _;

use anyhow::Context as _;
use inferno::flamegraph::{
    self, Direction, Options, TextTruncateDirection,
    color::{Color, PaletteMap},
};
use xpu_model::stack::{self, Class, Node, Tree};
use xpu_wire::id::JobName;

/// Runs of ranks in a frame's title.
const RUNS: usize = 24;

/// The colour of each kind of frame. The terminal's tree has words for it instead.
fn color(class: Class) -> Color {
    let (r, g, b) = match class {
        Class::State => (178, 132, 190),
        Class::Role => (200, 200, 200),
        Class::Python => (104, 188, 201),
        Class::Torch => (118, 185, 85),
        Class::C => (226, 140, 92),
        Class::Cpp => (214, 110, 130),
    };
    Color { r, g, b }
}

/// The name of each kind of frame in the legend.
const KINDS: [(Class, &str); 6] = [
    (Class::State, "state"),
    (Class::Role, "thread"),
    (Class::Python, "Python"),
    (Class::Torch, "PyTorch, NCCL, CUDA calls"),
    (Class::C, "C"),
    (Class::Cpp, "C++"),
];

/// inferno's root frame, which has no name.
const ROOT: &str = "";

/// The tree as an SVG. A frame's width is its number of ranks; its title lists them, and those that are
/// missing.
pub fn svg(tree: &Tree, job: &JobName) -> anyhow::Result<Vec<u8>> {
    let mut colors = PaletteMap::default();
    colors.insert(ROOT, color(Class::Role));
    let mut lines = Vec::new();
    for line in stack::lines(tree) {
        let mut frames = Vec::with_capacity(line.nodes.len());
        for node in line.nodes {
            let title = title(node);
            colors.insert(&title, color(node.word.class));
            frames.push(title);
        }
        lines.push(format!("{} {}", frames.join(";"), line.ranks));
    }
    let mut options = Options::default();
    options.title = format!("{job}: stacks of {} ranks", tree.ranks.len());
    // The legend takes the subtitle's place.
    options.subtitle = Some(" ".to_owned());
    "ranks".clone_into(&mut options.count_name);
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Keeps the tree's order; otherwise, inferno sorts by name. A chart is drawn from its last line on.
    options.flame_chart = true;
    options.min_width = 0.0;
    options.palette_map = Some(&mut colors);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut svg)
        .context("cannot draw the flame graph")?;
    let end = svg.windows(END.len()).rposition(|at| at == END).unwrap_or(svg.len());
    let rest = svg.split_off(end);
    svg.extend(legend().into_bytes());
    svg.extend(rest);
    Ok(svg)
}

const END: &[u8] = b"</svg>";

/// The legend under the title: each colour and its kind.
fn legend() -> String {
    let mut text = "<g id=\"legend\">".to_owned();
    let mut x = 10;
    for (class, name) in KINDS {
        let Color { r, g, b } = color(class);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<rect x=\"{x}\" y=\"36\" width=\"10\" height=\"10\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{}\" y=\"45\">{name}</text>",
            x + 14
        );
        x += 30 + 7 * name.len();
    }
    text + "</g>\n"
}

fn title(node: &Node) -> String {
    let here = format!("{} [{}]", node.word, node.here.brief(RUNS));
    let title =
        if node.missing.is_empty() { here } else { format!("{here} not [{}]", node.missing.brief(RUNS)) };
    // A semicolon would end the frame.
    title.replace(';', ":").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::{RankStacks, Reading, StackFrame, ThreadStack},
        id::{Pid, Rank},
        unit::{Moment, Nanoseconds},
    };

    use super::*;

    fn stacks() -> RankStacks {
        let frame = StackFrame { function: "train".into(), file: "/job/train.py".into(), line: 3 };
        let thread = ThreadStack {
            thread: Some(7),
            name: "MainThread".into(),
            main: true,
            owns_gil: false,
            inside: None,
            task: None,
            frames: vec![frame],
            more_frames: 0,
        };
        RankStacks {
            job: "train".into(),
            rank: Rank(0),
            pid: Pid(1),
            read_at: Moment(1),
            state: Some('S'),
            reading: Reading::Running,
            held_for_native: None,
            took: Nanoseconds(1),
            why: Vec::new(),
            threads: vec![thread],
            more_threads: 0,
        }
    }

    #[test]
    fn every_colour_is_reported_and_the_root_has_one_of_them() {
        let tree = stack::merge([Rank(0)], &[stacks()]);
        let svg = String::from_utf8(svg(&tree, &"train".into()).unwrap()).unwrap();
        let fills = |text: &str| -> Vec<String> {
            let begins = text.match_indices("fill=\"rgb(").map(|(at, _)| &text[at + 6..]);
            let all = begins.filter_map(|rest| Some(rest.split('"').next()?.to_owned()));
            // Text is black.
            all.filter(|fill| fill != "rgb(0,0,0)").collect()
        };
        let (frames, legend) = svg.split_once("<g id=\"legend\">").expect("a legend");
        let colours = fills(legend);
        assert_eq!(colours.len(), KINDS.len(), "{legend}");
        let frames = fills(frames);
        assert!(
            frames.len() >= 3 && frames.iter().all(|fill| colours.contains(fill)),
            "{frames:?} of {colours:?}"
        );
        assert!(legend.trim_end().ends_with("</svg>"), "{legend}");
    }
}
