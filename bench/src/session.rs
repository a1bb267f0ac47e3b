//! A session of one or several runs: prints the tables, writes the JSON, tells the exit code.

use crate::flags::Workload;
use crate::json;
use crate::report;
use crate::run::{RunCpu, RunResult, run_once};
use crate::stats::RunStats;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the workload `--run-count` times and reports. Fails with 1 if any reply was an error or a connection
/// broke.
pub fn run(workload: &Workload) -> io::Result<ExitCode> {
    let mut results = Vec::new();
    for run_number in 1..=workload.run_count {
        eprintln!("[RUN #{run_number}] {}", workload.address);
        results.push(run_once(workload, run_number)?);
    }
    let failed = results.iter().any(|r| r.stats.n_connection_errors > 0 || r.stats.totals().n_errors > 0);
    let titled = titled_results(workload, results);
    let mut text = report::run_information(workload);
    for (title, result) in &titled {
        text += &report::table(workload, title, &result.stats);
        if !workload.report.hide_histogram {
            text += &report::histogram(workload, &result.stats);
        }
        text += &report::cpu_and_errors(workload, result);
    }
    match &workload.report.out_file {
        Some(path) => std::fs::write(path, text)?,
        None => io::stdout().write_all(text.as_bytes())?,
    }
    if let Some(path) = &workload.report.json_out_file {
        std::fs::write(path, format!("{:#}\n", json::document(workload, &titled)))?;
    }
    Ok(if failed && !workload.report.ignore_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// memtier's titles: one table for one run; best, worst and average for several.
fn titled_results(workload: &Workload, results: Vec<RunResult>) -> Vec<(String, RunResult)> {
    if let [_] = results.as_slice() {
        return results.into_iter().map(|result| ("ALL STATS".to_owned(), result)).collect();
    }
    let mut titled = Vec::new();
    if workload.report.print_all_runs {
        for (index, result) in results.iter().enumerate() {
            titled.push((format!("RUN #{} RESULTS", index + 1), result.clone()));
        }
    }
    let by_speed = |a: &&RunResult, b: &&RunResult| a.stats.ops_per_s().total_cmp(&b.stats.ops_per_s());
    if let (Some(best), Some(worst)) = (results.iter().max_by(by_speed), results.iter().min_by(by_speed)) {
        titled.push(("BEST RUN RESULTS".to_owned(), best.clone()));
        titled.push(("WORST RUN RESULTS".to_owned(), worst.clone()));
    }
    titled.push((format!("AGGREGATED AVERAGE RESULTS ({} runs)", results.len()), pooled(workload, &results)));
    titled
}

/// All runs as one long run: rates become averages weighted by time, percentiles are over all requests.
fn pooled(workload: &Workload, results: &[RunResult]) -> RunResult {
    let mut pooled = RunResult { stats: RunStats::new(workload.commands.len()), cpu: RunCpu::default() };
    let mut duration = std::time::Duration::ZERO;
    for result in results {
        duration += result.stats.duration;
        pooled.stats.add(result.stats.clone());
        pooled.cpu.generator = pooled.cpu.generator.plus(result.cpu.generator);
        if let Some(server) = result.cpu.server {
            pooled.cpu.server = Some(pooled.cpu.server.unwrap_or_default().plus(server));
        }
    }
    pooled.stats.duration = duration;
    pooled
}
