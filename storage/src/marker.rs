//! Marker that gets the messages of a timer, *ticks*, past a piece of work that traps. A trap undoes its whole message, so the message
//! cannot record the piece, and every later tick would run into the same piece.
//!
//! **Design.** A late tick assumes that the previous ticks trapped, records that, and ends. From then on a message does less work, down to
//! a single piece, which an earlier message has recorded. A piece whose message traps twice is skipped.
//!
//! ```text
//! all ──late──▶ 1,000 pieces ──late──▶ 30 ──late──▶ record one ─▶ do it ──▶ record next …      late, late: skip it
//!  ▲                 │                  │               ▲          │
//!  └── 64 messages ──┴── 64 messages ───┴─ 64 messages ─┴──────────┘
//! ```
//! Callers persist the [`Marker`] with their state, ask [`turn`] at the beginning of a tick, and call [`ended`] at its end.
//!
//! A tick may also be late because the subnet stood still. If a message has ended since the last late tick, a late tick therefore only
//! records that it was late, and the same amount of work is tried once more. Work without traps costs no extra message.

use serde::{Deserialize, Serialize};

/// Maximum pieces of a message at each level.
const PIECES: [u32; 3] = [1_000, 30, 1];
/// Messages that must end at a level before messages may do more again.
const MESSAGES: u32 = 64;

/// State of the marker while messages do less than their budget allows. `P` names a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker<P> {
    /// Index in [`PIECES`].
    level: u8,
    /// Messages that must still end at this level.
    left: u32,
    /// True until a message ends after the last late one.
    fresh: bool,
    /// The single piece that the next message does.
    at: Option<P>,
}

/// Work of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<P> {
    /// As much as its budget allows.
    All,
    /// At most this many pieces.
    Few(u32),
    /// Find the next piece and do nothing else.
    Find,
    /// The named piece, if it is still the next one.
    Only(P),
    /// Nothing, because a trap would undo the change of the marker.
    Nothing,
    /// Skip this piece; `None` if finding the next piece traps.
    Skip(Option<P>),
}

/// Returns the work of the next message and updates the marker. `late`: the message begins so late that earlier ones must have trapped.
pub fn turn<P: Clone>(marker: &mut Option<Marker<P>>, late: bool) -> Turn<P> {
    let Some(now) = marker else {
        if late {
            *marker = Some(Marker { level: 0, left: MESSAGES, fresh: true, at: None });
            return Turn::Nothing;
        }
        return Turn::All;
    };
    let last = usize::from(now.level) + 1 >= PIECES.len();
    if late && !now.fresh {
        now.fresh = true;
        return Turn::Nothing;
    }
    match (late, last, now.at.clone()) {
        (true, true, at) => {
            *marker = None;
            Turn::Skip(at)
        }
        (true, false, _) => {
            *now = Marker { level: now.level + 1, left: MESSAGES, fresh: true, at: None };
            Turn::Nothing
        }
        (false, true, None) => Turn::Find,
        (false, true, Some(at)) => Turn::Only(at),
        (false, false, _) => Turn::Few(PIECES[usize::from(now.level)]),
    }
}

/// Records that a message did its turn and ended; `next` is the next piece of work, which the message did not do.
pub fn ended<P>(marker: &mut Option<Marker<P>>, next: Option<P>) {
    let Some(now) = marker else { return };
    let last = usize::from(now.level) + 1 >= PIECES.len();
    now.at = next.filter(|_| last);
    now.fresh = false;
    now.left -= 1;
    if now.left > 0 {
        return;
    }
    match now.level.checked_sub(1) {
        Some(level) => *now = Marker { level, left: MESSAGES, fresh: false, at: None },
        None => *marker = None,
    }
}

/// Adds a piece to the skipped ones. Above `most` pieces, removes the oldest, which is then tried again.
pub fn skip<P: PartialEq>(skipped: &mut Vec<P>, piece: P, most: usize) {
    skipped.retain(|other| *other != piece);
    skipped.push(piece);
    if skipped.len() > most {
        skipped.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works through `pieces` pieces, of which those in `traps` trap. Returns the number of messages and the skipped pieces.
    fn work(pieces: u32, traps: &[u32]) -> (u32, Vec<u32>) {
        let (mut marker, mut passed, mut next, mut late, mut messages) = (None, Vec::new(), 0, false, 0);
        while next < pieces {
            messages += 1;
            assert!(messages < 100_000, "stuck at {next}");
            // A message that traps changes nothing.
            let mut then = marker.clone();
            let turn = turn(&mut then, late);
            let (from, most) = match turn {
                Turn::All => (next, u32::MAX),
                Turn::Few(few) => (next, few),
                Turn::Only(at) => (at, 1),
                Turn::Find => {
                    ended(&mut then, Some(next));
                    (marker, late) = (then, false);
                    continue;
                }
                Turn::Nothing => {
                    (marker, late) = (then, false);
                    continue;
                }
                Turn::Skip(at) => {
                    passed.push(at.expect("finding does not trap"));
                    next += 1;
                    (marker, late) = (then, false);
                    continue;
                }
            };
            let to = from.saturating_add(most).min(pieces);
            if traps.iter().any(|at| (from..to).contains(at) && !passed.contains(at)) {
                late = true;
                continue;
            }
            next = to;
            ended(&mut then, (next < pieces).then_some(next));
            (marker, late) = (then, false);
        }
        (messages, passed)
    }

    #[test]
    fn only_pieces_that_trap_are_skipped() {
        assert_eq!(work(1_000_000, &[]), (1, vec![]));
        for traps in [&[0][..], &[5], &[999], &[1_000], &[123_456], &[7, 8, 9], &[0, 500, 100_000]] {
            let (messages, passed) = work(200_000, traps);
            assert_eq!(passed, traps);
            assert!(messages < 500, "{traps:?}: {messages}");
        }
    }

    #[test]
    fn a_late_tick_without_a_trap_costs_one_message() {
        let mut marker: Option<Marker<u32>> = None;
        assert_eq!(turn(&mut marker, true), Turn::Nothing);
        for _ in 0..MESSAGES {
            assert_eq!(turn(&mut marker, false), Turn::Few(1_000));
            ended(&mut marker, Some(1));
        }
        assert_eq!((turn(&mut marker, false), marker), (Turn::All, None));
    }

    #[test]
    fn late_ticks_that_end_skip_nothing() {
        let mut marker: Option<Marker<u32>> = None;
        // Every other tick is late because time jumps.
        for piece in 0..1_000 {
            assert_eq!(turn(&mut marker, true), Turn::Nothing);
            assert!(!matches!(turn(&mut marker, false), Turn::Nothing | Turn::Skip(_)), "{marker:?}");
            ended(&mut marker, Some(piece));
        }
    }

    #[test]
    fn a_trap_while_finding_the_next_piece_is_reported() {
        let mut marker: Option<Marker<u32>> = None;
        (0..3).for_each(|_| assert_eq!(turn(&mut marker, true), Turn::Nothing));
        assert_eq!(turn(&mut marker.clone(), false), Turn::Find);
        assert_eq!((turn(&mut marker, true), marker), (Turn::Skip(None), None));
    }
}
