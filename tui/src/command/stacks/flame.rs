//! The merged tree as a flame graph, by inferno.

use anyhow::Context as _;
use inferno::flamegraph::{
    self, Direction, Options, TextTruncateDirection,
    color::{Color, PaletteMap},
};
use xpu_shared::{
    id::JobName,
    stack::{self, Class, Node, Tree},
};

/// Runs of ranks in a frame's title.
const RUNS: usize = 24;

/// The colour of each kind of frame: the terminal's tree says the same in words.
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

/// A frame's width is how many ranks are in it; its title says which, and which are not.
pub(crate) fn svg(tree: &Tree, job: &JobName) -> anyhow::Result<Vec<u8>> {
    let mut colors = PaletteMap::default();
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
    "ranks".clone_into(&mut options.count_name);
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // In the tree's order; otherwise inferno sorts by name. A chart is drawn from its last line on.
    options.flame_chart = true;
    options.min_width = 0.0;
    options.palette_map = Some(&mut colors);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut svg)
        .context("cannot draw the flame graph")?;
    Ok(svg)
}

fn title(node: &Node) -> String {
    let here = format!("{} [{}]", node.word, node.here.brief(RUNS));
    let title =
        if node.missing.is_empty() { here } else { format!("{here} not [{}]", node.missing.brief(RUNS)) };
    // A semicolon would end the frame.
    title.replace(';', ":").replace('\n', " ")
}
