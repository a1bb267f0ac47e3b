//! A vector set that searches exactly, in a test: what a perfect server would answer, or one that leaves out what it
//! should find.

use crate::wire_server::{Behaviour, WireServer};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Mutex;

#[derive(Default)]
struct Element {
    vector: Vec<f32>,
    attributes: Json,
}

type Sets = HashMap<Vec<u8>, HashMap<Vec<u8>, Element>>;

pub(crate) fn floats(blob: &[u8]) -> Vec<f32> {
    blob.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Cosine in f64, apart from the program's own arithmetic.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(p, q)| f64::from(*p) * f64::from(*q)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Starts a server whose searches skip the best `n_skipped`.
pub(crate) fn start(n_skipped: usize) -> WireServer {
    let sets: Mutex<Sets> = Mutex::default();
    WireServer::start(Behaviour::default(), move |words| {
        let mut sets = sets.lock().expect("no panic");
        answer(&mut sets, words, n_skipped)
    })
}

fn answer(sets: &mut Sets, words: &[Vec<u8>], n_skipped: usize) -> Vec<u8> {
    let integer = |n: usize| format!(":{n}\r\n").into_bytes();
    let name = String::from_utf8_lossy(&words[0]).into_owned();
    if name == "INFO" {
        return b"$21\r\nredis_version:0.0.0\r\n\r\n".to_vec();
    }
    let set = sets.entry(words[1].clone()).or_default();
    match name.as_str() {
        "DEL" => integer(usize::from(!std::mem::take(set).is_empty())),
        "VADD" => {
            let element = Element { vector: floats(&words[3]), attributes: Json::Null };
            integer(usize::from(set.insert(words[4].clone(), element).is_none()))
        }
        "VSETATTR" => {
            let element = set.get_mut(&words[2]).expect("an element");
            element.attributes = serde_json::from_slice(&words[3]).expect("JSON");
            integer(1)
        }
        "VREM" => integer(usize::from(set.remove(&words[2]).is_some())),
        "VISMEMBER" => integer(usize::from(set.contains_key(&words[2]))),
        "VCARD" => integer(set.len()),
        "VSIM" => {
            let names = similar(set, words, n_skipped);
            let mut reply = Vec::new();
            skerry_resp::encode_command(&names, &mut reply);
            reply
        }
        _ => b"-ERR unknown command\r\n".to_vec(),
    }
}

fn similar(set: &HashMap<Vec<u8>, Element>, words: &[Vec<u8>], n_skipped: usize) -> Vec<Vec<u8>> {
    let query = match words[2].as_slice() {
        b"FP32" => floats(&words[3]),
        b"ELE" => set[&words[3]].vector.clone(),
        other => panic!("{}", String::from_utf8_lossy(other)),
    };
    let option = |name: &[u8]| {
        let at = words.iter().skip(4).position(|word| word == name)?;
        Some(String::from_utf8_lossy(&words[4 + at + 1]).into_owned())
    };
    let count: usize = option(b"COUNT").map_or(10, |n| n.parse().expect("a count"));
    let epsilon: f64 = option(b"EPSILON").map_or(2.0, |e| e.parse().expect("an epsilon"));
    let filter = option(b"FILTER");
    let mut all: Vec<(f64, &Vec<u8>)> = set
        .iter()
        .filter(|(_, element)| filter.as_deref().is_none_or(|filter| matches(filter, &element.attributes)))
        .map(|(name, element)| (cosine(&query, &element.vector), name))
        .filter(|(cosine, _)| (1.0 - cosine) / 2.0 <= epsilon)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().skip(n_skipped).take(count).map(|(_, name)| name.clone()).collect()
}

/// `.name == "text"` and `.name < number`.
fn matches(filter: &str, attributes: &Json) -> bool {
    let words: Vec<&str> = filter.split(' ').collect();
    let [field, operator, operand] = words[..] else { panic!("{filter}") };
    let value = &attributes[&field[1..]];
    match operator {
        "==" => value.as_str() == Some(operand.trim_matches('"')),
        "<" => value.as_u64().expect("a number") < operand.parse().expect("a number"),
        _ => panic!("{filter}"),
    }
}
