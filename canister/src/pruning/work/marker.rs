//! Marker: gets the work of ticks past a piece that traps. A trap undoes its whole message, so the message cannot note the piece, and the
//! next tick would come to the same piece, for ever.
//!
//! **Design.** A late tick assumes that the previous ones trapped. It notes that, and ends. From then on a message does less work, down
//! to a single piece, which an earlier message has noted. A piece whose message does not end twice is passed over.
//!
//! ```text
//! all ──late──▶ 1,000 pieces ──late──▶ 30 ──late──▶ note one ──▶ do it ──▶ note the next …      late, late: it is passed over
//!  ▲                 │                  │               ▲          │
//!  └── 64 messages ──┴── 64 messages ───┴─ 64 messages ─┴──────────┘
//! ```
//! A tick may be late for another reason: a subnet that stood still. So where a message has ended since the last late one, a late tick only
//! notes that, and the same is tried once more. Work that nothing is wrong with takes no message more.

use serde::{Deserialize, Serialize};

/// Pieces of a message, from level to level.
const PIECES: [u32; 3] = [1_000, 30, 1];
/// Messages that must end at a level before there is more in one again.
const MESSAGES: u32 = 64;

/// What is noted while messages do less than they might. `P` names a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker<P> {
    level: u8,
    left: u32,
    /// No message has ended since it was noted that one was late.
    fresh: bool,
    /// The piece that the next message does, alone.
    at: Option<P>,
}

/// What a message is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<P> {
    /// As much as its budget allows.
    All,
    /// So many pieces at most.
    Few(u32),
    /// Find the next piece, and do nothing.
    Find,
    /// This piece, if it is still the next one.
    Only(P),
    /// Nothing: what is noted must not be lost.
    Nothing,
    /// Pass over this piece; none: finding it is what traps.
    PassOver(Option<P>),
}

/// What the next message is to do.
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
            Turn::PassOver(at)
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

/// A message ended that did its turn; `next` is the piece that it found and did not do.
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

/// Adds a piece to those that are passed over. Of more than `most` the oldest is tried again.
pub fn pass_over<P: PartialEq>(passed_over: &mut Vec<P>, piece: P, most: usize) {
    passed_over.retain(|other| *other != piece);
    passed_over.push(piece);
    if passed_over.len() > most {
        passed_over.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages, and which of so many pieces are passed over, where some trap.
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
                Turn::PassOver(at) => {
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
    fn what_traps_is_passed_over_and_nothing_else() {
        assert_eq!(work(1_000_000, &[]), (1, vec![]));
        for traps in [&[0][..], &[5], &[999], &[1_000], &[123_456], &[7, 8, 9], &[0, 500, 100_000]] {
            let (messages, passed) = work(200_000, traps);
            assert_eq!(passed, traps);
            assert!(messages < 500, "{traps:?}: {messages}");
        }
    }

    #[test]
    fn a_tick_that_is_late_for_another_reason_costs_a_message() {
        let mut marker: Option<Marker<u32>> = None;
        assert_eq!(turn(&mut marker, true), Turn::Nothing);
        for _ in 0..MESSAGES {
            assert_eq!(turn(&mut marker, false), Turn::Few(1_000));
            ended(&mut marker, Some(1));
        }
        assert_eq!((turn(&mut marker, false), marker), (Turn::All, None));
    }

    #[test]
    fn ticks_that_are_late_again_and_again_and_end_have_nothing_passed_over() {
        let mut marker: Option<Marker<u32>> = None;
        // Of each two ticks the first is late, as time jumps between them.
        for piece in 0..1_000 {
            assert_eq!(turn(&mut marker, true), Turn::Nothing);
            assert!(!matches!(turn(&mut marker, false), Turn::Nothing | Turn::PassOver(_)), "{marker:?}");
            ended(&mut marker, Some(piece));
        }
    }

    #[test]
    fn where_finding_traps_that_is_said() {
        let mut marker: Option<Marker<u32>> = None;
        (0..3).for_each(|_| assert_eq!(turn(&mut marker, true), Turn::Nothing));
        assert_eq!(turn(&mut marker.clone(), false), Turn::Find);
        assert_eq!((turn(&mut marker, true), marker), (Turn::PassOver(None), None));
    }
}
