//! What this crate says of its types, to be held against the interface's file.

use std::collections::BTreeMap;
use std::path::Path;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Fields, Ident, Item, Lit, Meta, Token};

/// A comment in one line, links as they read.
fn said(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(text) => Some(text.value().trim().to_string()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    plain(&attributes.iter().filter_map(line).collect::<Vec<_>>().join(" "))
}

/// A text whose links (``[`Type::field`]``, ``[`name`](target)``) are the last name alone.
fn plain(text: &str) -> String {
    let mut left = text;
    let mut plain = String::new();
    while let Some((before, rest)) = left.split_once("[`") {
        let Some((link, after)) = rest.split_once("`]") else { break };
        let name = link.rsplit("::").next().unwrap_or(link);
        plain += &format!("{before}`{name}`");
        left = after.strip_prefix('(').and_then(|target| Some(target.split_once(')')?.1)).unwrap_or(after);
    }
    plain + left
}

fn fields(of: &str, fields: &Fields, found: &mut BTreeMap<String, String>) {
    for field in fields {
        if let Some(name) = &field.ident {
            let name = name.to_string();
            found.insert(format!("{of}.{}", name.trim_start_matches("r#")), said(&field.attrs));
        }
    }
}

/// Comments of `settings!`: of the settings in force and of their change, in which each setting may be left out.
struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Reads the declaration of a setting. A change names those that are not fixed.
    fn setting(&mut self, input: ParseStream, [settings, change]: [&Ident; 2], is_fixed: bool) -> syn::Result<()> {
        let (comment, name): (String, Ident) = (said(&input.call(Attribute::parse_outer)?), input.parse()?);
        input.parse::<Token![:]>()?;
        while !input.peek(Token![;]) {
            input.parse::<proc_macro2::TokenTree>()?;
        }
        input.parse::<Token![;]>()?;
        if !is_fixed {
            let comment = format!("{}; none: as it was.", comment.trim_end_matches('.'));
            self.0.insert(format!("{change}.{name}"), comment);
        }
        self.0.insert(format!("{settings}.{name}"), comment);
        Ok(())
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut found = Self(BTreeMap::new());
        let mut type_of = || {
            let comment = said(&input.call(Attribute::parse_outer)?);
            input.parse::<Token![pub]>()?;
            input.parse::<Token![struct]>()?;
            let name: Ident = input.parse()?;
            input.parse::<Token![;]>()?;
            found.0.insert(name.to_string(), comment);
            syn::Result::Ok(name)
        };
        let (settings, change) = (type_of()?, type_of()?);
        while !input.is_empty() {
            if input.parse::<Option<Token![@]>>()?.is_none() {
                found.setting(input, [&settings, &change], false)?;
                continue;
            }
            let kind: Ident = input.parse()?;
            let group;
            syn::braced!(group in input);
            while !group.is_empty() {
                found.setting(&group, [&settings, &change], kind == "fixed")?;
            }
        }
        Ok(found)
    }
}

fn file(path: &Path, found: &mut BTreeMap<String, String>) {
    for item in syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items {
        match item {
            Item::Struct(item) => {
                let name = item.ident.to_string();
                fields(&name, &item.fields, found);
                found.insert(name, said(&item.attrs));
            }
            Item::Enum(item) => {
                for variant in &item.variants {
                    let name = format!("{}.{}", item.ident, variant.ident);
                    fields(&name, &variant.fields, found);
                    found.insert(name, said(&variant.attrs));
                }
                found.insert(item.ident.to_string(), said(&item.attrs));
            }
            Item::Macro(item) if item.mac.path.is_ident("settings") => {
                found.extend(item.mac.parse_body::<Settings>().unwrap().0);
            }
            _ => {}
        }
    }
}

/// What each type of the crate, and each of its fields (`Type.field`, `Type.Variant.field`), says of itself.
pub fn comments(sources: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(comments(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            file(&path, &mut found);
        }
    }
    found
}
