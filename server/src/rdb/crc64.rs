//! The checksum of RDB files and payloads: CRC-64 with Jones's polynomial, reflected, starting from zero.

use crc::{CRC_64_REDIS, Crc, Table};

/// Sixteen bytes a step.
static JONES: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

pub(super) fn crc64(bytes: &[u8]) -> u64 {
    JONES.checksum(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn redis_own_check() {
        assert_eq!(super::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
