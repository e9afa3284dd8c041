//! Headers of messages: the type table of a reply's type, encoded once.

use crate::platform;
use candid::CandidType;
use candid::types::{Serializer, Type};
use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

/// Bytes before the values of a message: its type table.
pub type Header = Rc<[u8]>;

thread_local! {
    static HEADERS: RefCell<Vec<(TypeId, Header)>> = const { RefCell::new(Vec::new()) };
}

/// Encodes only the type table of `T`.
struct TypeOnly<T>(PhantomData<T>);

impl<T: CandidType> CandidType for TypeOnly<T> {
    fn _ty() -> Type {
        T::_ty()
    }

    fn id() -> candid::types::TypeId {
        T::id()
    }

    fn idl_serialize<S: Serializer>(&self, _: S) -> Result<(), S::Error> {
        Ok(())
    }
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
        let header = Header::from(must(candid::encode_one(TypeOnly::<T>(PhantomData))));
        known.push((id, header.clone()));
        header
    })
}
