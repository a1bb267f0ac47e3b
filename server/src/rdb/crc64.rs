//! The checksum of RDB files and payloads: CRC-64 with Jones's polynomial, reflected, starting from zero.

use crc::{CRC_64_REDIS, Crc, Digest, Table};

/// Sixteen bytes a step.
static JONES: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of what comes in pieces.
pub(super) type Sum = Digest<'static, u64, Table<16>>;

pub(super) fn sum() -> Sum {
    JONES.digest()
}

#[cfg(test)]
mod tests {
    #[test]
    fn redis_own_check() {
        let mut sum = super::sum();
        sum.update(b"12345");
        sum.update(b"6789");
        assert_eq!(sum.finalize(), 0xe9c6_d914_c4b8_d9ca);
    }
}
