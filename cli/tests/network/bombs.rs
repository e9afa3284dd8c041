//! Candid bombs: short answers that expand without bound when decoded, each a true answer with an addition.

/// Encodes an unsigned number in LEB128.
fn leb(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb128::write::unsigned(&mut bytes, number).unwrap();
    bytes
}

/// Encodes a type's number, which is signed.
fn signed(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb128::write::signed(&mut bytes, number as i64).unwrap();
    bytes
}

/// Returns the end of the number that begins at `at`.
fn after(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1
}

fn number(bytes: &[u8], at: usize) -> u64 {
    leb128::read::unsigned(&mut &bytes[at..]).unwrap()
}

/// Returns a message with additional types and one additional argument of the last type. `types` gets the number of existing types.
fn with(message: &[u8], types: impl Fn(u64) -> Vec<Vec<u8>>, value: &[u8]) -> Vec<u8> {
    const OPT: u8 = 0x6E;
    const VEC: u8 = 0x6D;
    const RECORD: u8 = 0x6C;
    const VARIANT: u8 = 0x6B;
    let many = number(message, 4);
    let first = after(message, 4);
    let mut end = first;
    for _ in 0..many {
        end = match message[end] {
            OPT | VEC => after(message, end + 1),
            RECORD | VARIANT => {
                let fields = number(message, end + 1);
                (0..2 * fields).fold(after(message, end + 1), |at, _| after(message, at))
            }
            kind => panic!("a type of kind {kind}"),
        };
    }
    let arguments = number(message, end);
    let (begin, of_values) =
        (after(message, end), (0..arguments).fold(after(message, end), |at, _| after(message, at)));
    let more = types(many);
    let last = many + more.len() as u64 - 1;
    [
        b"DIDL",
        &leb(many + more.len() as u64)[..],
        &message[first..end],
        &more.concat(),
        &leb(arguments + 1),
        &message[begin..of_values],
        &signed(last),
        &message[of_values..],
        value,
    ]
    .concat()
}

/// Returns all bombs of a true answer.
pub fn bombs(truth: &[u8]) -> Vec<Vec<u8>> {
    const NULL: u8 = 0x7F;
    let vec = |of: Vec<u8>| [vec![0x6D], of].concat();
    let endless = leb(1 << 62);
    vec![
        // An additional argument of 2^62 empty values: in a list, in lists, as records.
        with(truth, |_| vec![vec(vec![NULL])], &endless),
        with(truth, |at| vec![vec(vec![NULL]), vec(signed(at))], &[leb(1_000), endless.repeat(1_000)].concat()),
        with(truth, |at| vec![vec![0x6C, 0], vec(signed(at))], &endless),
        // 1,500,000 options that must be skipped one by one.
        with(truth, |at| vec![vec![0x6E, NULL], vec(signed(at))], &[leb(1_500_000), vec![0; 1_500_000]].concat()),
        // A record that contains itself, and endlessly nested lists.
        with(truth, |at| vec![[vec![0x6C, 1, 0], signed(at)].concat()], &[]),
        with(truth, |at| vec![vec(signed(at))], &vec![1; 500_000]),
        // 500,000 types.
        with(truth, |_| vec![vec(vec![NULL]); 500_000], &endless),
    ]
}
