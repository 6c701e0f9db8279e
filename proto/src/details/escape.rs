//! Text that others chose (names, reasons, messages), made safe to show: on a terminal it can move no cursor and
//! reverse no line, in a spreadsheet it is no formula.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true if a terminal or a browser may act on `c` instead of showing it: control characters (C0, DEL, C1), the
/// marks, embeddings, overrides and isolates of the Unicode bidirectional algorithm (UAX #9, section 2), and the line
/// and paragraph separators.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
        )
}

/// One line: every unsafe character, line breaks and tabs included, as `\u{202e}`.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Lines of text: as [`escape_line`], but line breaks and tabs stay.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// JSON as it was serialized, with every unsafe character inside its strings written as `\u202e`: the same
/// value to a parser, and harmless on a terminal. Line breaks stay, as a serializer writes them between values
/// only.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) && c != '\n' {
            // All of them are in the basic plane: four digits are enough. Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// `text` as one word of a shell, whatever it is; safe to paste once nothing in it is [unsafe](is_unsafe).
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

fn escape(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| is_unsafe(c) && !keeps(c);
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns true if a spreadsheet may take the cell for a formula: it begins with `=`, `+`, `-` or `@`, also full-width,
/// or with a tab or carriage return, which some skip. Plain numbers, which may begin with `-`, are none.
pub(super) fn is_formula(cell: &str) -> bool {
    let begins =
        cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\u{FF1D}', '\u{FF0B}', '\u{FF0D}', '\u{FF20}']);
    begins && !is_number(cell)
}

/// `-0.50` and the like: digits with at most one sign and one decimal point.
fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(whole) && all_digits(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_spelled_out() {
        let ordinary = "größe – 日本語 \"x\" 🙂";
        assert!(matches!(escape_line(ordinary), Cow::Borrowed(same) if same == ordinary));
        assert_eq!(escape_line("a\u{1b}[2Jb\u{9b}c"), "a\\u{1b}[2Jb\\u{9b}c");
        assert_eq!(escape_line("web\u{202e}war.\u{2066}x\u{200f}"), "web\\u{202e}war.\\u{2066}x\\u{200f}");
        assert_eq!(escape_line("one\r\ntwo\tthree"), "one\\u{d}\\u{a}two\\u{9}three");
        assert_eq!(escape_text("one\r\ntwo\tthree"), "one\\u{d}\ntwo\tthree");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "vm": "a\u{202e}b\u{9b}\u{1b}\u{7f}\n🙂" });
        for json in [value.to_string(), format!("{value:#}")] {
            let escaped = escape_json(&json);
            assert!(!escaped.chars().any(|c| is_unsafe(c) && c != '\n'), "{escaped:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
    }

    #[test]
    fn formulas_are_told_from_numbers() {
        for formula in
            ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "-", "--1", "-1.2.3", "＝1"]
        {
            assert!(is_formula(formula), "{formula:?}");
        }
        for harmless in ["", "web", "-0.50", "-7", "12.5", "a=b", "'=1"] {
            assert!(!is_formula(harmless), "{harmless:?}");
        }
    }
}
