//! Imports between files, and their cycles.

use crate::module::Modules;
use crate::paths;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An `impl` in one file for a type of another file.
pub struct Inherent {
    /// The file with the `impl`.
    pub file: PathBuf,
    /// The file of the type.
    pub of: PathBuf,
    /// Name of the type.
    pub name: String,
}

/// Files of a crate and their imports of each other. Paths are those below `src`.
pub struct Graph {
    /// Each production file.
    pub files: Vec<PathBuf>,
    /// The importing and the imported file, with one imported name.
    pub imports: BTreeMap<(PathBuf, PathBuf), String>,
    /// Each inherent `impl` of a type that another file defines.
    pub inherent: Vec<Inherent>,
}

pub(crate) fn of(modules: &Modules) -> Graph {
    let mut graph = Graph { files: modules.files.clone(), imports: BTreeMap::new(), inherent: Vec::new() };
    for module in modules.all.values() {
        for path in paths::written(module) {
            if let Some((file, name)) = paths::definition(modules, module, &path)
                && file != module.file
            {
                let edge = (modules.files[module.file].clone(), modules.files[file].clone());
                graph.imports.entry(edge).or_insert(name);
            }
        }
        for item in &module.items {
            if let syn::Item::Impl(syn::ItemImpl { trait_: None, self_ty, .. }) = item
                && let syn::Type::Path(of) = self_ty.as_ref()
                && let path = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>()
                && let Some((file, name)) = paths::definition(modules, module, &path)
                && file != module.file
            {
                let (file, of) = (modules.files[module.file].clone(), modules.files[file].clone());
                graph.inherent.push(Inherent { file, of, name });
            }
        }
    }
    graph
}

impl Graph {
    /// Sets of files that import each other. The file of a type and those that give it methods count as one, because Rust lets a type's
    /// methods lie in several files.
    pub fn cycles(&self) -> Vec<BTreeSet<PathBuf>> {
        let number: BTreeMap<&Path, usize> =
            self.files.iter().enumerate().map(|(n, file)| (file.as_path(), n)).collect();
        let mut one: Vec<usize> = (0..self.files.len()).collect();
        for inherent in &self.inherent {
            let (from, to) = (one[number[inherent.file.as_path()]], one[number[inherent.of.as_path()]]);
            one.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
        }
        let mut graph = DiGraphMap::<usize, ()>::new();
        for (from, to) in self.imports.keys() {
            let (from, to) = (one[number[from.as_path()]], one[number[to.as_path()]]);
            if from != to {
                graph.add_edge(from, to, ());
            }
        }
        let mut cycles: Vec<BTreeSet<PathBuf>> = tarjan_scc(&graph)
            .into_iter()
            .filter(|cycle| cycle.len() > 1)
            .map(|cycle| {
                (0..one.len()).filter(|file| cycle.contains(&one[*file])).map(|n| self.files[n].clone()).collect()
            })
            .collect();
        cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        cycles
    }
}
