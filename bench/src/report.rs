//! The result table in memtier_benchmark's layout, and below it what memtier lacks: CPU time per operation,
//! errors.
//!
//! A script that reads memtier's table reads this one: same columns, widths, titles and order.

use crate::cpu::CpuTimes;
use crate::flags::{CommandsKind, Workload};
use crate::run::RunResult;
use crate::stats::{CommandStats, RunStats};
use std::fmt::Write;

/// One line of a table: its label and counts. memtier prints "---" where a count has no meaning.
pub struct Row {
    pub label: String,
    pub stats: CommandStats,
    pub kind: RowKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    Sets,
    Gets,
    /// memtier always has this line; we send no WAIT, so it is zero.
    Waits,
    Arbitrary,
    Totals,
}

/// The rows of a run: commands of the same name are one row, as memtier groups them.
pub fn rows(workload: &Workload, stats: &RunStats) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    match workload.commands_kind {
        CommandsKind::SetAndGet => {
            let row = |label: &str, stats: CommandStats, kind| Row { label: label.to_owned(), stats, kind };
            rows.push(row("Sets", stats.commands[0].clone(), RowKind::Sets));
            rows.push(row("Gets", stats.commands[1].clone(), RowKind::Gets));
            rows.push(row("Waits", CommandStats::default(), RowKind::Waits));
        }
        CommandsKind::Arbitrary => {
            for (template, stats) in workload.commands.iter().zip(&stats.commands) {
                let label = plural(&template.name);
                match rows.iter_mut().find(|row| row.label == label) {
                    Some(row) => row.stats.add(stats),
                    None => rows.push(Row { label, stats: stats.clone(), kind: RowKind::Arbitrary }),
                }
            }
        }
    }
    rows.push(Row { label: "Totals".to_owned(), stats: stats.totals(), kind: RowKind::Totals });
    rows
}

/// "VSIM" becomes "Vsims", memtier's way to name a row.
fn plural(name: &str) -> String {
    let mut label = name.to_lowercase();
    if let Some(first) = label.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    label + "s"
}

/// The lines before the first table.
pub fn run_information(workload: &Workload) -> String {
    let (amount, unit) = workload.length_in_words();
    format!(
        "{:<9} Threads\n{:<9} Connections per thread\n{amount:<9} {unit}\n",
        workload.n_threads, workload.n_clients_per_thread
    )
}

/// One table under `title`.
pub fn table(workload: &Workload, title: &str, stats: &RunStats) -> String {
    let rows = rows(workload, stats);
    let label_width = rows.iter().map(|row| row.label.len() - 1).max().unwrap_or(0).max(6) + 1;
    let with_hits = workload.commands_kind == CommandsKind::SetAndGet;
    let mut widths = vec![12];
    let mut titles = vec!["Ops/sec".to_owned()];
    if with_hits {
        widths.extend([12, 12]);
        titles.extend(["Hits/sec".to_owned(), "Misses/sec".to_owned()]);
    }
    widths.push(15);
    titles.push("Avg. Latency".to_owned());
    for percentile in &workload.report.percentiles {
        widths.push(15);
        titles.push(format!("p{percentile} Latency"));
    }
    widths.push(12);
    titles.push("KB/sec".to_owned());

    let total_width = label_width + 1 + widths.iter().map(|w| w + 1).sum::<usize>();
    let mut out = format!("\n\n{title}\n{}\n", "=".repeat(total_width));
    let mut line = format!("{:<label_width$} ", "Type");
    for (title, &width) in titles.iter().zip(&widths) {
        line += &format!("{title:>width$} ");
    }
    out += &format!("{line}\n{}\n", "-".repeat(total_width));
    for row in &rows {
        out += &format!("{:<label_width$} ", row.label);
        for (cell, &width) in cells(workload, stats, row, with_hits).iter().zip(&widths) {
            out += &format!("{cell:>width$} ");
        }
        out.push('\n');
    }
    out
}

