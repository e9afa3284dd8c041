//! Modules of a crate: their files, and what each name in a module refers to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Item, UseTree, Visibility};

/// A name of a module.
#[derive(Debug, Clone)]
pub enum Name {
    /// An item of the module's own file.
    Defined,
    /// Another name, imported by a `use`.
    Alias(Vec<String>),
}

/// One module: a file, or an inline block of a file.
pub struct Module {
    /// Its path from the crate's root.
    pub path: Vec<String>,
    /// Index of the file that contains the module.
    pub file: usize,
    pub names: BTreeMap<String, Name>,
    /// Modules that a glob import includes.
    pub globs: Vec<Vec<String>>,
    pub items: Vec<Item>,
}

/// All modules in the production build of a crate.
pub struct Modules {
    /// Name of the crate, as its own binary writes it.
    pub name: String,
    /// Paths below the crate's `src`.
    pub files: Vec<PathBuf>,
    pub all: BTreeMap<Vec<String>, Module>,
}

/// Root of the binary's modules, which are separate from the library's.
pub const BINARY: &str = "main.rs";

impl Modules {
    /// Reads the library and the binary below `directory`.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).map_err(|e| e.to_string())?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
        let mut modules =
            Self { name: name.trim_matches('"').replace('-', "_"), files: Vec::new(), all: BTreeMap::new() };
        let source = directory.join("src");
        for (root, path) in [("lib.rs", vec![]), (BINARY, vec![BINARY.to_owned()])] {
            if source.join(root).exists() {
                modules.file(&source, Path::new(root), path)?;
            }
        }
        if modules.files.is_empty() { Err(format!("{}: no crate", directory.display())) } else { Ok(modules) }
    }

    fn file(&mut self, source: &Path, file: &Path, path: Vec<String>) -> Result<(), String> {
        let failed = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(source.join(file)).map_err(|e| failed(e.to_string()))?;
        let parsed = syn::parse_file(&text).map_err(|e| failed(e.to_string()))?;
        let index = self.files.len();
        self.files.push(file.to_owned());
        // The directory of the modules that the file declares.
        let directory = match file.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs" | "mod.rs") => file.parent().unwrap_or(Path::new("")).to_owned(),
            _ => file.with_extension(""),
        };
        self.module(source, &directory, index, path, parsed.items)
    }

    fn module(
        &mut self,
        source: &Path,
        directory: &Path,
        file: usize,
        path: Vec<String>,
        items: Vec<Item>,
    ) -> Result<(), String> {
        let mut module =
            Module { path: path.clone(), file, names: BTreeMap::new(), globs: Vec::new(), items: Vec::new() };
        for item in items {
            if attributes(&item).is_some_and(left_out) {
                continue;
            }
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
                    let directory = directory.join(&name);
                    match inner.content {
                        Some((_, items)) => self.module(source, &directory, file, path, items)?,
                        None => {
                            let (flat, nested) = (directory.with_extension("rs"), directory.join("mod.rs"));
                            let place = if source.join(&flat).exists() { flat } else { nested };
                            self.file(source, &place, path)?;
                        }
                    }
                }
                Item::Use(import) => {
                    flatten(&import.tree, &mut Vec::new(), &mut module);
                    if matches!(import.vis, Visibility::Inherited) {
                        module.items.push(Item::Use(import));
                    }
                }
                item => {
                    if let Some(name) = defined(&item) {
                        module.names.insert(name, Name::Defined);
                    }
                    module.items.push(item);
                }
            }
        }
        self.all.insert(path, module);
        Ok(())
    }
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, module: &mut Module) {
    let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, module);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last().cloned() {
                module.names.insert(last, Name::Alias(before.clone()));
            }
        }
        UseTree::Name(name) => {
            module.names.insert(name.ident.to_string(), Name::Alias(with(&name.ident)));
        }
        UseTree::Rename(renamed) => {
            module.names.insert(renamed.rename.to_string(), Name::Alias(with(&renamed.ident)));
        }
        UseTree::Glob(_) => module.globs.push(before.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, module)),
    }
}

/// The name that an item gives its module.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

/// Returns whether a `cfg` excludes the item from the production build.
pub fn left_out(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .any(|attribute| attribute.parse_args::<syn::Meta>().is_ok_and(|condition| holds(&condition) == Some(false)))
}

/// Returns whether a condition holds in production; `None` if that depends on the target.
fn holds(condition: &syn::Meta) -> Option<bool> {
    match condition {
        syn::Meta::Path(path) if path.is_ident("test") => Some(false),
        syn::Meta::NameValue(pair) if pair.path.is_ident("feature") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(feature), .. }) if feature.value() == "bench" => {
                Some(false)
            }
            _ => None,
        },
        syn::Meta::List(list) => {
            let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let inner: Vec<_> = list.parse_args_with(parser).ok()?.iter().map(holds).collect();
            let (all, any) = (list.path.is_ident("all"), list.path.is_ident("any"));
            if list.path.is_ident("not") {
                inner.first().copied().flatten().map(|holds| !holds)
            } else if all && inner.contains(&Some(false)) {
                Some(false)
            } else if any && inner.contains(&Some(true)) {
                Some(true)
            } else if (all || any) && !inner.contains(&None) {
                Some(all)
            } else {
                None
            }
        }
        _ => None,
    }
}
