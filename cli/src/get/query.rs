//! The argument of `coppice get`: a block number, a transaction id, or a key.

use anyhow::{Context, Result, bail, ensure};
use ic_coppice_interface::segments::{ID, MAX_KEY};

/// Order of the bytes of ids and hashes, as a user types and reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// The last byte first, as Bitcoin writes ids and hashes
    #[default]
    Display,
    /// The first byte first, as the canister has them
    Internal,
}

impl Order {
    /// Returns bytes as hexadecimal digits.
    pub fn show(self, bytes: &[u8]) -> String {
        let mut bytes = bytes.to_vec();
        if self == Self::Display {
            bytes.reverse();
        }
        crate::verify::hex(&bytes)
    }

    pub fn other(self) -> Self {
        match self {
            Self::Display => Self::Internal,
            Self::Internal => Self::Display,
        }
    }

    /// Returns the order's name, as the option has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Display => "display",
            Self::Internal => "internal",
        }
    }
}

/// The kind of thing that an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A block number
    Block,
    /// A transaction id
    Transaction,
    /// A secondary key
    Key,
}

/// The thing to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The block with this number.
    Block(u64),
    /// Transactions with this id, in internal order.
    Transaction([u8; ID]),
    /// Transactions with this key.
    Key(Vec<u8>),
}

impl Wanted {
    /// Reads an argument. Without a kind, 64 hexadecimal digits are an id, decimal digits are a block number, and everything else is a key.
    ///
    /// # Errors
    /// When the argument cannot be of the kind: a sentence with the remedy.
    pub fn parse(what: &str, kind: Option<Kind>, order: Order) -> Result<Self> {
        let is_id = what.len() == 2 * ID && what.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = !what.is_empty() && what.bytes().all(|byte| byte.is_ascii_digit());
        let kind = kind.unwrap_or(match (is_id, is_number) {
            (true, _) => Kind::Transaction,
            (false, true) => Kind::Block,
            (false, false) => Kind::Key,
        });
        match kind {
            Kind::Block => {
                ensure!(is_number, "{what:?} is not a block number, which has only decimal digits");
                let number = what.parse().ok().with_context(|| {
                    format!("{what} is larger than any block number; a key of digits is named by --as key")
                });
                number.map(Self::Block)
            }
            Kind::Transaction => {
                ensure!(is_id, "{what:?} is not a transaction id, which has 64 hexadecimal digits");
                let mut id = [0; ID];
                id.copy_from_slice(&digits(what).context("an id has hexadecimal digits")?);
                if order == Order::Display {
                    id.reverse();
                }
                Ok(Self::Transaction(id))
            }
            Kind::Key => key(what).map(Self::Key),
        }
    }
}

/// Reads a key: `0x` and hexadecimal digits, or a text.
fn key(what: &str) -> Result<Vec<u8>> {
    let key = match what.strip_prefix("0x") {
        Some(hex) => match digits(hex) {
            Some(key) => key,
            None => bail!(
                "{what:?} is not a key: after 0x come hexadecimal digits, two for each byte; a text that begins with 0x is written in \
                 digits, too"
            ),
        },
        None => what.as_bytes().to_vec(),
    };
    ensure!(!what.is_empty(), "the key is empty; write 0x for the empty key");
    ensure!(key.len() <= usize::from(MAX_KEY), "the key has {} bytes, and no key has more than {MAX_KEY}", key.len());
    Ok(key)
}

/// Reads hexadecimal digits, two for each byte.
fn digits(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
        _ => None,
    });
    pairs.collect()
}

