use super::{
    picture::{ground, letters, luminance, rgb},
    *,
};

fn detected(variables: &[(&str, &str)]) -> Depth {
    Depth::detect(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn no_color_takes_precedence_over_the_terminals_abilities() {
    assert_eq!(detected(&[("NO_COLOR", "1"), ("COLORTERM", "truecolor")]), Depth::None);
    assert_eq!(detected(&[("NO_COLOR", ""), ("COLORTERM", "truecolor")]), Depth::True);
    assert_eq!(detected(&[("TERM", "xterm-256color")]), Depth::Indexed);
    assert_eq!(detected(&[("TERM", "linux")]), Depth::Sixteen);
    assert_eq!(detected(&[("TERM", "dumb")]), Depth::None);
    assert_eq!(detected(&[]), Depth::None);
}

#[test]
fn without_colours_no_style_has_a_colour() {
    for theme in Theme::ALL {
        let palette = Palette::new(Depth::None, theme);
        let all = [palette.selected(), palette.stale(), palette.heat(0), palette.of(Role::Alarm)];
        assert!(all.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}

#[test]
fn themes_go_by_their_names_and_for_others_the_names_are_listed() {
    for theme in Theme::ALL {
        assert_eq!(theme.name().parse(), Ok(theme));
        assert!("".parse::<Theme>().unwrap_err().to_string().contains(theme.name()));
    }
    assert_eq!("High-Contrast".parse(), Ok(Theme::HighContrast));
}

/// The depths at which a theme's colours are exact; the colours of a depth of sixteen are the terminal's own.
const EXACT: [Depth; 2] = [Depth::Indexed, Depth::True];

fn contrast(one: Color, other: Color) -> f64 {
    let [one, other] = [one, other].map(|colour| luminance(rgb(colour)) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn every_word_can_be_read_on_the_ground_of_its_theme() {
    let texts = [
        (Role::Muted, 4.5),
        (Role::Accent, 4.5),
        (Role::Good, 4.5),
        (Role::Warning, 4.5),
        (Role::Alarm, 4.5),
        (Role::Python, 4.5),
        (Role::Torch, 4.5),
        (Role::Native, 4.5),
        (Role::System, 4.5),
        // Lines, and the dot of unknown values.
        (Role::Faint, 1.7),
    ];
    for theme in Theme::ALL {
        assert!(contrast(letters(theme), ground(theme)) > 10.0, "{theme}");
        let least = if theme == Theme::HighContrast { 7.0 } else { 0.0 };
        for (depth, (role, wanted)) in EXACT.into_iter().flat_map(|depth| texts.map(|text| (depth, text))) {
            let colour = Palette::new(depth, theme).of(role).fg.unwrap();
            let found = contrast(colour, ground(theme));
            assert!(found >= f64::max(wanted, least), "{theme}, {depth:?}, {role:?}: {found:.2}");
        }
    }
}

#[test]
fn text_on_a_cell_has_enough_contrast() {
    for (theme, depth) in Theme::ALL.into_iter().flat_map(|theme| EXACT.map(|depth| (theme, depth))) {
        let palette = Palette::new(depth, theme);
        let cells = (0..STEPS).map(|step| palette.heat(step)).chain([palette.selected()]);
        for (cell, style) in cells.enumerate() {
            let found = contrast(style.fg.unwrap(), style.bg.unwrap());
            assert!(found >= 4.5, "{theme}, {depth:?}, cell {cell}: {found:.2}");
        }
    }
}

/// CIE lightness, 0 to 100.
fn lightness(colour: Color) -> f64 {
    let luminance = luminance(rgb(colour));
    if luminance > 0.008_856 { 116.0 * luminance.cbrt() - 16.0 } else { 903.3 * luminance }
}

#[test]
fn a_scale_becomes_lighter_from_step_to_step_and_so_reads_in_grey() {
    for (theme, depth) in Theme::ALL.into_iter().flat_map(|theme| EXACT.map(|depth| (theme, depth))) {
        let steps: Vec<_> =
            (0..STEPS).map(|step| lightness(Palette::new(depth, theme).heat(step).bg.unwrap())).collect();
        let least = if depth == Depth::True { 5.0 } else { 1.5 };
        assert!(steps.windows(2).all(|pair| pair[1] - pair[0] >= least), "{theme}, {depth:?}: {steps:.0?}");
    }
}

/// The view of a person without cones for red, or for green: Viénot, Brettel and Mollon, 1999.
const COLOUR_BLIND: [[[f64; 3]; 3]; 2] = [
    [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]],
    [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]],
];

fn seen(colour: Color, eyes: &[[f64; 3]; 3]) -> [f64; 3] {
    let (r, g, b) = rgb(colour);
    let linear = [r, g, b].map(|part| (f64::from(part) / 255.0).powf(2.2));
    eyes.map(|row| {
        row.iter().zip(linear).map(|(share, part)| share * part).sum::<f64>().max(0.0).powf(1.0 / 2.2)
    })
}

/// Glyphs distinguish the two as well; the colours must not contradict them.
#[test]
fn good_and_alarm_are_two_colours_to_the_colour_blind() {
    for theme in Theme::ALL.into_iter().filter(|theme| *theme != Theme::Mono) {
        let palette = Palette::new(Depth::True, theme);
        for eyes in &COLOUR_BLIND {
            let [good, alarm] =
                [Role::Good, Role::Alarm].map(|role| seen(palette.of(role).fg.unwrap(), eyes));
            let apart: f64 = good.iter().zip(alarm).map(|(good, alarm)| (good - alarm).powi(2)).sum();
            assert!(apart.sqrt() > 0.15, "{theme}: {:.2}", apart.sqrt());
        }
    }
}
