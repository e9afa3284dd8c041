//! Pages of a kept block (`/block/NUMBER`) and a kept transaction (`/tx/ID`).

use super::super::answer::Answer;
use super::frame::{counted, frame, row};
use super::records;
use super::words::{bytes, count, moment};
use crate::state::State;
use crate::state::records::KEPT;
use ic_coppice_interface::segments::Segment;
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{BlockHeader, ReadError};
use maud::{Markup, html};

/// Maximum ids of a block that are shown.
const IDS: u32 = 1_000;
/// Maximum bytes of a receipt that are shown.
const RECEIPT: usize = 4_096;

/// Decodes hexadecimal text, or returns `None` for other text.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

fn answer(status: u16, title: &str, content: Markup) -> Answer {
    let page = frame(title, None, html! { main { h1 { (title) } (content) } });
    Answer::new(status, "text/html; charset=utf-8", page.into_string())
}

fn refused(title: &str, why: &ReadError) -> Answer {
    let (status, said) = match why {
        ReadError::NotFound => (404, "It is not kept: it was pruned, or never existed.".to_string()),
        ReadError::Pruned { first_available } => {
            (410, format!("It was pruned: the oldest block that is kept is {}.", count(*first_available)))
        }
        ReadError::Corrupt { why } => (500, format!("It cannot be read: {why}.")),
        other => (500, format!("It cannot be shown: {other}.")),
    };
    answer(status, title, html! { p { (said) } })
}

fn header(header: &BlockHeader) -> Markup {
    let lengths =
        [("body", header.lengths.body), ("receipts", header.lengths.receipts), ("index", header.lengths.index)];
    let digests = [&header.sha256.body, &header.sha256.receipts, &header.sha256.index];
    let parent = header.parent_hash.as_ref().map_or("unknown".into(), |parent| hex(parent));
    let before = header.number.checked_sub(1);
    html! {
        section.card {
            h3 { "Header" }
            table.kept {
                (row("number", html! { (counted("number", header.number)) }))
                (row("hash", html! { code { (hex(&header.hash)) } }))
                (row("parent", html! { @match before {
                    Some(before) => a href=(format!("/block/{before}")) { code { (parent) } },
                    None => code { (parent) },
                } }))
                (row("timestamp in the chain", html! { (moment(header.timestamp_secs.saturating_mul(1_000_000_000))) }))
                (row("transactions", html! { (counted("transactions", header.transactions.into())) }))
                (row("keys", html! { (counted("keys", header.keys.into())) }))
                @for ((name, length), digest) in lengths.into_iter().zip(digests) {
                    (row(name, html! { (bytes(length)) ", SHA-256 " code { (hex(digest)) } }))
                }
            }
        }
    }
}

/// Returns the first ids of a block.
fn ids(state: &State, number: u64, transactions: u32) -> Result<Vec<String>, ReadError> {
    let wanted = transactions.min(IDS);
    let segment = Segment::Index as u8;
    let part = state.chain.segment(&state.blobs, number, segment, 0, 4 + 32 * u64::from(wanted))?;
    let (all, _) = part.bytes.get(4..).unwrap_or_default().as_chunks::<32>();
    Ok(all.iter().take(wanted as usize).map(|id| hex(id)).collect())
}

/// A block: its header and the ids of its transactions.
pub fn block(state: &State, number: &str) -> Answer {
    let Ok(number) = number.parse::<u64>() else {
        return Answer::text(400, "/block/NUMBER: a block's number has digits only\n");
    };
    let title = format!("Block {}", count(number));
    let found = state.chain.header(number).and_then(|header| Ok((ids(state, number, header.transactions)?, header)));
    let (ids, of) = match found {
        Ok(found) => found,
        Err(why) => return refused(&title, &why),
    };
    let more = of.transactions as usize - ids.len();
    let content = html! {
        (header(&of))
        section.card {
            h3 { "Transactions" }
            @if ids.is_empty() { p { "The block has none." } }
            ol.ids start="0" { @for id in &ids { li { a href=(format!("/tx/{id}")) { code { (id) } } } } }
            @if more > 0 { p.note { "and " (count(more as u64)) " more" } }
        }
    };
    answer(200, &title, content)
}

/// Returns the page of a transaction: its place, its receipt and its UTXO record.
pub fn transaction(state: &State, id: &str) -> Answer {
    let Some(bytes_of) = unhex(id).filter(|id| id.len() == 32) else {
        return Answer::text(400, "/tx/ID: a transaction's id is 64 hexadecimal digits\n");
    };
    let title = "Transaction";
    let location = state.chain.location(&state.blobs, &bytes_of);
    let record = if KEPT { records::card_of(state, &bytes_of) } else { None };
    if let (Err(why), None) = (&location, &record) {
        return refused(title, why);
    }
    let receipt = state.chain.receipt(&state.blobs, &bytes_of).ok().map(|receipt| receipt.bytes);
    let content = html! {
        section.card {
            h3 { "Transaction" }
            table.kept {
                (row("id", html! { code { (hex(&bytes_of)) } }))
                @if let Ok(at) = &location {
                    (row("block", html! { a href=(format!("/block/{}", at.block_number)) { (counted("block", at.block_number)) }
                        ", " code { (hex(&at.block_hash)) } }))
                    (row("position", html! { (counted("position", at.position.into())) }))
                } @else { (row("block", html! { "no kept block has it" })) }
            }
        }
        @if location.is_ok() {
            section.card {
                h3 { "Receipt" }
                @match &receipt {
                    None => p { "The block has no receipts." },
                    Some(receipt) => {
                        p { (bytes(receipt.len() as u64)) "." }
                        p.receipt { code { (hex(&receipt[..receipt.len().min(RECEIPT)])) } }
                        @if receipt.len() > RECEIPT { p.note { "and " (bytes((receipt.len() - RECEIPT) as u64)) " more" } }
                    },
                }
            }
        }
        @if let Some(record) = &record { (record) }
    };
    answer(200, title, content)
}
