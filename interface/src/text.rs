//! Text helpers: cut texts, hexadecimal, durations, counts.

/// Mark at the end of a cut text.
pub const MARK: &str = "…";

/// Returns the text, cut to `most` bytes with a mark at its end if it is longer.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most - MARK.len()).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}{MARK}", &text[..end])
}

/// Returns bytes in hexadecimal; ids and hashes stay in internal byte order, as in replies.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns seconds as a duration of at most two units: `3 d 4 h`.
pub fn duration(secs: u64) -> String {
    let all = [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "min"), (secs % 60, "s")];
    let first = all.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let two = all.iter().skip(first).take(2).enumerate().filter(|(at, (number, _))| *at == 0 || *number > 0);
    two.map(|(_, (number, unit))| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Returns a count with its noun: `1 block`, `2 blocks`.
pub fn many(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("äöü", 5), cut("", 3)], ["abc", "…", "ä…", ""]);
    }
}
