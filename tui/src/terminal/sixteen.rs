//! Writes the sixteen colours with their oldest codes, which every terminal with colours understands.
//!
//! Crossterm writes all palette colours as `38;5;N`. Terminals with sixteen colours may not know that form.
//! Some terminals read its parts as separate codes, where 5 means blinking.

const BEGIN: &[u8] = b"\x1b[";

/// The same bytes with `30` to `37` and `90` to `97` (from `40` and `100` on for backgrounds) instead of
/// colours by number.
pub(super) fn to_16_colours(bytes: &[u8]) -> Vec<u8> {
    let mut spelled = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
        let (before, sequence) = rest.split_at(at + BEGIN.len());
        spelled.extend_from_slice(before);
        let length = sequence.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b';')).count();
        let (parameters, after) = sequence.split_at(length);
        match std::str::from_utf8(parameters) {
            Ok(parameters) if after.first() == Some(&b'm') => {
                spelled.extend_from_slice(named(parameters).as_bytes());
            }
            _ => spelled.extend_from_slice(parameters),
        }
        rest = after;
    }
    spelled.extend_from_slice(rest);
    spelled
}

/// Converts one sequence: `1;38;5;9;48;5;0` becomes `1;91;40`.
fn named(parameters: &str) -> String {
    let mut left = parameters.split(';').peekable();
    let mut names: Vec<String> = Vec::new();
    while let Some(one) = left.next() {
        let first = match (one, left.peek()) {
            ("38", Some(&"5")) => 30,
            ("48", Some(&"5")) => 40,
            _ => {
                names.push(one.to_owned());
                continue;
            }
        };
        left.next();
        let number = left.next().unwrap_or_default();
        names.push(match number.parse::<u8>() {
            Ok(colour @ ..=7) => (first + colour).to_string(),
            Ok(colour @ 8..=15) => (first + 60 + colour - 8).to_string(),
            _ if number.is_empty() => format!("{one};5"),
            _ => format!("{one};5;{number}"),
        });
    }
    names.join(";")
}

#[cfg(test)]
mod tests {
    use xpu_wire::unit::Moment;

    use super::*;
    use crate::{app::App, palette::Depth, terminal::Pen};

    #[test]
    fn colours_by_number_have_their_names_and_all_else_stays() {
        let spelled = |bytes: &str| String::from_utf8(to_16_colours(bytes.as_bytes())).unwrap();
        assert_eq!(spelled("\x1b[38;5;1ma\x1b[48;5;15mb"), "\x1b[31ma\x1b[107mb");
        assert_eq!(spelled("\x1b[1;38;5;9;48;5;0m38;5;1m"), "\x1b[1;91;40m38;5;1m");
        assert_eq!(spelled("\x1b[38;5;8m\x1b[48;5;7m\x1b[39m\x1b[0m"), "\x1b[90m\x1b[47m\x1b[39m\x1b[0m");
        for other in ["\x1b[38;5;16m", "\x1b[38;2;1;2;3m", "\x1b[5;5H", "\x1b[38;5", "\x1b[", "▲ \x1b", ""]
        {
            assert_eq!(spelled(other), other);
        }
    }

    #[test]
    fn a_picture_of_sixteen_colours_has_no_other_names() {
        let picture = |depth| {
            let mut app = App::new(Vec::new(), None, depth, Moment::default());
            let mut bytes = Vec::new();
            Pen::sized(&mut bytes, 80, 24).unwrap().draw(&mut app).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        crossterm::style::force_color_output(true);
        let plain = picture(Depth::Sixteen);
        assert!(!plain.contains("8;5;") && plain.contains("\x1b[9"), "{plain:?}");
        assert!(picture(Depth::Indexed).contains("38;5;"), "the test sees what is to be written otherwise");
    }
}
