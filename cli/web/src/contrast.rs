//! The contrast of the colours of both themes, computed from the style sheet by the formula of WCAG 2.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../assets/style.css");

/// Text colours, each with the grounds behind the text.
const TEXT: [(&str, &[&str]); 7] = [
    ("--ink", &["--ground", "--card", "--code", "--bad-ground"]),
    ("--soft", &["--ground", "--card"]),
    ("--link", &["--ground", "--card", "--bad-ground"]),
    ("--good", &["--ground", "--card"]),
    ("--warn", &["--ground", "--card"]),
    ("--bad", &["--ground", "--card", "--bad-ground"]),
    ("#fff", &["--key", "--danger"]),
];

/// Lines and marks with a meaning, for less contrast.
const MARKS: [(&str, &[&str]); 3] =
    [("--read", &["--card"]), ("--write", &["--card"]), ("--soft", &["--ground", "--card"])];

/// The colours of a theme: the first block of `:root` for the light theme, and the second for the dark theme.
fn theme(number: usize) -> BTreeMap<&'static str, &'static str> {
    let block = STYLE.split(":root {").nth(number + 1).unwrap().split('}').next().unwrap();
    let pairs = block.split(';').filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim(), value.trim())).filter(|(_, value)| value.starts_with('#')).collect()
}

/// The relative luminance of `#rgb` or `#rrggbb`.
fn luminance(colour: &str) -> f64 {
    let digits: Vec<u32> = colour[1..].chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    let parts: Vec<u32> = match digits.len() {
        3 => digits.iter().map(|digit| digit * 17).collect(),
        6 => digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect(),
        _ => panic!("{colour}"),
    };
    let linear = |part: u32| match f64::from(part) / 255.0 {
        part @ ..=0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(parts[0]) + 0.7152 * linear(parts[1]) + 0.0722 * linear(parts[2])
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_and_marks_are_legible_in_both_themes() {
    assert!((contrast("#000", "#ffffff") - 21.0).abs() < 1e-9);
    for number in [0, 1] {
        let colours = theme(number);
        assert!(colours.len() >= 12, "{colours:?}");
        let colour = |name: &'static str| if name.starts_with('#') { name } else { colours[name] };
        for (least, pairs) in [(4.5, &TEXT[..]), (3.0, &MARKS[..])] {
            for (front, grounds) in pairs {
                for ground in *grounds {
                    let found = contrast(colour(front), colour(ground));
                    assert!(found >= least, "theme {number}: {front} on {ground} has only {found:.2}");
                }
            }
        }
    }
}

#[test]
fn no_rule_has_a_colour_outside_the_themes() {
    let rules = STYLE.split("\n* {").nth(1).unwrap();
    for (at, _) in rules.match_indices('#') {
        let word = rules[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '#').next().unwrap();
        assert_eq!(word, "#fff", "a colour of one rule alone");
    }
}
