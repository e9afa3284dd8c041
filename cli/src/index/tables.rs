//! The tables `keys` and `receipts`: whether a run fills them, and which blocks have their rows.

/// The tables that a run fills besides `blocks`, `transactions` and `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    pub keys: bool,
    pub receipts: bool,
}

impl Default for Tables {
    fn default() -> Self {
        Self { keys: true, receipts: false }
    }
}

impl Tables {
    pub const NONE: Self = Self { keys: false, receipts: false };
}

/// The last block whose rows each table has; `None` if it has no rows of any block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Through {
    /// The last block whose keys are in `keys`.
    pub keys: Option<u64>,
    /// The last block whose receipts are in `receipts`.
    pub receipts: Option<u64>,
}

impl Through {
    /// Returns the last block whose rows all of these tables have.
    pub(super) fn of(self, tables: Tables) -> Option<u64> {
        let through = [(tables.keys, self.keys), (tables.receipts, self.receipts)];
        through.into_iter().filter(|(fills, _)| *fills).map(|(_, through)| through).min().flatten()
    }

    /// Returns the same after all blocks above one were removed.
    pub(super) fn below(self, block: Option<u64>) -> Self {
        Self { keys: self.keys.min(block), receipts: self.receipts.min(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_with_fewer_blocks_decides_what_all_tables_have() {
        let through = Through { keys: Some(7), receipts: Some(3) };
        let of = |keys, receipts| through.of(Tables { keys, receipts });
        assert_eq!(
            [of(true, false), of(false, true), of(true, true), of(false, false)],
            [Some(7), Some(3), Some(3), None]
        );
        assert_eq!(Through { keys: None, ..through }.of(Tables { keys: true, receipts: true }), None);
        assert_eq!(through.below(Some(5)), Through { keys: Some(5), receipts: Some(3) });
        assert_eq!(through.below(None), Through::default());
    }
}
