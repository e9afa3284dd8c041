//! Links of ids and keys in the log: 12 bytes each, after a block's segments.

use ic_coppice_storage::table::Change;

/// Bytes of a link.
pub(crate) const LINK: usize = 12;
/// No posting.
pub(crate) const NONE: u64 = u64::MAX;

/// Bytes of `links` links in the log.
pub(crate) fn links_len(links: u32) -> u64 {
    u64::from(links) * LINK as u64
}

/// Splits a key's link into the posting before it and the offset of the key's entry in the index segment.
pub(crate) fn split_link(link: &[u8; LINK]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, at @ ..] = *link;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(at))
}

/// Returns the change of a table's entry that takes a posting out. If the posting is the newest one, `heir` becomes the newest.
pub(crate) fn without(posting: u64, heir: Option<u64>) -> impl Fn(u64) -> Change {
    move |newest| if newest == posting { heir.map_or(Change::Out, Change::To) } else { Change::Keep }
}
