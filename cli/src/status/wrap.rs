//! Lines of a page that fit a terminal: words, and commands that stay commands.

/// Columns of a page.
pub const COLUMNS: usize = 80;

/// Breaks a text into lines of at most [`COLUMNS`], each behind an indentation. A word that is longer has a line of its own.
pub fn words(text: &str, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(" ".repeat(indent) + word),
        }
    }
    lines
}

/// Breaks a shell command into lines that can be copied as they stand: at spaces of the shell with a backslash, and at spaces of a quoted
/// Candid text, which allows line breaks.
pub fn command(command: &str, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = " ".repeat(indent);
    let mut rest = pieces(command).into_iter().peekable();
    while let Some((piece, is_quoted)) = rest.next() {
        // Room for the backslash.
        let is_empty = line.trim().is_empty();
        let wanted = line.chars().count() + 1 + piece.chars().count() + 2;
        if !is_empty && wanted > COLUMNS {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent + 2)));
            line.push_str(&piece);
        } else {
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&piece);
        }
        // The break after this piece, should one come.
        if let Some((next, _)) = rest.peek()
            && line.chars().count() + 1 + next.chars().count() + 2 > COLUMNS
            && !is_quoted
        {
            line.push_str(" \\");
        }
    }
    lines.push(line);
    lines
}

/// Returns the parts between the spaces at which a line may break, and whether the break after each is inside single quotes.
fn pieces(command: &str) -> Vec<(String, bool)> {
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    let (mut is_quoted, mut depth) = (false, 0);
    for character in command.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            // A substitution of the shell: `$(…)`.
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            ' ' if depth == 0 => {
                pieces.push((std::mem::take(&mut piece), is_quoted));
                continue;
            }
            _ => {}
        }
        piece.push(character);
    }
    pieces.push((piece, false));
    pieces
}

/// Returns the sentences and the commands of an action, which stand between backticks.
pub fn action(action: &str) -> Vec<(String, Option<String>)> {
    let mut steps = Vec::new();
    let mut rest = action;
    while let Some((text, (command, after))) =
        rest.split_once(" Type: `").and_then(|(text, after)| Some((text, after.split_once('`')?)))
    {
        steps.push((text.trim().to_string(), Some(command.to_string())));
        rest = after.trim_start_matches('.').trim_start();
    }
    if !rest.is_empty() {
        steps.push((rest.to_string(), None));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fill_lines_of_80_columns() {
        let lines = words(&"word ".repeat(40), 2);
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.len() <= 80 && line.starts_with("  word")),
            "{lines:?}"
        );
        assert_eq!(words("", 2), [] as [&str; 0]);
        let long = "a".repeat(100);
        assert_eq!(words(&format!("b {long} c"), 0), ["b", &long, "c"]);
    }

    /// The shell joins the lines to the same words, and the Candid text differs in white space only.
    #[test]
    fn broken_command_is_the_same_command() {
        let id = "bkyz2-fmaaa-aaaaa-qaaaq-cai";
        for (text, parts) in [
            (format!("icp canister top-up -n ic --amount 1t {id}"), 1),
            (
                format!(
                    "icp canister call -n http://127.0.0.1:8080 -k fetch {id} set_config '(record {{ max_stable_pages = opt 10_000_000; \
                     utxo = opt record {{ max_utxo_bytes = opt 100_000_000_000 }} }})'"
                ),
                4,
            ),
            (
                format!(
                    "icp canister call -n ic {id} register_exporter '(record {{ name = \"archive\"; \"principal\" = principal \
                     \"'\"$(icp identity principal --identity indexer)\"'\" }})'"
                ),
                3,
            ),
        ] {
            let lines = command(&text, 4);
            assert!(lines.len() == parts && lines.iter().all(|line| line.len() <= 80), "{lines:#?}");
            let script = format!("printf '%s\\n' {}", lines.join("\n").trim());
            let run = |script: &str| {
                let script = script.replace("$(icp identity principal --identity indexer)", "aaaaa-aa");
                let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                let words = String::from_utf8(output.stdout).unwrap();
                words.split_whitespace().map(String::from).collect::<Vec<_>>()
            };
            assert_eq!(run(&script), run(&format!("printf '%s\\n' {text}")), "{lines:#?}");
        }
    }

    #[test]
    fn action_is_taken_apart_into_sentences_and_commands() {
        let text = "Start it. Type: `a '(1)'`. If it is gone, remove it. Type: `b`.";
        let steps = [("Start it.", Some("a '(1)'")), ("If it is gone, remove it.", Some("b"))];
        let owned = |(text, command): (&str, Option<&str>)| (text.to_string(), command.map(String::from));
        assert_eq!(action(text), steps.map(owned));
        assert_eq!(action("Nothing."), [owned(("Nothing.", None))]);
        assert_eq!(action(""), []);
    }
}
