//! Exact neighbours kept in files, so that they are computed once per data set.
//!
//! The name is a hash of everything the result depends on; the format is big-ann-benchmarks' ground truth (number
//! of queries and of neighbours as uint32, ids as uint32, similarities as float32), which other tools read too. A
//! file that is damaged or does not fit is computed anew.

use crate::rows::Rows;
use crate::truth::{Space, Truth};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The nearest of `candidates`, from `directory` if they are there.
pub fn nearest(directory: &Path, space: &Space, candidates: &[u32], count: usize) -> Truth {
    let path = directory.join(format!("{:016x}.bin", key(space, candidates, count)));
    let n_to_find = count.min(candidates.len());
    if let Some(truth) = std::fs::read(&path).ok().and_then(|bytes| parse(&bytes, space, n_to_find)) {
        return truth;
    }
    let truth = space.nearest(candidates, count);
    if let Err(error) = write(&path, space.n_queries(), &truth) {
        eprintln!("note: exact neighbours are not kept: {}: {error}", path.display());
    }
    truth
}

/// Written aside and renamed: a reader never sees half a file.
fn write(path: &Path, n_queries: usize, truth: &Truth) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let aside = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let mut file = io::BufWriter::new(std::fs::File::create(&aside)?);
    for n in [n_queries, truth.n_to_find] {
        file.write_all(&u32::try_from(n).map_err(io::Error::other)?.to_le_bytes())?;
    }
    for id in &truth.ids {
        file.write_all(&id.to_le_bytes())?;
    }
    for similarity in &truth.similarities {
        file.write_all(&similarity.to_le_bytes())?;
    }
    file.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    std::fs::rename(aside, path)
}

fn parse(bytes: &[u8], space: &Space, n_to_find: usize) -> Option<Truth> {
    let (words, []) = bytes.as_chunks::<4>() else { return None };
    let n_values = space.n_queries() * n_to_find;
    let fits = words.len() == 2 + 2 * n_values
        && u32::from_le_bytes(words[0]) as usize == space.n_queries()
        && u32::from_le_bytes(words[1]) as usize == n_to_find;
    if !fits {
        return None;
    }
    let (ids, similarities) = words[2..].split_at(n_values);
    let ids: Vec<u32> = ids.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let similarities = similarities.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let in_range = ids.iter().all(|&id| (id as usize) < space.base().len());
    in_range.then_some(Truth { n_to_find, ids, similarities })
}

fn key(space: &Space, candidates: &[u32], count: usize) -> u64 {
    let mut hash = Hash(0x5345_4b52_5259_0001);
    hash.word(space.metric() as u64);
    hash.word(count as u64);
    hash.rows(space.base());
    hash.rows(space.queries());
    hash.word(candidates.len() as u64);
    candidates.iter().for_each(|&id| hash.word(u64::from(id)));
    hash.0
}

/// Multiply and rotate, a word at a time: not against malice, only against mistaking one input for another.
struct Hash(u64);

impl Hash {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    fn rows(&mut self, rows: &Rows) {
        self.word(rows.n_dims() as u64);
        self.word(rows.len() as u64);
        rows.values().iter().for_each(|v| self.word(u64::from(v.to_bits())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::Metric;

    #[test]
    fn a_second_call_reads_and_a_damaged_file_is_made_anew() {
        let directory = std::env::temp_dir().join(format!("skerry-bench-truth-{}", std::process::id()));
        let rows = Rows::new(1, (0..20).map(|i| i as f32).collect());
        let space = Space::new(Metric::L2, &rows, &rows.first(3)).expect("same dimensions");
        let all: Vec<u32> = (0..20).collect();
        let first = nearest(&directory, &space, &all, 4);
        assert_eq!(first, space.nearest(&all, 4));
        let files = || -> Vec<PathBuf> {
            std::fs::read_dir(&directory).expect("made").map(|f| f.expect("readable").path()).collect()
        };
        let path = files().pop().expect("one file");
        // A file that says something else is believed: so it was read.
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes[8] = 7;
        std::fs::write(&path, &bytes).expect("writable");
        assert_eq!(nearest(&directory, &space, &all, 4).ids[0], 7);
        for damaged in [&bytes[..bytes.len() - 1], &bytes[..8], &[]] {
            std::fs::write(&path, damaged).expect("writable");
            assert_eq!(nearest(&directory, &space, &all, 4), first);
        }
        bytes[8..12].copy_from_slice(&20u32.to_le_bytes());
        std::fs::write(&path, &bytes).expect("writable");
        assert_eq!(nearest(&directory, &space, &all, 4), first);
        nearest(&directory, &space, &all[1..], 4);
        nearest(&directory, &space, &all, 5);
        assert_eq!(files().len(), 3);
        std::fs::remove_dir_all(&directory).expect("removable");
    }
}
