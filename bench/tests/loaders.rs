//! Rows and ground truth from the files of other programs: numpy and h5py wrote those of `tests/data`, and what
//! damage does to them.

use proptest::prelude::*;
use skerry_bench::rows::{IdRows, Part, Rows};
use std::path::{Path, PathBuf};

const N_ROWS: usize = 30;
const N_DIMS: usize = 8;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn rows(name: &str, part: Part, max_rows: usize) -> Rows {
    Rows::read(&file(name), part, max_rows).expect(name)
}

/// A file of this test's own, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("skerry-loaders-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("temporary file");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn all_formats_give_the_same_rows() {
    let expected = rows("tiny_train.f4.npy", Part::Base, 1000);
    assert_eq!((expected.len(), expected.n_dims()), (N_ROWS, N_DIMS));
    // The first values of numpy's default_rng(1).standard_normal, which made the file.
    assert_eq!(expected.row(0)[..3], [0.345_584_18, 0.821_618_14, 0.330_437_06]);
    assert_eq!(rows("tiny_train.f8.npy", Part::Base, 1000), expected);
    assert_eq!(rows("tiny.hdf5", Part::Base, 1000), expected);
    assert_eq!(rows("tiny_chunked.hdf5", Part::Base, 1000), expected);
    for (a, b) in rows("tiny_train.f2.npy", Part::Base, 1000).values().iter().zip(expected.values()) {
        assert!((a - b).abs() <= b.abs() / 1024.0, "{a} is the half next to {b}");
    }
    let le = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let head = [(N_ROWS as u32).to_le_bytes(), (N_DIMS as u32).to_le_bytes()].concat();
    let fbin = Scratch::new("rows.fbin", &[head, le(expected.values())].concat());
    let of_row = |i| [&(N_DIMS as u32).to_le_bytes()[..], &le(expected.row(i))].concat();
    let fvecs = Scratch::new("rows.fvecs", &(0..N_ROWS).flat_map(of_row).collect::<Vec<u8>>());
    for path in [&fbin.0, &fvecs.0] {
        assert_eq!(Rows::read(path, Part::Base, 1000).expect("well-formed"), expected, "{}", path.display());
        assert_eq!(Rows::read(path, Part::Base, 7).expect("well-formed"), expected.first(7));
    }
    for name in ["tiny_train.f4.npy", "tiny.hdf5", "tiny_chunked.hdf5"] {
        assert_eq!(rows(name, Part::Base, 7), expected.first(7), "{name}");
    }
}

#[test]
fn hdf5_holds_queries_and_neighbours_too() {
    let queries = rows("tiny.hdf5", Part::Query, 1000);
    assert_eq!((queries.len(), queries.n_dims()), (3, N_DIMS));
    assert_eq!(rows("tiny_chunked.hdf5", Part::Query, 1000), queries);
    let expected = IdRows::read(&file("tiny_neighbors.i4.npy"), 1000).expect("int32");
    assert_eq!((expected.len(), expected.n_columns), (3, 10));
    // int32 in one file, int64 in the other.
    for name in ["tiny.hdf5", "tiny_chunked.hdf5"] {
        assert_eq!(IdRows::read(&file(name), 1000).expect(name), expected, "{name}");
    }
    let le: Vec<u8> = expected.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let head = [3u32.to_le_bytes(), 10u32.to_le_bytes()].concat();
    let distances = [0; 3 * 10 * 4];
    let ibin = Scratch::new("truth.ibin", &[&head[..], &le, &distances].concat());
    let of_row = |i: usize| [&10u32.to_le_bytes()[..], &le[i * 40..][..40]].concat();
    let ivecs = Scratch::new("truth.ivecs", &(0..3).flat_map(of_row).collect::<Vec<u8>>());
    for path in [&ibin.0, &ivecs.0] {
        assert_eq!(IdRows::read(path, 1000).expect("well-formed"), expected, "{}", path.display());
    }
}

#[test]
fn what_is_no_row_number_is_refused() {
    let head = [1u32.to_le_bytes(), 1u32.to_le_bytes()].concat();
    let ibin = Scratch::new("none.ibin", &[&head[..], &(-1i32).to_le_bytes()].concat());
    let error = IdRows::read(&ibin.0, 1).expect_err("-1");
    assert!(error.to_string().contains("-1 is no row number"), "{error}");
    let error = IdRows::read(&file("tiny_train.f4.npy"), 1).expect_err("floats");
    assert!(error.to_string().contains("floats"), "{error}");
    let error = Rows::read(&file("tiny_neighbors.i4.npy"), Part::Base, 1).expect_err("integers");
    assert!(error.to_string().contains("integers"), "{error}");
}

/// Reads the file both ways; what comes of it may be rows or an error, and both fit the file.
fn read_both(path: &Path, n_bytes: usize) {
    for part in [Part::Base, Part::Query] {
        if let Ok(rows) = Rows::read(path, part, 1000) {
            // Compressed rows may be larger than their file, others at most four times (a byte becomes a float).
            assert!(
                rows.values().len() <= n_bytes * 1032,
                "{} values of {n_bytes} bytes",
                rows.values().len()
            );
        }
    }
    if let Ok(ids) = IdRows::read(path, 1000) {
        assert!(ids.ids.len() <= n_bytes * 1032);
    }
}

fn damaged(
    name: &str,
    changes: &[(prop::sample::Index, u8)],
    length: Option<prop::sample::Index>,
) -> Vec<u8> {
    let mut bytes = std::fs::read(file(name)).expect(name);
    for (index, value) in changes {
        let at = index.index(bytes.len());
        bytes[at] = *value;
    }
    if let Some(length) = length {
        bytes.truncate(length.index(bytes.len()));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damage_is_an_error_or_other_rows_and_never_a_panic(
        name in prop::sample::select(vec![
            "tiny_train.f4.npy", "tiny_train.f2.npy", "tiny_neighbors.i4.npy", "tiny.hdf5", "tiny_chunked.hdf5",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let bytes = damaged(name, &changes, length);
        let scratch = Scratch::new(&format!("damaged-{name}"), &bytes);
        read_both(&scratch.0, bytes.len());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        extension in prop::sample::select(vec!["npy", "fvecs", "bvecs", "fbin", "u8bin", "i8bin", "ivecs", "ibin", "hdf5"]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        small_head in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if small_head {
            // A plausible first length, so that the body is reached.
            bytes.splice(0..bytes.len().min(8), [2, 0, 0, 0, 3, 0, 0, 0]);
        }
        let scratch = Scratch::new(&format!("any.{extension}"), &bytes);
        read_both(&scratch.0, bytes.len());
    }
}
