//! Headers of messages: the type table of a reply's type, encoded once.

use crate::platform;
use candid::CandidType;
use candid::ser::TypeSerialize;
use std::any::TypeId;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes before the values of a message: its type table.
pub type Header = Rc<[u8]>;

thread_local! {
    static HEADERS: RefCell<Vec<(TypeId, Header)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the encoded bytes; traps if encoding failed.
pub fn must<T>(done: candid::Result<T>) -> T {
    done.unwrap_or_else(|error| platform::trap(&format!("the answer cannot be encoded: {error}")))
}

/// Returns the header of a type. The header is encoded once and kept until the next upgrade.
pub fn header<T: CandidType + 'static>() -> Header {
    HEADERS.with_borrow_mut(|known| {
        let id = TypeId::of::<T>();
        if let Some((_, header)) = known.iter().find(|(of, _)| *of == id) {
            return header.clone();
        }
        let mut types = TypeSerialize::new();
        must(types.push_type(&T::ty()));
        must(types.serialize());
        let header = Header::from([b"DIDL", types.get_result()].concat());
        known.push((id, header.clone()));
        header
    })
}
