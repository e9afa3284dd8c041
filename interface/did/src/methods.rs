//! Methods of the interface as they are declared, with their types as Rust text.

use anyhow::Context;
use ic_coppice_interface::Role;
use ic_coppice_interface::methods::TABLE;

/// A declared method.
pub struct Method {
    /// Area in which the method is declared.
    pub area: &'static str,
    /// Name of the method.
    pub name: &'static str,
    /// Kind of the method: a query changes nothing.
    pub is_query: bool,
    /// Roles of which a caller has one.
    pub roles: &'static [Role],
    /// Comment of the method, in one line.
    pub comment: String,
    /// Arguments, each with its name.
    pub args: Vec<(&'static str, syn::Type)>,
    /// Answer; `()` is none.
    pub answer: syn::Type,
    /// Error, for a method that may be refused.
    pub error: Option<syn::Type>,
}

struct Declared {
    name: &'static str,
    comment: &'static [&'static str],
    args: &'static [(&'static str, &'static str)],
    answer: &'static str,
    error: &'static str,
}

macro_rules! declared {
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        const DECLARED: &[Declared] = &[$($(Declared {
            name: stringify!($name),
            comment: &[$($doc),*],
            args: &[$((stringify!($arg), stringify!($type))),*],
            answer: stringify!($answer),
            error: [$(stringify!($error),)? ""][0],
        }),*),*];
    };
}
ic_coppice_interface::methods!(declared);

/// Returns all methods in the order of their declaration.
///
/// # Errors
/// A declared type is not Rust.
pub fn all() -> anyhow::Result<Vec<Method>> {
    let parse = |text: &str| syn::parse_str::<syn::Type>(text).with_context(|| format!("the type {text}"));
    let method = |(of, entry): (&Declared, &ic_coppice_interface::methods::Method)| {
        anyhow::ensure!(of.name == entry.name, "{} stands where the table has {}", of.name, entry.name);
        Ok(Method {
            area: entry.area,
            name: of.name,
            is_query: entry.is_query,
            roles: entry.roles,
            comment: of.comment.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            args: of.args.iter().map(|(name, of)| Ok((*name, parse(of)?))).collect::<anyhow::Result<_>>()?,
            answer: parse(of.answer)?,
            error: if of.error.is_empty() { None } else { Some(parse(of.error)?) },
        })
    };
    DECLARED.iter().zip(TABLE).map(method).collect()
}
