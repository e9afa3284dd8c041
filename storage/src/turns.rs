//! Turns that get the messages of a timer, *ticks*, past a piece of work that traps. A trap undoes its whole message, so the message
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
//! Each kind of work persists its own [`Turns`], asks [`Turns::next`] at the beginning of a tick, and calls [`Turns::ended`] at its end.
//!
//! A tick may also be late because the subnet stood still. If a message has ended since the last late tick, a late tick therefore only
//! records that it was late, and the same amount of work is tried once more. Work without traps costs no extra message.

use serde::{Deserialize, Serialize};

/// Maximum pieces of a message at each level.
const PIECES: [u32; 3] = [1_000, 30, 1];
/// Messages that must end at a level before messages may do more again.
const MESSAGES: u32 = 64;

/// Maximum number of skipped pieces; above it the oldest is tried again.
const MAX_SKIPPED: usize = 50;

/// Turns of one kind of work, and the pieces of it that are skipped. `P` names a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns<P> {
    /// Set while messages do less than their budget allows.
    marker: Option<Marker<P>>,
    /// Pieces that are skipped because their messages trapped, the oldest first.
    skipped: Vec<P>,
}

/// State of the marker while messages do less than their budget allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker<P> {
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

impl<P> Default for Turns<P> {
    fn default() -> Self {
        Self { marker: None, skipped: Vec::new() }
    }
}

impl<P: Clone + PartialEq> Turns<P> {
    /// Returns the work of the next message, and adds a piece that is to be skipped to the skipped ones. `late`: the message begins so late
    /// that earlier ones must have trapped.
    pub fn next(&mut self, late: bool) -> Turn<P> {
        let Some(now) = &mut self.marker else {
            self.marker = late.then_some(Marker { level: 0, left: MESSAGES, fresh: true, at: None });
            return if late { Turn::Nothing } else { Turn::All };
        };
        let last = usize::from(now.level) + 1 >= PIECES.len();
        if late && !std::mem::replace(&mut now.fresh, true) {
            return Turn::Nothing;
        }
        match (late, last, now.at.clone()) {
            (true, true, at) => {
                self.marker = None;
                at.iter().for_each(|piece| self.skip(piece.clone()));
                Turn::Skip(at)
            }
            (true, false, _) => {
                *now = Marker { level: now.level + 1, left: MESSAGES, fresh: true, at: None };
                Turn::Nothing
            }
            (false, true, at) => at.map_or(Turn::Find, Turn::Only),
            (false, false, _) => Turn::Few(PIECES[usize::from(now.level)]),
        }
    }

    /// Records that a message did its turn and ended; `next` is the next piece of work, which the message did not do.
    pub fn ended(&mut self, next: Option<P>) {
        let Some(now) = &mut self.marker else { return };
        let last = usize::from(now.level) + 1 >= PIECES.len();
        now.at = next.filter(|_| last);
        now.fresh = false;
        now.left -= 1;
        if now.left > 0 {
            return;
        }
        self.marker = now.level.checked_sub(1).map(|level| Marker { level, left: MESSAGES, fresh: false, at: None });
    }

    /// Adds a piece to the skipped ones.
    pub fn skip(&mut self, piece: P) {
        self.try_again(|other| *other == piece);
        self.skipped.push(piece);
        if self.skipped.len() > MAX_SKIPPED {
            self.skipped.remove(0);
        }
    }

    /// Returns the skipped pieces, the oldest first.
    pub fn skipped(&self) -> &[P] {
        &self.skipped
    }

    /// Makes messages try skipped pieces again. Returns whether there were any.
    pub fn try_again(&mut self, which: impl Fn(&P) -> bool) -> bool {
        let before = self.skipped.len();
        self.skipped.retain(|piece| !which(piece));
        self.skipped.len() < before
    }

    /// Returns whether messages do less than their budget allows, because earlier ones trapped.
    pub fn are_short(&self) -> bool {
        self.marker.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works through `pieces` pieces, of which those in `traps` trap. Returns the number of messages and the skipped pieces.
    fn work(pieces: u32, traps: &[u32]) -> (u32, Vec<u32>) {
        let (mut turns, mut next, mut late, mut messages) = (Turns::default(), 0, false, 0);
        while next < pieces {
            messages += 1;
            assert!(messages < 100_000, "stuck at {next}");
            // A message that traps changes nothing.
            let mut then = turns.clone();
            let (from, most) = match then.next(late) {
                Turn::All => (next, u32::MAX),
                Turn::Few(few) => (next, few),
                Turn::Only(at) => (at, 1),
                Turn::Find => {
                    then.ended(Some(next));
                    (turns, late) = (then, false);
                    continue;
                }
                Turn::Nothing => {
                    (turns, late) = (then, false);
                    continue;
                }
                Turn::Skip(at) => {
                    assert_eq!(at, Some(next), "finding does not trap");
                    next += 1;
                    (turns, late) = (then, false);
                    continue;
                }
            };
            let to = from.saturating_add(most).min(pieces);
            if traps.iter().any(|at| (from..to).contains(at) && !turns.skipped().contains(at)) {
                late = true;
                continue;
            }
            next = to;
            then.ended((next < pieces).then_some(next));
            (turns, late) = (then, false);
        }
        (messages, turns.skipped)
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
        let mut turns = Turns::<u32>::default();
        assert_eq!(turns.next(true), Turn::Nothing);
        for _ in 0..MESSAGES {
            assert_eq!(turns.next(false), Turn::Few(1_000));
            turns.ended(Some(1));
        }
        assert_eq!((turns.next(false), turns), (Turn::All, Turns::default()));
    }

    #[test]
    fn late_ticks_that_end_skip_nothing() {
        let mut turns = Turns::<u32>::default();
        // Every other tick is late because time jumps.
        for piece in 0..1_000 {
            assert_eq!(turns.next(true), Turn::Nothing);
            assert!(!matches!(turns.next(false), Turn::Nothing | Turn::Skip(_)), "{turns:?}");
            turns.ended(Some(piece));
        }
    }

    #[test]
    fn a_trap_while_finding_the_next_piece_is_reported() {
        let mut turns = Turns::<u32>::default();
        (0..3).for_each(|_| assert_eq!(turns.next(true), Turn::Nothing));
        assert_eq!(turns.clone().next(false), Turn::Find);
        assert_eq!((turns.next(true), turns), (Turn::Skip(None), Turns::default()));
    }

    #[test]
    fn oldest_skipped_piece_is_tried_again_above_the_maximum() {
        let mut turns = Turns::default();
        (0..60).for_each(|piece| turns.skip(piece));
        turns.skip(30);
        assert_eq!(turns.skipped().len(), MAX_SKIPPED);
        assert_eq!((turns.skipped()[0], turns.skipped()[MAX_SKIPPED - 1]), (10, 30));
        assert!(turns.try_again(|piece| *piece == 30) && !turns.try_again(|piece| *piece == 30));
        assert_eq!(turns.skipped().len(), MAX_SKIPPED - 1);
    }
}
