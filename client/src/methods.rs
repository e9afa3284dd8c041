//! Methods of the interface, under their own names and with their own comments, as `ic_coppice_interface::methods!` declares them.
//!
//! An argument is taken by value or by reference. A refusal of the canister comes as [`Error::Refused`](crate::Error).

use crate::{CallError, Client, Error, Transport};
use candid::Principal;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::borrow::Borrow;

macro_rules! client {
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        impl<T: Transport> Client<T> {
            $($(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// The canister refuses the call, or there is no answer.
                pub async fn $name(&self $(, $arg: impl Borrow<$type>)*) -> client!(@result $answer $(, $error)?) {
                    client!(@answer self.$kind(stringify!($name), ($($arg.borrow(),)*)).await $(, $error)?)
                }
            )*)*
        }

        /// Returns each method with the type of its reply.
        #[cfg(test)]
        pub(crate) fn replies(types: &mut candid::types::internal::TypeContainer) -> Vec<(&'static str, candid::types::Type)> {
            vec![$($((stringify!($name), types.add::<client!(@reply $answer $(, $error)?)>()),)*)*]
        }
    };
    (@result $answer:ty) => { Result<$answer, CallError> };
    (@result $answer:ty, $error:ty) => { Result<$answer, Error<$error>> };
    (@reply $answer:ty) => { $answer };
    (@reply $answer:ty, $error:ty) => { Result<$answer, $error> };
    (@answer $answer:expr) => { $answer };
    (@answer $answer:expr, $error:ty) => {
        match $answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(Error::<$error>::Refused(why)),
            Err(error) => Err(Error::Call(error)),
        }
    };
}
methods!(client);
