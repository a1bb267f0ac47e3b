//! The vectors of a run and what is exactly nearest to them.

use super::flags::DataFlags;
use super::wrong;
use crate::clustered::{ClusteredVectors, VectorShape};
use crate::rows::{IdRows, Part, Rows};
use crate::truth::{Space, Truth};
use crate::truth_cache;
use std::io;
use std::path::PathBuf;

/// Generated queries come from indices that no base row has.
const FIRST_GENERATED_QUERY: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct Data {
    /// As they are loaded.
    pub(super) base: Rows,
    /// As they are asked for.
    pub(super) queries: Rows,
    pub(super) space: Space,
    /// "FILE" or how the rows were generated.
    pub(super) source: String,
    truth: Option<IdRows>,
    cache_dir: PathBuf,
}

impl Data {
    /// Reads or makes `n_rows` rows and the queries.
    pub(super) fn read(flags: &DataFlags, n_rows: usize) -> io::Result<Self> {
        if n_rows == 0 || flags.queries == 0 || flags.count == 0 {
            return Err(wrong("--rows, --queries and --count must be greater than zero"));
        }
        let (base, queries, source) = match &flags.base {
            Some(path) => {
                let base = Rows::read(path, Part::Base, n_rows)?;
                let query = flags.query.as_ref().unwrap_or(path);
                let is_hdf5 = path.extension().is_some_and(|e| e == "hdf5" || e == "h5");
                if flags.query.is_none() && !is_hdf5 {
                    return Err(wrong("--query is missing: only a .hdf5 file holds rows and queries"));
                }
                let queries = Rows::read(query, Part::Query, flags.queries)?;
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (base, queries, name)
            }
            None => Self::generate(flags, n_rows)?,
        };
        if base.len() < n_rows {
            return Err(wrong(format!("{source} has {} rows, this run needs {n_rows}", base.len())));
        }
        if queries.is_empty() {
            return Err(wrong("there are no queries"));
        }
        let space = Space::new(flags.metric, &base, &queries)?;
        let truth = match &flags.truth {
            Some(path) => Some(IdRows::read(path, flags.queries)?),
            None => None,
        };
        let cache_dir =
            flags.cache_dir.clone().unwrap_or_else(|| std::env::temp_dir().join("skerry-bench-truth"));
        Ok(Self { base, queries, space, source, truth, cache_dir })
    }

    fn generate(flags: &DataFlags, n_rows: usize) -> io::Result<(Rows, Rows, String)> {
        if flags.dim == 0 || flags.clusters == 0 {
            return Err(wrong("--dim and --clusters must be greater than zero"));
        }
        let shape = VectorShape { n_dims: flags.dim, n_clusters: flags.clusters, seed: flags.seed };
        let vectors = ClusteredVectors::new(shape);
        let queries = FIRST_GENERATED_QUERY..FIRST_GENERATED_QUERY + flags.queries as u64;
        let source = format!("generated, {} clusters, seed {}", flags.clusters, flags.seed);
        Ok((vectors.rows(0..n_rows as u64), vectors.rows(queries), source))
    }

    /// "20000 x 384 of FILE".
    pub(super) fn describe(&self) -> String {
        format!("{} x {} of {}", self.base.len(), self.base.n_dims(), self.source)
    }

    /// The exact `count` nearest of all rows, read if they came with the data.
    pub(super) fn truth_of_all(&self, count: usize) -> io::Result<Truth> {
        match &self.truth {
            Some(known) => self.space.known(known, count),
            None => Ok(self.truth_of(&self.all_ids(), count)),
        }
    }

    /// Asks for other rows from now on: what came with the data is about its own queries.
    pub(super) fn ask_for(&mut self, queries: Rows) -> io::Result<()> {
        self.space = Space::new(self.space.metric(), &self.base, &queries)?;
        self.queries = queries;
        self.truth = None;
        Ok(())
    }

    /// The exact `count` nearest of `ids`, kept for the next run.
    pub(super) fn truth_of(&self, ids: &[u32], count: usize) -> Truth {
        truth_cache::nearest(&self.cache_dir, &self.space, ids, count)
    }

    pub(super) fn all_ids(&self) -> Vec<u32> {
        self.ids_below(self.base.len())
    }

    pub(super) fn ids_below(&self, n_rows: usize) -> Vec<u32> {
        (0..n_rows as u32).collect()
    }
}