/// Returns a key in the form that [`Wanted::parse`] reads as this key: its text, or else `0x` and hexadecimal digits.
pub fn shown_key(key: &[u8]) -> String {
    let text = std::str::from_utf8(key).ok().filter(|text| {
        let is_plain = text.chars().all(|char| char.is_alphanumeric() || char.is_ascii_graphic() || char == ' ');
        is_plain
            && !text.starts_with('-')
            && Wanted::parse(text, None, Order::Internal).ok() == Some(Wanted::Key(key.to_vec()))
    });
    text.map_or_else(|| format!("0x{}", crate::verify::hex(key)), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_is_a_number_an_id_or_a_key() {
        let (id, other) = ("0123456789abcdefABCDEF".to_string() + &"00".repeat(21), "7".repeat(64));
        let bytes = |first: &[u8], length: usize| [first, &vec![0; length - first.len()]].concat();
        let start = bytes(&[1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xab, 0xcd, 0xef], 32);
        let transaction = |bytes: Vec<u8>| Some(Wanted::Transaction(bytes.try_into().unwrap()));
        let reversed = start.iter().rev().copied().collect();
        for (what, order, wanted) in [
            ("0", Order::Display, Some(Wanted::Block(0))),
            ("007", Order::Display, Some(Wanted::Block(7))),
            ("18446744073709551615", Order::Display, Some(Wanted::Block(u64::MAX))),
            ("18446744073709551616", Order::Display, None),
            (&id, Order::Internal, transaction(start)),
            (&id, Order::Display, transaction(reversed)),
            (&other, Order::Display, transaction(vec![0x77; 32])),
            (&id[..63], Order::Display, Some(Wanted::Key(id.as_bytes()[..63].to_vec()))),
            ("alice", Order::Display, Some(Wanted::Key(b"alice".to_vec()))),
            ("12a", Order::Display, Some(Wanted::Key(b"12a".to_vec()))),
            ("é", Order::Display, Some(Wanted::Key(vec![0xc3, 0xa9]))),
            ("0x", Order::Display, Some(Wanted::Key(Vec::new()))),
            ("0x00fF", Order::Display, Some(Wanted::Key(vec![0, 255]))),
            (&format!("0x{id}"), Order::Display, Some(Wanted::Key(digits(&id).unwrap()))),
            ("0x0", Order::Display, None),
            ("0xzz", Order::Display, None),
            ("0x+1", Order::Display, None),
            ("", Order::Display, None),
            (&"k".repeat(65), Order::Display, None),
        ] {
            assert_eq!(Wanted::parse(what, None, order).ok(), wanted, "{what} {order:?}");
        }
    }

    #[test]
    fn named_kind_decides() {
        let parse =
            |what: &str, kind| Wanted::parse(what, Some(kind), Order::Internal).map_err(|error| error.to_string());
        assert_eq!(parse("12", Kind::Key), Ok(Wanted::Key(b"12".to_vec())));
        assert_eq!(parse(&"7".repeat(64), Kind::Key), Ok(Wanted::Key(b"7".repeat(64))));
        assert!(parse("x", Kind::Block).unwrap_err().contains("only decimal digits"));
        assert!(parse("", Kind::Block).unwrap_err().contains("only decimal digits"));
        assert!(parse(&"7".repeat(64), Kind::Block).unwrap_err().contains("--as key"));
        assert!(parse("12", Kind::Transaction).unwrap_err().contains("64 hexadecimal digits"));
        assert!(parse(&"g".repeat(64), Kind::Transaction).is_err());
    }

    #[test]
    fn shown_key_is_read_as_the_same_key() {
        for (key, shown) in [
            (&b"alice"[..], "alice"),
            (b"to alice", "to alice"),
            (b"12", "0x3132"),
            (b"0x12", "0x30783132"),
            (b"-a", "0x2d61"),
            (b"", "0x"),
            (b"a\nb", "0x610a62"),
            (&[0xff, 0], "0xff00"),
            ("a\u{202e}".as_bytes(), "0x61e280ae"),
            (&[b'7'; 64], &format!("0x{}", "37".repeat(64))),
        ] {
            assert_eq!(shown_key(key), shown);
            assert_eq!(Wanted::parse(shown, None, Order::Display).unwrap(), Wanted::Key(key.to_vec()));
        }
    }
}
