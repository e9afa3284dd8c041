//! The interface as a custom section of the wasm that anyone may read, without the comments of its file, which are three quarters of its bytes,
//! and without indentation.

/// Writes an interface, the bytes of its `.did`, into the wasm: the section `candid:service`, which icp, dfx and the dashboards of networks
/// read.
///
/// ```text
/// ic_coppice::service!(include_bytes!("../rollup.did"));
/// ```
#[macro_export]
macro_rules! service {
    ($source:expr) => {
        const _: () = {
            const SOURCE: &[u8] = $source;
            #[allow(long_running_const_eval)]
            const LEN: usize = $crate::service::without_comments::<0>(SOURCE).1;
            #[cfg_attr(target_family = "wasm", used)]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "icp:public candid:service"))]
            #[cfg_attr(not(target_family = "wasm"), allow(dead_code))]
            #[allow(long_running_const_eval)]
            static SERVICE: [u8; LEN] = $crate::service::without_comments(SOURCE).0;
        };
    };
}

/// Returns the bytes of the lines that are not comments, without the spaces that begin them, and their number; more than `N` are counted only.
#[must_use]
pub const fn without_comments<const N: usize>(text: &[u8]) -> ([u8; N], usize) {
    let (mut out, mut len, mut at, mut is_comment) = ([0; N], 0, 0, false);
    while at < text.len() {
        if at == 0 || text[at - 1] == b'\n' {
            let mut first = at;
            while first < text.len() && text[first] == b' ' {
                first += 1;
            }
            is_comment = matches!(text.split_at(first).1, [b'/', b'/', ..]);
            at = first;
        }
        if !is_comment {
            if len < N {
                out[len] = text[at];
            }
            len += 1;
        }
        at += 1;
    }
    (out, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_interface_without_its_comments() {
        const SOURCE: &[u8] = include_bytes!("../../candid/coppice.did");
        let lines = std::str::from_utf8(SOURCE).unwrap().split_inclusive('\n').map(|line| line.trim_start_matches(' '));
        let expected: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
        let expected = expected.concat();
        assert!(expected.len() > 10_000 && expected.len() < SOURCE.len() / 3, "{}", expected.len());
        let (bytes, len) = without_comments::<60_000>(SOURCE);
        assert_eq!(std::str::from_utf8(&bytes[..len]).unwrap(), expected);
        let (short, len) = without_comments::<8>(b"// a\n  // b\nc\n  d // e");
        assert_eq!((&short, len), (b"c\nd // e", 8));
    }
}
