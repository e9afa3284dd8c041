//! Paths in a file, and the file that each path leads to.

use crate::module::{BINARY, Module, Modules, Name, left_out};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::HashSet;
use syn::visit::Visit;

/// The segments of a path, in order.
pub type Segments = Vec<String>;

/// Each path in the items of a module.
pub fn written(module: &Module) -> Vec<Segments> {
    let mut paths = Paths::default();
    module.items.iter().for_each(|item| paths.visit_item(item));
    paths.0
}

#[derive(Default)]
struct Paths(Vec<Segments>);

impl<'a> Visit<'a> for Paths {
    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'a syn::ItemUse) {
        if import.leading_colon.is_none() {
            used(&import.tree, &mut Vec::new(), &mut self.0);
        }
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'a syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if !left_out(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_stmt(&mut self, statement: &'a syn::Stmt) {
        let attributes = match statement {
            syn::Stmt::Local(local) => &local.attrs,
            syn::Stmt::Macro(call) => &call.attrs,
            syn::Stmt::Item(syn::Item::Use(import)) => &import.attrs,
            syn::Stmt::Item(_) | syn::Stmt::Expr(..) => return syn::visit::visit_stmt(self, statement),
        };
        if !left_out(attributes) {
            syn::visit::visit_stmt(self, statement);
        }
    }

    fn visit_expr_block(&mut self, block: &'a syn::ExprBlock) {
        if !left_out(&block.attrs) {
            syn::visit::visit_expr_block(self, block);
        }
    }
}

impl Paths {
    /// Collects the paths in the argument of a macro or an attribute, and in its string literals (`guard = "access::admin"`).
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Segments = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Ident(ident) if colons == 2 => {
                    colons = 0;
                    path.push(ident.to_string());
                }
                other => {
                    self.end(&mut path);
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        TokenTree::Literal(literal) => {
                            if let Ok(path) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                                .and_then(|text| text.parse::<syn::Path>())
                            {
                                self.visit_path(&path.clone());
                            }
                        }
                        TokenTree::Punct(_) => {}
                    }
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Segments) {
        if !path.is_empty() {
            self.0.push(std::mem::take(path));
        }
    }
}

fn used(tree: &syn::UseTree, before: &mut Segments, paths: &mut Vec<Segments>) {
    let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect();
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            used(&path.tree, before, paths);
            before.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => paths.push(before.clone()),
        syn::UseTree::Name(name) => paths.push(with(&name.ident)),
        syn::UseTree::Rename(renamed) => paths.push(with(&renamed.ident)),
        syn::UseTree::Glob(_) => paths.push(before.clone()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| used(tree, before, paths)),
    }
}

/// The file that defines the name to which a path of `module` leads, and the name; `None` for a name of another crate, and for a module's
/// name.
pub fn definition(modules: &Modules, module: &Module, path: &[String]) -> Option<(usize, String)> {
    follow(modules, &module.path, path, &mut HashSet::new())
}

/// Modules and paths that were already looked up, because aliases and glob imports may lead to each other.
type Seen = HashSet<(Segments, Segments)>;

fn follow(modules: &Modules, from: &[String], path: &[String], seen: &mut Seen) -> Option<(usize, String)> {
    let (first, rest) = path.split_first()?;
    let root = || from.iter().take(usize::from(from.first().is_some_and(|first| first == BINARY))).cloned().collect();
    match first.as_str() {
        "crate" | "$crate" => within(modules, root(), rest, seen),
        "self" => within(modules, from.to_vec(), rest, seen),
        "super" => within(modules, from.split_last()?.1.to_vec(), rest, seen),
        _ => within(modules, from.to_vec(), path, seen).or_else(|| {
            let binary = from.first().is_some_and(|first| first == BINARY);
            (binary && *first == modules.name).then(|| within(modules, Vec::new(), rest, seen))?
        }),
    }
}

/// Follows a path whose first segment is a name in the module `at`.
fn within(modules: &Modules, at: Segments, path: &[String], seen: &mut Seen) -> Option<(usize, String)> {
    if !seen.insert((at.clone(), path.to_vec())) {
        return None;
    }
    let (first, rest) = path.split_first()?;
    if first == "super" {
        return within(modules, at.split_last()?.1.to_vec(), rest, seen);
    }
    let module = modules.all.get(&at)?;
    let inner: Segments = at.iter().cloned().chain([first.clone()]).collect();
    // A function may have the same name as a module.
    if !rest.is_empty() && modules.all.contains_key(&inner) {
        return within(modules, inner, rest, seen);
    }
    match module.names.get(first) {
        Some(Name::Defined) => return Some((module.file, first.clone())),
        Some(Name::Alias(alias)) if alias != path => {
            let path: Segments = alias.iter().chain(rest).cloned().collect();
            // The alias names another crate: following an alias of the same name would lead here again.
            return if alias.first() == Some(first) && !modules.all.contains_key(&inner) {
                None
            } else {
                follow(modules, &at, &path, seen)
            };
        }
        _ => {}
    }
    // A glob import of another crate leads to no file of this one.
    let is_inside = |glob: &&Segments| {
        let first = &glob[0];
        let child: Segments = at.iter().cloned().chain([first.clone()]).collect();
        ["crate", "self", "super"].contains(&first.as_str())
            || modules.all.contains_key(&child)
            || module.names.contains_key(first)
    };
    module.globs.iter().filter(is_inside).find_map(|glob| {
        let path: Segments = glob.iter().chain(path).cloned().collect();
        follow(modules, &at, &path, seen)
    })
}
