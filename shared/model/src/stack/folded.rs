//! The tree as folded lines, one for each end of a stack: the input of flame graphs.

use std::fmt::Write as _;

use super::{Node, Tree, Word};

/// One stack of the tree, from its role to its end.
#[derive(Clone, Debug)]
pub struct FoldedLine<'a> {
    pub nodes: Vec<&'a Node>,
    /// Number of ranks that end here.
    pub ranks: usize,
}

/// All stacks of the tree, in its order.
pub fn lines(tree: &Tree) -> Vec<FoldedLine<'_>> {
    let mut lines = Vec::new();
    let mut path = Vec::new();
    tree.roots.iter().for_each(|root| descend(root, &mut path, &mut lines));
    lines
}

fn descend<'a>(node: &'a Node, path: &mut Vec<&'a Node>, lines: &mut Vec<FoldedLine<'a>>) {
    path.push(node);
    if !node.ends.is_empty() {
        lines.push(FoldedLine { nodes: path.clone(), ranks: node.ends.len() });
    }
    node.children.iter().for_each(|child| descend(child, path, lines));
    path.pop();
}

/// `function@file:line@here|missing;... ranks`, a line a stack: the form of xpu-timer's stack viewer.
pub fn folded(tree: &Tree) -> String {
    let mut text = String::new();
    for line in lines(tree) {
        let frames: Vec<_> = line
            .nodes
            .iter()
            .map(|node| format!("{}@{}|{}", plain(&node.word), node.here, node.missing))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}", frames.join(";"), line.ranks);
    }
    text
}

/// Replaces characters that have a meaning in a folded line.
fn plain(word: &Word) -> String {
    let place = match (word.file.as_str(), word.line) {
        ("", _) => String::new(),
        (file, 0) => format!("@{file}"),
        (file, line) => format!("@{file}:{line}"),
    };
    format!("{}{place}", word.name).replace(';', ":").replace(['\n', '|'], " ")
}
