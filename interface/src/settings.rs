//! Settings, each declared once: name, type, default, range, comment. A setting that is missing in persisted settings
//! has its default.

use crate::BadArgument;
use ic_coppice_macros::candid_type;
use std::fmt::Display;
use std::ops::RangeInclusive;
use thiserror::Error;

/// The reason why a change of settings was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A setting has an invalid value.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Declares the settings in force and a change of them, in which each setting may be left out. `@fixed` settings are not changed, and
/// `@nested` ones, which a build of the canister may lack, have a change of their own.
macro_rules! settings {
    (
        $(#[doc = $about:literal])* pub struct $settings:ident;
        $(#[doc = $about_change:literal])* pub struct $change:ident;
        $(@fixed { $($(#[doc = $fixed_doc:literal])* $fixed:ident: $fixed_type:ty = $fixed_default:expr;)* })?
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr $(, $range:expr)?;)*
        $(@nested { $($(#[doc = $nested_doc:literal])* $nested:ident: $nested_type:ty, $nested_change:ty;)* })?
    ) => {
        $(#[doc = $about])*
        #[ic_coppice_macros::candid_type]
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[serde(default)]
        pub struct $settings {
            $($($(#[doc = $fixed_doc])* pub $fixed: $fixed_type,)*)?
            $($(#[doc = $doc])* pub $field: $type,)*
            $($($(#[doc = $nested_doc])* pub $nested: Option<$nested_type>,)*)?
        }

        impl Default for $settings {
            fn default() -> Self {
                Self {
                    $($($fixed: $fixed_default,)*)?
                    $($field: $default,)*
                    $($($nested: None,)*)?
                }
            }
        }

        $(#[doc = $about_change])*
        #[ic_coppice_macros::candid_type]
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $change {
            $($(#[doc = $doc])* #[doc = "`None`: as it was."] pub $field: Option<$type>,)*
            $($($(#[doc = $nested_doc])* #[doc = "`None`: as it was."] pub $nested: Option<$nested_change>,)*)?
        }

        impl $settings {
            /// Returns the settings after a change.
            ///
            /// # Errors
            /// `BadArgument` if a value is out of its range, or belongs to settings that this build of the canister lacks.
            pub fn changed(&self, change: &$change) -> Result<Self, ConfigError> {
                let mut new = self.clone();
                $(if let Some(value) = change.$field {
                    $($crate::settings::check(stringify!($field), value, $range)?;)?
                    new.$field = value;
                })*
                $($(if let Some(change) = &change.$nested {
                    let in_force = new.$nested.as_ref().ok_or_else(|| $crate::settings::lacks(stringify!($nested)))?;
                    new.$nested = Some(in_force.changed(change)?);
                })*)?
                Ok(new)
            }
        }
    };
}
pub(crate) use settings;

/// Returns the error for a change of settings that this build of the canister lacks.
pub fn lacks(field: &str) -> ConfigError {
    BadArgument::new(field, "this build of the canister keeps no UTXO records").into()
}

/// Checks a value against its range.
///
/// # Errors
/// `BadArgument`.
pub fn check<T: PartialOrd + Display>(field: &str, value: T, range: RangeInclusive<T>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let why = format!("{value} is not from {} to {}", range.start(), range.end());
    Err(BadArgument::new(field, why).into())
}
