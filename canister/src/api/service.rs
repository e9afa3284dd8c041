//! The interface as a custom section of the wasm that anyone may read, without the comments of `candid/coppice.did`, which are three
//! quarters of its bytes.

const SOURCE: &[u8] = include_bytes!("../../../candid/coppice.did");

/// Returns the end of the line that begins at `from`, its line feed included, and whether the line is a comment.
const fn line(text: &[u8], from: usize) -> (usize, bool) {
    let mut first = from;
    while first < text.len() && text[first] == b' ' {
        first += 1;
    }
    let is_comment = first + 1 < text.len() && text[first] == b'/' && text[first + 1] == b'/';
    let mut end = first;
    while end < text.len() && text[end] != b'\n' {
        end += 1;
    }
    (if end < text.len() { end + 1 } else { end }, is_comment)
}

/// Returns the bytes of the lines that are no comments, and their number; more than `N` are counted only.
const fn without_comments<const N: usize>(text: &[u8]) -> ([u8; N], usize) {
    let (mut out, mut len, mut from) = ([0; N], 0, 0);
    while from < text.len() {
        let (end, is_comment) = line(text, from);
        while from < end && !is_comment {
            if len < N {
                out[len] = text[from];
            }
            (len, from) = (len + 1, from + 1);
        }
        from = end;
    }
    (out, len)
}

#[allow(long_running_const_eval)]
const LEN: usize = without_comments::<0>(SOURCE).1;

#[cfg_attr(target_family = "wasm", used)]
#[cfg_attr(target_family = "wasm", unsafe(link_section = "icp:public candid:service"))]
#[cfg_attr(not(target_family = "wasm"), allow(dead_code))]
#[allow(long_running_const_eval)]
static SERVICE: [u8; LEN] = without_comments(SOURCE).0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_interface_without_its_comments() {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let expected: Vec<&str> = std::str::from_utf8(SOURCE).unwrap().split_inclusive('\n').filter(is_code).collect();
        assert_eq!(std::str::from_utf8(&SERVICE).unwrap(), expected.concat());
        assert!(LEN > 10_000 && LEN < SOURCE.len() / 3, "{LEN}");
        let (short, len) = without_comments::<8>(b"// a\n  // b\nc\n  d // e");
        assert_eq!((&short, len), (b"c\n  d //", 10));
    }
}
