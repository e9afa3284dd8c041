//! Card with the bytes of stable memory by owner, and the free bytes by size class.

use super::words::{bytes, count};
use ic_coppice_interface::{Owner, StorageStatus};
use maud::{Markup, html};

/// Returns an owner's name in words.
fn name(owner: Owner) -> &'static str {
    match owner {
        Owner::Chain => "blocks",
        Owner::Upload => "the open upload of a block",
        Owner::External => "transactions in blobs",
        Owner::Records => "UTXO records",
        Owner::Deletions => "deletion queue",
        Owner::UtxoIndex => "index of UTXO records",
        Owner::Headers => "headers",
        Owner::TransactionIndex => "index of transactions",
        Owner::KeyIndex => "index of secondary keys",
        Owner::Spaces => "settings, directories and logs",
        Owner::Stray => "pages of other code",
    }
}

/// Returns the card.
pub fn card(storage: &StorageStatus) -> Markup {
    let owners = storage.owners.iter().filter(|of| of.kept_bytes > 0);
    let free = storage.classes.iter().filter(|class| class.free > 0);
    html! {
        section.card {
            h3 { "Stable memory" }
            table {
                thead { tr { th { "owner" } th { "bytes" } } }
                tbody { @for of in owners { tr data-owner=(format!("{:?}", of.owner)) {
                    th { (name(of.owner)) } td data-label="bytes" data-bytes=(of.kept_bytes) { (bytes(of.kept_bytes)) }
                } } }
            }
            table {
                thead { tr { th { "free slots of" } th { "slots" } th { "bytes" } } }
                tbody { @for class in free { tr data-class=(class.class) {
                    @let free = class.free * u64::from(class.class);
                    th { (bytes(class.class.into())) } td data-label="slots" { (count(class.free)) }
                    td data-label="bytes" data-bytes=(free) { (bytes(free)) }
                } } }
            }
        }
    }
}
