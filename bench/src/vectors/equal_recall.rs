//! Compares time per query at equal recall.
//!
//! EF means different work in different indexes, so equal EF is not an equal question. Between two of its measured
//! points a peer's time is interpolated: the logarithm of the time over the logarithm of the share missed, in which
//! such curves are nearly straight. Nothing is told beyond a peer's measured points.

use super::figures::Figures;
use super::report::Table;

/// A recall of 1 is far, not infinitely far, along the axis of misses.
const LEAST_MISSED: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    recall: f64,
    /// Server CPU, or the time between queries if CPU was not measured.
    us: f64,
}

impl Point {
    fn of(figures: &Figures) -> Option<Self> {
        let us = figures.get("server_us").filter(|us| *us > 0.0);
        let us = us.or_else(|| figures.get("queries_per_s").map(|per_s| 1e6 / per_s))?;
        Some(Self { recall: figures.get("recall")?, us })
    }
}

/// For each point of the first series, what each other series needs for the same recall.
pub(super) fn compare(search: &Table) -> Table {
    let mut table = Table::new("time per query at equal recall", &["to", "ef"]);
    let series = search.series();
    let Some(((first_name, first), others)) = series.split_first() else { return table };
    for (name, rows) in others.iter().filter(|(name, _)| name != first_name) {
        let points: Vec<Point> = rows.iter().filter_map(|(_, figures)| Point::of(figures)).collect();
        for (ef, figures) in first {
            let Some(ours) = Point::of(figures) else { continue };
            let mut compared = Figures::default();
            compared.push("recall", ours.recall);
            compared.push("us", ours.us);
            if let Some(theirs) = at_recall(&points, ours.recall) {
                compared.push("peer_us", theirs);
                compared.push("ratio", ours.us / theirs);
            }
            table.push(&[name, ef], compared);
        }
    }
    table
}

/// The time of the curve through `points` at `recall`, if it lies between two of them.
fn at_recall(points: &[Point], recall: f64) -> Option<f64> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.recall.total_cmp(&b.recall).then(a.us.total_cmp(&b.us)));
    let x = |recall: f64| -(1.0 - recall).max(LEAST_MISSED).ln();
    for pair in points.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        if (low.recall..=high.recall).contains(&recall) {
            let width = x(high.recall) - x(low.recall);
            let share = if width > 0.0 { (x(recall) - x(low.recall)) / width } else { 0.0 };
            return Some((low.us.ln() + share * (high.us.ln() - low.us.ln())).exp());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points_and_not_beyond() {
        let point = |recall, us| Point { recall, us };
        let points = [point(0.99, 400.0), point(0.9, 100.0)];
        let end = at_recall(&points, 0.9).expect("the end of a curve is on it");
        assert!((end - 100.0).abs() < 1e-6, "{end}");
        let middle = at_recall(&points, 1.0 - 0.1f64.powf(1.5)).expect("between");
        assert!((middle - 200.0).abs() < 1e-6, "{middle}");
        assert_eq!(at_recall(&points, 0.89), None);
        assert_eq!(at_recall(&points, 0.999), None);
        assert_eq!(at_recall(&points[..1], 0.99), None);
    }

    #[test]
    fn a_twice_as_fast_server_has_half_the_time() {
        let mut table = Table::new("search", &["server", "ef"]);
        for (server, factor) in [("ours", 1.0), ("theirs", 2.0)] {
            for (ef, recall, us) in [(40, 0.95, 100.0), (80, 0.99, 150.0)] {
                let mut figures = Figures::default();
                figures.push("recall", recall);
                figures.push("server_us", us * factor);
                table.push(&[&server, &ef], figures);
            }
        }
        let compared = compare(&table);
        let series = compared.series();
        assert_eq!((series.len(), series[0].0.as_str(), series[0].1.len()), (1, "theirs", 2));
        for (_, figures) in &series[0].1 {
            assert!((figures.get("ratio").expect("within") - 0.5).abs() < 1e-9);
        }
    }
}
