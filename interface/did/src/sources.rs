//! Types of the interface as its sources declare them: names, fields in their order, comments.

use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Fields, Ident, Item, Lit, Meta, Token, Type};

/// A field of a record, or an alternative of a variant.
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Comment of the field, in one line.
    pub comment: String,
    /// Content of the field.
    pub content: Content,
}

/// Content of a type, or of a field.
pub enum Content {
    /// Nothing: of an alternative, or of a type without fields.
    Nothing,
    /// Another type.
    Type(Type),
    /// A record.
    Record(Vec<Field>),
    /// A variant.
    Variant(Vec<Field>),
}

/// A declared type.
pub struct Declaration {
    /// Comment of the type, in one line.
    pub comment: String,
    /// Name of the type's parameter.
    pub parameter: Option<String>,
    /// Content of the type.
    pub content: Content,
}

/// All types that the sources declare, by name.
#[derive(Default)]
pub struct Types(BTreeMap<String, Declaration>);

impl Types {
    /// Reads all source files of a directory.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let mut types = Self::default();
        types.directory(directory)?;
        Ok(types)
    }

    /// Returns a declared type.
    pub fn get(&self, name: &str) -> Option<&Declaration> {
        self.0.get(name)
    }

    fn directory(&mut self, directory: &Path) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.directory(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)?;
                self.file(&text).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn file(&mut self, text: &str) -> anyhow::Result<()> {
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Struct(of) => {
                    let content = match &of.fields {
                        Fields::Unnamed(only) if only.unnamed.len() == 1 => Content::Type(only.unnamed[0].ty.clone()),
                        Fields::Unit => Content::Nothing,
                        fields => Content::Record(named(fields)),
                    };
                    let parameter = of.generics.type_params().next().map(|of| of.ident.to_string());
                    self.add(&of.ident, comment(&of.attrs), parameter, content);
                }
                Item::Enum(of) => {
                    let case = |case: &syn::Variant| Field {
                        name: name(&case.ident, &case.attrs),
                        comment: comment(&case.attrs),
                        content: match &case.fields {
                            Fields::Unit => Content::Nothing,
                            Fields::Unnamed(only) if only.unnamed.len() == 1 => {
                                Content::Type(only.unnamed[0].ty.clone())
                            }
                            fields => Content::Record(named(fields)),
                        },
                    };
                    let cases = of.variants.iter().map(case).collect();
                    self.add(&of.ident, comment(&of.attrs), None, Content::Variant(cases));
                }
                Item::Macro(of) if of.mac.path.is_ident("settings") => of.mac.parse_body::<Settings>()?.add_to(self),
                Item::Macro(of) if of.mac.path.is_ident("hash") => {
                    for (attributes, ident) in of.mac.parse_body::<Hashes>()?.0 {
                        self.add(&ident, comment(&attributes), None, Content::Type(syn::parse_quote!(ByteBuf)));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, ident: &Ident, comment: String, parameter: Option<String>, content: Content) {
        self.0.insert(ident.to_string(), Declaration { comment, parameter, content });
    }
}

fn named(fields: &Fields) -> Vec<Field> {
    let field = |field: &syn::Field| {
        Some(Field {
            name: name(field.ident.as_ref()?, &field.attrs),
            comment: comment(&field.attrs),
            content: Content::Type(field.ty.clone()),
        })
    };
    fields.iter().filter_map(field).collect()
}

/// Returns the name on the wire.
fn name(ident: &Ident, attributes: &[Attribute]) -> String {
    let renamed = attributes.iter().filter(|attribute| attribute.path().is_ident("serde")).find_map(|attribute| {
        let mut name = None;
        attribute
            .parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
                }
                Ok(())
            })
            .ok()?;
        name
    });
    renamed.unwrap_or_else(|| ident.to_string().trim_start_matches("r#").into())
}

/// Returns a comment in one line, without examples, and with links as they read.
fn comment(attributes: &[Attribute]) -> String {
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
    let lines = attributes.iter().filter_map(line).take_while(|line| !line.starts_with("```"));
    without_links(lines.collect::<Vec<_>>().join(" ").trim())
}

/// Replaces each link (``[`Type::field`]``, ``[`name`](target)``) by the last name of its text.
fn without_links(text: &str) -> String {
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

/// Body of `hash!`.
struct Hashes(Vec<(Vec<Attribute>, Ident)>);

impl Parse for Hashes {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut found = Vec::new();
        while !input.is_empty() {
            found.push((input.call(Attribute::parse_outer)?, input.parse()?));
            input.parse::<Token![;]>()?;
        }
        Ok(Self(found))
    }
}

/// Body of `settings!`: the settings in force, and their change, in which each setting may be left out.
struct Settings {
    heads: [(Ident, String); 2],
    fixed: Vec<Setting>,
    changed: Vec<Setting>,
}

struct Setting {
    name: Ident,
    comment: String,
    value: Type,
    /// Type of the change; that of the value unless the setting is nested.
    change: Type,
}

impl Setting {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let (comment, name) = (comment(&input.call(Attribute::parse_outer)?), input.parse()?);
        input.parse::<Token![:]>()?;
        let mut value: Type = input.parse()?;
        let mut change = value.clone();
        // Nested settings, which a build may lack.
        if input.parse::<Option<Token![,]>>()?.is_some() {
            (value, change) = (syn::parse_quote!(Option<#value>), input.parse()?);
        }
        while !input.peek(Token![;]) {
            input.parse::<proc_macro2::TokenTree>()?;
        }
        input.parse::<Token![;]>()?;
        Ok(Self { name, comment, value, change })
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let head = || {
            let comment = comment(&input.call(Attribute::parse_outer)?);
            input.parse::<Token![pub]>()?;
            input.parse::<Token![struct]>()?;
            let name = input.parse()?;
            input.parse::<Token![;]>()?;
            syn::Result::Ok((name, comment))
        };
        let heads = [head()?, head()?];
        let (mut fixed, mut changed) = (Vec::new(), Vec::new());
        while !input.is_empty() {
            if input.parse::<Option<Token![@]>>()?.is_none() {
                changed.push(Setting::parse(input)?);
                continue;
            }
            let kind: Ident = input.parse()?;
            let group;
            syn::braced!(group in input);
            let into = if kind == "fixed" { &mut fixed } else { &mut changed };
            while !group.is_empty() {
                into.push(Setting::parse(&group)?);
            }
        }
        Ok(Self { heads, fixed, changed })
    }
}

impl Settings {
    fn add_to(&self, types: &mut Types) {
        let [(settings, about), (change, about_change)] = &self.heads;
        let in_force = |of: &Setting| Field {
            name: of.name.to_string(),
            comment: of.comment.clone(),
            content: Content::Type(of.value.clone()),
        };
        let fields = self.fixed.iter().chain(&self.changed).map(in_force).collect();
        types.add(settings, about.clone(), None, Content::Record(fields));
        let changed = |of: &Setting| {
            let change = &of.change;
            Field {
                name: of.name.to_string(),
                comment: format!("{} `null`: unchanged.", of.comment),
                content: Content::Type(syn::parse_quote!(Option<#change>)),
            }
        };
        types.add(change, about_change.clone(), None, Content::Record(self.changed.iter().map(changed).collect()));
    }
}
