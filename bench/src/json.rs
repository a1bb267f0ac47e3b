//! `--json-out-file`: memtier_benchmark's JSON, with "Server CPU", "Generator CPU" and "Errors" beside its
//! objects.

use crate::cpu::{CpuTimes, ThreadCpu};
use crate::flags::{CommandsKind, Workload};
use crate::report::{Row, RowKind, rows};
use crate::run::RunResult;
use crate::stats::RunStats;
use serde_json::{Map, Value, json};

/// The whole document: configuration, then one object per titled table.
pub fn document(workload: &Workload, titled: &[(String, RunResult)]) -> Value {
    let mut document = Map::new();
    document.insert("configuration".to_owned(), configuration(workload));
    let (length, length_name) = workload.length_in_words();
    document.insert(
        "run information".to_owned(),
        json!({
            "Threads": workload.n_threads,
            "Connections per thread": workload.n_clients_per_thread,
            length_name: length,
            "Format version": 2,
        }),
    );
    for (title, result) in titled {
        document.insert(title.clone(), table(workload, result));
    }
    Value::Object(document)
}

fn configuration(workload: &Workload) -> Value {
    json!({
        "server": workload.address.to_string(),
        "clients": workload.n_clients_per_thread,
        "threads": workload.n_threads,
        "pipeline": workload.pipeline,
        "run_count": workload.run_count,
        "rate_limit": workload.requests_per_s.unwrap_or(0),
        "data_size": workload.data.maximum_bytes,
        "key_minimum": workload.key_range.minimum,
        "key_maximum": workload.key_range.maximum,
        "commands": workload.commands.iter().map(|c| json!({
            "name": c.name,
            "ratio": c.ratio,
            "key_pattern": format!("{:?}", c.key_pattern),
        })).collect::<Vec<_>>(),
        "seed": workload.seed,
    })
}

fn table(workload: &Workload, result: &RunResult) -> Value {
    let stats = &result.stats;
    let mut table = Map::new();
    table.insert(
        "Runtime".to_owned(),
        json!({ "Total duration": stats.duration.as_millis() as u64, "Time unit": "MILLISECONDS" }),
    );
    for row in rows(workload, stats) {
        table.insert(row.label.clone(), row_object(workload, stats, &row));
    }
    let n_ops = stats.totals().n_ops;
    if let Some(server) = result.cpu.server {
        let mut object = cpu_object(server, n_ops);
        object["Threads"] =
            result.cpu.server_threads.iter().map(|t| thread_object(t, n_ops)).collect::<Vec<_>>().into();
        table.insert("Server CPU".to_owned(), object);
    }
    table.insert("Generator CPU".to_owned(), cpu_object(result.cpu.generator, n_ops));
    table.insert(
        "Errors".to_owned(),
        json!({
            "Error replies": stats.totals().n_errors,
            "Lost connections": stats.n_connection_errors,
            "First": stats.first_error,
        }),
    );
    Value::Object(table)
}

fn row_object(workload: &Workload, stats: &RunStats, row: &Row) -> Value {
    let command = &row.stats;
    let kb_per_s = |bytes: u64| stats.per_second(bytes as f64 / 1024.0);
    let hits_are_known = workload.commands_kind == CommandsKind::SetAndGet
        && matches!(row.kind, RowKind::Gets | RowKind::Totals);
    let (hits, misses) = if hits_are_known {
        let gets = &stats.commands[1];
        ((gets.n_ops - gets.n_misses) as f64, gets.n_misses as f64)
    } else {
        (0.0, 0.0)
    };
    let mut percentiles = Map::new();
    for &percentile in &workload.report.percentiles {
        percentiles.insert(percentile_name(percentile), json!(command.percentile_ms(percentile)));
    }
    let mut object = json!({
        "Count": command.n_ops,
        "Ops/sec": stats.per_second(command.n_ops as f64),
        "Hits/sec": stats.per_second(hits),
        "Misses/sec": stats.per_second(misses),
        "Errors": command.n_errors,
        "Average Latency": command.mean_ms(),
        "Latency": command.mean_ms(),
        "Min Latency": if command.n_ops > 0 { command.latency_us.min() as f64 / 1000.0 } else { 0.0 },
        "Max Latency": command.latency_us.max() as f64 / 1000.0,
        "KB/sec": kb_per_s(command.rx_bytes + command.tx_bytes),
        "KB/sec RX/TX": kb_per_s(command.rx_bytes + command.tx_bytes),
        "KB/sec RX": kb_per_s(command.rx_bytes),
        "KB/sec TX": kb_per_s(command.tx_bytes),
        "Percentile Latencies": percentiles,
    });
    if row.kind == RowKind::Totals {
        let seconds = stats.ops_per_second.iter().enumerate();
        let series: Map<String, Value> =
            seconds.map(|(second, n)| (second.to_string(), json!({ "Count": n }))).collect();
        object["Time-Serie"] = Value::Object(series);
    }
    object
}

/// "p50.00", "p99.90": memtier prints three decimals into room for six characters.
fn percentile_name(percentile: f64) -> String {
    let mut name = format!("p{percentile:.3}");
    name.truncate(6);
    name
}

fn cpu_object(times: CpuTimes, n_ops: u64) -> Value {
    let per_op = |ns: u64| if n_ops > 0 { ns as f64 / n_ops as f64 } else { 0.0 };
    json!({
        "User ns/op": per_op(times.user_ns),
        "System ns/op": per_op(times.system_ns),
        "Total ns/op": per_op(times.total_ns()),
        "User seconds": times.user_ns as f64 / 1e9,
        "System seconds": times.system_ns as f64 / 1e9,
    })
}

fn thread_object(thread: &ThreadCpu, n_ops: u64) -> Value {
    let mut object = cpu_object(thread.times, n_ops);
    object["Tid"] = thread.tid.into();
    object["Name"] = thread.name.clone().into();
    object
}
