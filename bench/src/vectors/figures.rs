//! A list of named numbers: what one measurement gave.
//!
//! Names carry their unit last (`p99_ms`, `server_us`), and by it they are printed. Medians, ratios, tables and JSON
//! all go over the list, so a new figure is named once, where it is measured.

use serde_json::{Map, Value as Json};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures(Vec<(&'static str, f64)>);

/// What an earlier run's JSON is read for.
const COMPARED: [&str; 9] = [
    "recall",
    "queries_per_s",
    "p50_ms",
    "p99_ms",
    "server_us",
    "wall_s",
    "rows_per_s",
    "rss_bytes_per_row",
    "rss_ratio_to_f32",
];

impl Figures {
    pub(super) fn push(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value));
    }

    /// Pushes the value if there is one.
    pub(super) fn push_some(&mut self, name: &'static str, value: Option<f64>) {
        self.0.extend(value.map(|value| (name, value)));
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The median of each name over the rounds that have it.
    pub(super) fn median(rounds: &[Self]) -> Self {
        let mut medians = Self::default();
        for name in rounds.iter().flat_map(Self::names) {
            if medians.get(name).is_none() {
                let values = rounds.iter().filter_map(|round| round.get(name)).collect();
                medians.push(name, median(values));
            }
        }
        medians
    }

    /// Those of an object's members that runs are compared by.
    pub(super) fn from_json(object: &Json) -> Self {
        let value = |name: &&'static str| object[*name].as_f64().map(|value| (*name, value));
        Self(COMPARED.iter().filter_map(value).collect())
    }

    pub(super) fn to_json(&self) -> Map<String, Json> {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), Json::from(*value))).collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

/// As many decimals as the unit deserves.
pub(super) fn format(name: &str, value: f64) -> String {
    let n_decimals = match name {
        _ if name.contains("recall") => 4,
        _ if name.contains("ratio") => 3,
        _ if name.ends_with("_ms") => 3,
        _ if name.ends_with("_s") && !name.ends_with("per_s") => 2,
        _ if name.ends_with("_us") || name.ends_with("_per_s") || name.ends_with("_mib") => 1,
        _ if name.starts_with("n_") || name.ends_with("_bytes") => 0,
        _ => 2,
    };
    format!("{value:.n_decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_name() {
        let rounds: Vec<Figures> = [(1.0, Some(5.0)), (9.0, None), (2.0, Some(7.0))]
            .map(|(a, b)| {
                let mut figures = Figures::default();
                figures.push("a", a);
                figures.push_some("b", b);
                figures
            })
            .into();
        let median = Figures::median(&rounds);
        assert_eq!((median.get("a"), median.get("b"), median.get("c")), (Some(2.0), Some(6.0), None));
    }

    #[test]
    fn decimals_follow_the_unit() {
        assert_eq!(format("recall", 0.98765), "0.9877");
        assert_eq!(format("p99_ms", 1.23456), "1.235");
        assert_eq!(format("server_us", 1.26), "1.3");
        assert_eq!(format("queries_per_s", 100.04), "100.0");
        assert_eq!(format("wall_s", 1.236), "1.24");
    }
}
