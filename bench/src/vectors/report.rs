//! Tables for people, and the same tables as JSON.
//!
//! A table has label columns and figures; a figure that a row does not have is left out.

use super::figures::{self, Figures};
use super::flags::CommonFlags;
use super::provenance;
use super::server::Server;
use serde_json::{Map, Value as Json, json};
use std::fmt::{Display, Write};
use std::io;
use std::path::Path;

/// Rows of one first label.
pub(super) type Series = (String, Vec<(String, Figures)>);

/// A figure to divide, and what the quotient is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) of: &'static str,
    pub(super) name: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    title: &'static str,
    label_names: Vec<&'static str>,
    rows: Vec<(Vec<String>, Figures)>,
}

impl Table {
    pub(super) fn new(title: &'static str, label_names: &[&'static str]) -> Self {
        Self { title, label_names: label_names.to_vec(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, labels: &[&dyn Display], figures: Figures) {
        assert_eq!(labels.len(), self.label_names.len(), "a label for each column");
        self.rows.push((labels.iter().map(|label| label.to_string()).collect(), figures));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn to_text(&self) -> String {
        let mut names: Vec<&'static str> = Vec::new();
        for name in self.rows.iter().flat_map(|(_, figures)| figures.names()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let header = self.label_names.iter().chain(&names).map(|name| name.replace('_', " ")).collect();
        let mut lines: Vec<Vec<String>> = vec![header];
        for (labels, figures) in &self.rows {
            let cells = names
                .iter()
                .map(|name| figures.get(name).map_or("-".to_owned(), |v| figures::format(name, v)));
            lines.push(labels.iter().cloned().chain(cells).collect());
        }
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = format!("\n{}\n", self.title);
        for (index, line) in lines.iter().enumerate() {
            for (column, cell) in line.iter().enumerate() {
                let width = widths[column];
                // Writing to a String cannot fail.
                let _ = if column < self.label_names.len() {
                    write!(text, "{cell:<width$}  ")
                } else {
                    write!(text, "{cell:>width$}  ")
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
            if index == 0 {
                text += &"-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
                text.push('\n');
            }
        }
        text
    }

    /// Rows by their first label, in order: what is left of the labels, and the figures.
    pub(super) fn series(&self) -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        for (labels, figures) in &self.rows {
            let row = (labels[1..].join(" "), figures.clone());
            match series.iter_mut().find(|(name, _)| *name == labels[0]) {
                Some((_, rows)) => rows.push(row),
                None => series.push((labels[0].clone(), vec![row])),
            }
        }
        series
    }

    /// The first series' figures as shares of each other's, for rows that agree in the other labels.
    pub(super) fn ratios(&self, title: &'static str, names: &[Ratio]) -> Self {
        let mut table = Self::new(title, &["to", "at"]);
        let series = self.series();
        let Some(((_, first), others)) = series.split_first() else { return table };
        for (name, rows) in others {
            for (labels, theirs) in rows {
                let Some((_, ours)) = first.iter().find(|(l, _)| l == labels) else { continue };
                let mut figures = Figures::default();
                for ratio in names {
                    let pair = ours.get(ratio.of).zip(theirs.get(ratio.of));
                    figures.push_some(ratio.name, pair.filter(|(_, b)| *b != 0.0).map(|(a, b)| a / b));
                }
                table.push(&[name, labels], figures);
            }
        }
        table
    }

    /// Appends the table of the same title from a JSON file of this program's form; none is nothing to append.
    pub(super) fn extend_from_json(&mut self, path: &Path) -> io::Result<()> {
        let wrong = |text: String| io::Error::other(format!("{}: {text}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let document: Json = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let Some(rows) = document["tables"][self.title].as_array() else { return Ok(()) };
        for row in rows {
            let label = |name: &&str| match &row[*name] {
                Json::String(text) => Ok(text.clone()),
                Json::Number(number) => Ok(number.to_string()),
                _ => Err(wrong(format!("a row of {:?} without {name}", self.title))),
            };
            let labels = self.label_names.iter().map(label).collect::<io::Result<_>>()?;
            self.rows.push((labels, Figures::from_json(row)));
        }
        Ok(())
    }

    fn to_json(&self) -> Json {
        let row = |(labels, figures): &(Vec<String>, Figures)| {
            let labels = self.label_names.iter().zip(labels);
            let mut object: Map<String, Json> =
                labels.map(|(name, label)| ((*name).to_owned(), number_or_text(label))).collect();
            object.extend(figures.to_json());
            Json::Object(object)
        };
        self.rows.iter().map(row).collect()
    }
}

fn number_or_text(label: &str) -> Json {
    label.parse::<i64>().map_or_else(|_| Json::from(label), Json::from)
}

/// Collects the tables of a run.
#[derive(Debug)]
pub(super) struct Report {
    provenance: Json,
    tables: Vec<Table>,
}

impl Report {
    /// Prints what is measured where.
    pub(super) fn start(
        mode: &str,
        flags: &CommonFlags,
        args: &[String],
        servers: &[Server],
        data: &str,
    ) -> io::Result<Self> {
        let provenance = provenance::collect(args, servers, data, flags.data.seed)?;
        let set = &flags.set;
        println!("{mode}: {data}, {} M {} EF {}", set.quantization, set.m, set.ef_construction);
        println!(
            "{}; commit {}; seed {}",
            provenance["machine"].as_str().unwrap_or_default(),
            provenance["commit"].as_str().unwrap_or("unknown"),
            flags.data.seed
        );
        for server in servers.iter().filter(|server| server.pids.is_empty()) {
            eprintln!("note: no process id of {}: its CPU and memory are not measured", server.name);
        }
        Ok(Self { provenance, tables: Vec::new() })
    }

    /// Prints the table and keeps it.
    pub(super) fn show(&mut self, table: Table) {
        if !table.is_empty() {
            print!("{}", table.to_text());
            self.keep(table);
        }
    }

    /// Keeps the table for the JSON only.
    pub(super) fn keep(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// One line about where the figures come from, for a plot.
    pub(super) fn caption(&self) -> String {
        let text = |name: &str| self.provenance[name].as_str().unwrap_or("unknown").to_owned();
        format!("{}; commit {}; seed {}", text("machine"), text("commit"), self.provenance["seed"])
    }

    /// Writes the JSON if it was asked for.
    pub(super) fn finish(self, flags: &CommonFlags) -> io::Result<()> {
        let Some(path) = &flags.output.json else { return Ok(()) };
        let tables: Map<String, Json> =
            self.tables.iter().map(|table| (table.title.to_owned(), table.to_json())).collect();
        let document = json!({ "provenance": self.provenance, "tables": tables });
        std::fs::write(path, format!("{document:#}\n"))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_absent_figures_are_dashes() {
        let mut table = Table::new("search", &["server", "ef"]);
        let mut figures = Figures::default();
        figures.push("recall", 0.5);
        table.push(&[&"long name", &80], figures.clone());
        figures.push("p99_ms", 12.0);
        table.push(&[&"x", &7], figures);
        assert_eq!(
            table.to_text(),
            "\nsearch\n\
             server     ef  recall  p99 ms\n\
             -----------------------------\n\
             long name  80  0.5000       -\n\
             x          7   0.5000  12.000\n"
        );
        assert_eq!(table.to_json()[1], json!({ "server": "x", "ef": 7, "recall": 0.5, "p99_ms": 12.0 }));
    }
}
