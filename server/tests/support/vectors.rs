//! What the tests of vector sets share: commands of plain words, replies of texts, vectors as FP32 blobs.

use super::conn::Conn;
use super::reply::Reply;

/// Sends a command whose arguments hold no blanks.
pub fn words(conn: &mut Conn, line: &str) -> Reply {
    conn.call(&line.split(' ').collect::<Vec<_>>())
}

/// The strings of an array.
pub fn texts(reply: &Reply) -> Vec<String> {
    let items = reply.items().unwrap_or_else(|| panic!("no array: {reply:?}"));
    items.iter().map(|item| String::from_utf8_lossy(item.text().expect("a string")).into_owned()).collect()
}

/// A vector as FP32 takes it: little-endian float32.
pub fn fp32(row: &[f32]) -> Vec<u8> {
    row.iter().flat_map(|x| x.to_le_bytes()).collect()
}
