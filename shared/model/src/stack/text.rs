//! The tree for a terminal: a frame that ranks share is one line; the tree branches only where ranks differ.

use std::fmt::Write as _;

use super::{Node, Tree};

/// Runs of ranks written out on one line.
const RUNS: usize = 12;

pub fn text(tree: &Tree) -> String {
    let mut text = String::new();
    for root in &tree.roots {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}: {}", root.word, who(root));
        below(root, "  ", &mut text);
    }
    text
}

/// `rank 6; not 0-5,7`
fn who(node: &Node) -> String {
    let mut text = node.here.named(RUNS);
    if !node.missing.is_empty() {
        let _ = write!(text, "; not {}", node.missing.brief(RUNS));
    }
    if node.threads > node.here.len() {
        let _ = write!(text, "; {} threads", node.threads);
    }
    text
}

fn below(node: &Node, indent: &str, text: &mut String) {
    if let [child] = &node.children[..]
        && node.ends.is_empty()
        && child.threads == node.threads
    {
        let _ = writeln!(text, "{indent}{}", child.word);
        return below(child, indent, text);
    }
    let stay = !node.ends.is_empty() && !node.children.is_empty();
    for (index, child) in node.children.iter().enumerate() {
        let last = index + 1 == node.children.len() && !stay;
        let (branch, beside) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let inner = format!("{indent}{beside}");
        let _ = writeln!(text, "{indent}{branch}{}", who(child));
        let _ = writeln!(text, "{inner}{}", child.word);
        below(child, &inner, text);
    }
    if stay {
        let _ = writeln!(text, "{indent}└─ {}: innermost frame is here", node.ends.named(RUNS));
    }
}
