//! Redis Cluster's hash slot of a key: CRC16-CCITT (XMODEM) of the key, or of its `{tag}`, modulo 16384
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).

const TABLES: [[u16; 256]; 4] = tables();

/// `TABLES[k][b]`: the CRC of byte `b` followed by `k` zero bytes.
const fn tables() -> [[u16; 256]; 4] {
    let mut tables = [[0u16; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 4 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[k - 1][byte];
            tables[k][byte] = (previous << 8) ^ tables[0][(previous >> 8) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// Four bytes a step; `crc16_bytewise` is the plain twin.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut chunks = bytes.chunks_exact(4);
    for c in &mut chunks {
        crc = TABLES[3][(c[0] ^ (crc >> 8) as u8) as usize]
            ^ TABLES[2][(c[1] ^ crc as u8) as usize]
            ^ TABLES[1][c[2] as usize]
            ^ TABLES[0][c[3] as usize];
    }
    crc16_bytewise(crc, chunks.remainder())
}

fn crc16_bytewise(mut crc: u16, bytes: &[u8]) -> u16 {
    for &byte in bytes {
        crc = (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ byte) as usize];
    }
    crc
}

/// The part of `key` that decides its slot: between the first `{` and the next `}`, if that is not empty.
pub fn tag_of(key: &[u8]) -> &[u8] {
    // Keys are short: eight bytes a step beat a call.
    if !may_have_brace(key) {
        return key;
    }
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    match memchr::memchr(b'}', &key[open + 1..]) {
        Some(len) if len > 0 => &key[open + 1..open + 1 + len],
        _ => key,
    }
}

/// Whether there may be a `{`; false is certain.
#[inline]
fn may_have_brace(key: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let has_brace = |bytes: [u8; 8]| {
        let x = u64::from_le_bytes(bytes) ^ (ONES * b'{' as u64);
        x.wrapping_sub(ONES) & !x & (ONES << 7) != 0
    };
    match (key.first_chunk(), key.last_chunk()) {
        (Some(first), Some(last)) if key.len() <= 16 => has_brace(*first) || has_brace(*last),
        _ => key.contains(&b'{'),
    }
}

/// Slot 0..16384 of `key`.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) & 0x3fff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn four_at_a_time_equals_bytewise() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..len]), crc16_bytewise(0, &bytes[..len]), "length {len}");
        }
    }

    #[test]
    fn tags_as_the_cluster_specification_has_them() {
        assert_eq!(tag_of(b"{user1000}.following"), b"user1000");
        assert_eq!(tag_of(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag_of(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(tag_of(b"foo{bar}{zap}"), b"bar");
        assert_eq!(slot_of(b"foo"), 12182);
    }
}
