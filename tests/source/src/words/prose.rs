//! Sentences of Markdown, which comments are written in as well.

/// Stands for text in backticks.
pub const CODE: char = '`';

/// Returns the sentences of a text, each with the line of its paragraph. Code is left out. List items, table cells and headings are
/// paragraphs of their own.
pub fn sentences(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, paragraph) in paragraphs(lines) {
        found.extend(split(&without_code(&paragraph)).into_iter().map(|sentence| (line, sentence)));
    }
    found
}

fn paragraphs(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut goes_on) = (false, false);
    for (line, text) in lines {
        let text = text.trim();
        let fence = text.starts_with("```");
        is_code ^= fence;
        if fence || is_code || text.is_empty() {
            goes_on = false;
        } else if let Some(row) = text.strip_prefix('|') {
            let cells = row.split('|').map(str::trim).filter(|cell| cell.contains(char::is_alphanumeric));
            found.extend(cells.map(|cell| (*line, cell.to_owned())));
            goes_on = false;
        } else {
            let (item, text) = without_mark(text);
            match found.last_mut() {
                Some((_, paragraph)) if goes_on && !item => *paragraph += &format!(" {text}"),
                _ => found.push((*line, text.to_owned())),
            }
            goes_on = true;
        }
    }
    found
}

/// Removes the mark of a list item or a heading, and returns whether there was one.
fn without_mark(text: &str) -> (bool, &str) {
    let Some((mark, rest)) = text.split_once(' ') else { return (false, text) };
    let number = mark.strip_suffix('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let is_mark = ["-", "*", ">"].contains(&mark) || mark.bytes().all(|byte| byte == b'#') || is_number;
    if is_mark { (true, rest.trim_start()) } else { (false, text) }
}

/// Replaces text in backticks by [`CODE`].
fn without_code(paragraph: &str) -> String {
    let (mut plain, mut left) = (String::new(), paragraph);
    while let Some(start) = left.find('`') {
        let ticks = left[start..].len() - left[start..].trim_start_matches('`').len();
        let (mark, after) = left[start..].split_at(ticks);
        plain += &left[..start];
        plain.push(CODE);
        let Some(end) = after.find(mark) else { return plain };
        left = &after[end + ticks..];
    }
    plain + left
}

/// Splits a paragraph after `.`, `!`, `?`, `:` and `;` where a capital letter or code follows.
fn split(paragraph: &str) -> Vec<String> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut ended = true;
    for word in paragraph.split_whitespace() {
        let first = word.trim_start_matches(['(', '[', '*', '_', '"', '“', '‘']).chars().next();
        if ended && first.is_none_or(|first| first.is_uppercase() || first == CODE) || found.is_empty() {
            found.push(Vec::new());
        }
        found.last_mut().into_iter().for_each(|sentence| sentence.push(word));
        ended = word.trim_end_matches([')', ']', '*', '_', '"', '”', '’']).ends_with(['.', '!', '?', ':', ';']);
    }
    found.into_iter().map(|words| words.join(" ")).collect()
}
