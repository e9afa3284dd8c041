//! `docs/operations/deploy.md` as tests read it: steps, their commands, and the commands' output.

#![allow(dead_code, reason = "every test uses a part of it")]

/// A step of the page: its heading, and its commands with their output.
pub struct Step {
    pub heading: String,
    pub commands: Vec<(String, String)>,
}

/// The steps of the page.
pub fn steps(page: &str) -> Vec<Step> {
    // The output of a command ends with its code block.
    let (mut steps, mut inside, mut prints) = (Vec::<Step>::new(), false, false);
    for line in page.lines() {
        let fence = line.starts_with("```");
        inside ^= fence;
        prints &= !fence;
        if let Some(heading) = line.strip_prefix("## ") {
            steps.push(Step { heading: heading.into(), commands: Vec::new() });
        } else if let (true, false, Some(step)) = (inside, fence, steps.last_mut()) {
            match (line.strip_prefix("$ "), step.commands.last_mut()) {
                (Some(command), _) => {
                    step.commands.push((command.into(), String::new()));
                    prints = true;
                }
                (None, Some((_, printed))) if prints => *printed += &format!("{line}\n"),
                (None, _) => {}
            }
        }
    }
    steps
}

/// Returns whether a text matches the page's, in which `…` is any text: any lines if alone on a line, otherwise the rest of the line.
pub fn is_printed(expected: &str, text: &str) -> bool {
    fn are(expected: &[&str], lines: &[&str]) -> bool {
        let Some((first, rest)) = expected.split_first() else { return lines.is_empty() };
        if first.trim() == "…" {
            return (0..=lines.len()).any(|skipped| are(rest, &lines[skipped..]));
        }
        let same = |line: &str| match first.split_once('…') {
            Some((begin, _)) => line.trim().starts_with(begin.trim()),
            None => line.trim() == first.trim(),
        };
        lines.split_first().is_some_and(|(line, after)| same(line) && are(rest, after))
    }
    are(&expected.lines().collect::<Vec<_>>(), &text.trim().lines().collect::<Vec<_>>())
}

/// The method and the argument of a line that calls the canister, with its options.
pub fn call(line: &str) -> Option<(String, String, String)> {
    let (_, call) = line.split_once("canister call ")?;
    let (before, after) = call.split_once("coppice ")?;
    let (method, rest) = after.split_once(' ').unwrap_or((after, "'()'"));
    let argument = rest.split('\'').nth(1).unwrap_or("()").to_string();
    let options = format!("{before}{}", rest.rsplit('\'').next().unwrap_or_default());
    Some((options, method.trim_end_matches('`').into(), argument))
}
