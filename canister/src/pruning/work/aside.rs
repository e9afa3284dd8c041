//! Pieces that are passed over because they trap (`marker.rs`).

/// Adds a piece. Of more than `most` the oldest is tried again.
pub fn add<P: PartialEq>(aside: &mut Vec<P>, piece: P, most: usize) {
    aside.retain(|other| *other != piece);
    aside.push(piece);
    if aside.len() > most {
        aside.remove(0);
    }
}
