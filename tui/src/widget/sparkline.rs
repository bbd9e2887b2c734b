//! A short history as a row of bars.

use crate::glyph::{BARS, LEVEL};

/// The values as at most `width` bars, the newest last; a bar of several values shows their mean.
///
/// The highest bar represents `full`, or the highest value if that is larger. The lowest bar represents half
/// of that, or the lowest value. So noise of a few percent stays flat, a loss of a third of the speed is
/// visible, and lines with the same `full` can be compared.
pub fn bars(values: &[f32], full: f32, width: usize) -> String {
    let highest = values.iter().copied().fold(full, f32::max);
    let lowest = values.iter().copied().fold(highest * 0.5, f32::min);
    if width == 0 || highest <= 0.0 {
        return String::new();
    }
    let bars = values.len().min(width);
    let share = |bar: usize| bar * values.len() / bars;
    let bar = |bar: usize| {
        let chunk = &values[share(bar)..share(bar + 1)];
        let mean = chunk.iter().sum::<f32>() / chunk.len() as f32;
        let top = (BARS.len() - 1) as f32;
        let level = ((mean - lowest) / (highest - lowest) * top).round().clamp(0.0, top);
        BARS[level as usize]
    };
    (0..bars).map(bar).collect()
}

/// The bars, or a thin line if all are equal, because nothing happened.
pub fn calm(bars: String) -> String {
    let mut letters = bars.chars();
    let first = letters.next();
    if letters.all(|bar| Some(bar) == first) { LEVEL.repeat(bars.chars().count()) } else { bars }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_figure_is_a_thin_line() {
        assert_eq!((calm("▆▆▆▆".to_owned()).as_str(), calm("▆▆▅▆".to_owned()).as_str()), ("────", "▆▆▅▆"));
        assert_eq!(calm(String::new()), "");
    }

    #[test]
    fn noise_is_flat_and_a_loss_is_not() {
        assert_eq!(bars(&[640.0, 642.0, 638.0, 641.0], 0.0, 8), "▆▆▆▆");
        assert_eq!(bars(&[600.0, 600.0, 300.0, 300.0], 0.0, 8), "▆▆▁▁");
        assert_eq!(bars(&[480.0, 480.0], 640.0, 8), "▄▄");
    }

    #[test]
    fn a_long_history_is_folded_to_the_width() {
        let history: Vec<_> = (0..600).map(|n| if n < 300 { 600.0 } else { 300.0 }).collect();
        assert_eq!(bars(&history, 0.0, 4), "▆▆▁▁");
        assert_eq!(bars(&history, 0.0, 7).chars().count(), 7);
        assert_eq!(bars(&[], 0.0, 7), "");
        assert_eq!(bars(&[1.0], 0.0, 0), "");
    }
}
