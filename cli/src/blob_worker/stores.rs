//! The stores of a worker: opens each once, and finds the store of each row.

use super::layout::Layout;
use super::place::{Place, Selector, is_within};
use super::store::{Fate, Store, Target};
use crate::exit::{Exit, WRONG_LINE};
use anyhow::Result;
use ic_coppice_interface::BlobDeletion;
use url::Url;
#[cfg(test)]
use {object_store::ObjectStore, object_store::path::Path, std::sync::Arc};

/// Stores of a worker.
#[derive(Clone, Debug)]
pub struct Stores(pub Vec<Store>);

impl Stores {
    /// Opens the stores of some places with `open`.
    ///
    /// # Errors
    /// When two places contradict each other, or a store cannot be opened.
    pub fn open(places: &[Place], layout: Layout, open: impl Fn(Url) -> Result<Store>) -> Result<Self> {
        let mut stores: Vec<Store> = Vec::new();
        for place in places {
            let wrong = |why: String| Exit::error(WRONG_LINE, why);
            let layout = place.layout(layout).map_err(wrong)?;
            let (of, url) = (place.of.clone(), place.url.clone());
            if stores.iter().any(|store| store.of.contains(&of)) {
                return Err(wrong(format!("--store {of} is given twice")));
            }
            let is_near = |store: &&Store| is_within(&store.url, &url) || is_within(&url, &store.url);
            let mut near = stores.iter().filter(is_near).flat_map(|store| &store.of);
            if let Some(other) = near.find(|other| other.clashes(&of)) {
                return Err(wrong(format!(
                    "--store {of} and --store {other} would be the same files within {url}: use separate folders"
                )));
            }
            match stores.iter_mut().find(|store| store.url == url) {
                Some(store) if store.layout != layout => {
                    return Err(wrong(format!(
                        "--store {of}: {url} is given with two layouts, {} and {layout}",
                        store.layout
                    )));
                }
                Some(store) => store.of.extend([of]),
                None => {
                    let mut store = open(url)?;
                    (store.of, store.layout) = ([of].into(), layout);
                    stores.push(store);
                }
            }
        }
        Ok(Self(stores))
    }

    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|store| store.url.to_string()).collect()
    }

    /// Returns the number of the store of a blob, and the blob there. The narrowest selector that matches the row decides.
    ///
    /// # Errors
    /// The fate of a blob that has no store, or no possible path there.
    pub fn find(&self, row: &BlobDeletion) -> Result<(usize, Target), Fate> {
        let asked = Selector::of(row);
        let all = self.0.iter().enumerate().flat_map(|(at, store)| store.of.iter().map(move |of| (of, at)));
        let narrowest = all.filter(|(of, _)| asked.is_within(of)).max_by_key(|(of, _)| *of);
        let (_, at) = narrowest.ok_or(Fate::Left(String::new()))?;
        let Store { layout, root, url, .. } = &self.0[at];
        let (path, checksum) = layout.paths(root, row, url.scheme() == "file").map_err(Fate::Failed)?;
        Ok((at, Target { id: row.id, path, checksum }))
    }

    /// Stores for tests: each with its blobs, its object store and its blobs per request.
    #[cfg(test)]
    pub fn of(stores: Vec<(&str, Arc<dyn ObjectStore>, usize)>) -> Self {
        let store = |(of, object_store, chunk): (&str, Arc<dyn ObjectStore>, usize)| {
            let url = Url::parse(&format!("s3://{}", of.replace(['/', '*'], "-"))).unwrap();
            let mut store = Store::new(url, Path::ROOT, object_store);
            (store.of, store.chunk) = ([of.parse().unwrap()].into(), chunk);
            store
        };
        Self(stores.into_iter().map(store).collect())
    }

    /// The same stores, with a folder and a layout.
    #[cfg(test)]
    pub fn below(mut self, folder: &str, layout: &Layout) -> Self {
        for store in &mut self.0 {
            (store.root, store.layout) = (folder.into(), *layout);
            store.url.set_path(folder);
        }
        self
    }
}