fn cells(workload: &Workload, stats: &RunStats, row: &Row, with_hits: bool) -> Vec<String> {
    const NOTHING: &str = "---";
    let per_s = |amount: u64| format!("{:.2}", stats.per_second(amount as f64));
    let mut cells = vec![per_s(row.stats.n_ops)];
    if with_hits {
        let gets = &stats.commands[1];
        if matches!(row.kind, RowKind::Gets | RowKind::Totals) {
            cells.extend([per_s(gets.n_ops - gets.n_misses), per_s(gets.n_misses)]);
        } else {
            cells.extend([NOTHING.to_owned(), NOTHING.to_owned()]);
        }
    }
    let measured = row.stats.n_ops > 0 || matches!(row.kind, RowKind::Arbitrary | RowKind::Totals);
    let latency = |ms: f64| if measured { format!("{ms:.5}") } else { NOTHING.to_owned() };
    cells.push(latency(row.stats.mean_ms()));
    cells.extend(workload.report.percentiles.iter().map(|&p| latency(row.stats.percentile_ms(p))));
    cells.push(match row.kind {
        RowKind::Waits => NOTHING.to_owned(),
        _ => {
            format!("{:.2}", stats.per_second((row.stats.rx_bytes + row.stats.tx_bytes) as f64 / 1024.0))
        }
    });
    cells
}

/// memtier's "Request Latency Distribution".
pub fn histogram(workload: &Workload, stats: &RunStats) -> String {
    let mut out = format!(
        "\n\nRequest Latency Distribution\n{:<6} {:>12} {:>12}\n{}\n",
        "Type",
        "<= msec   ",
        "Percent",
        "-".repeat(72)
    );
    let rows = rows(workload, stats);
    for row in rows.iter().filter(|row| row.kind != RowKind::Totals) {
        let label = row.label.trim_end_matches('s').to_uppercase();
        for step in row.stats.latency_us.iter_quantiles(5) {
            let ms = step.value_iterated_to() as f64 / 1000.0;
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{label:<6} {ms:8.3} {:12.3}", step.quantile() * 100.0);
        }
        out += "---\n";
    }
    out
}

/// CPU time per operation, and errors if there were any.
pub fn cpu_and_errors(workload: &Workload, result: &RunResult) -> String {
    let n_ops = result.stats.totals().n_ops;
    let mut out = format!(
        "\n{:<24} {:>12} {:>12} {:>12} {:>10} {:>10} {:>7}\n{}\n",
        "CPU time per operation",
        "user ns",
        "system ns",
        "total ns",
        "user s",
        "system s",
        "cores",
        "-".repeat(94)
    );
    let mut line = |label: &str, times: CpuTimes| {
        let per_op = |ns: u64| if n_ops > 0 { ns as f64 / n_ops as f64 } else { 0.0 };
        let _ = writeln!(
            out,
            "{label:<24} {:12.1} {:12.1} {:12.1} {:10.2} {:10.2} {:7.2}",
            per_op(times.user_ns),
            per_op(times.system_ns),
            per_op(times.total_ns()),
            times.user_ns as f64 / 1e9,
            times.system_ns as f64 / 1e9,
            result.stats.per_second(times.total_ns() as f64 / 1e9),
        );
    };
    if let Some(server) = result.cpu.server {
        line("server", server);
    }
    if workload.report.server_threads {
        for thread in &result.cpu.server_threads {
            line(&format!("  {} {}", thread.tid, thread.name), thread.times);
        }
    }
    line("skerry-bench", result.cpu.generator);
    out + &errors(&result.stats)
}

fn errors(stats: &RunStats) -> String {
    let n_errors = stats.totals().n_errors;
    if n_errors == 0 && stats.n_connection_errors == 0 {
        return String::new();
    }
    let first = stats.first_error.as_deref().unwrap_or("unknown");
    format!(
        "\nERRORS: {n_errors} error replies, {} lost connections; the first: {first}\n",
        stats.n_connection_errors
    )
}
