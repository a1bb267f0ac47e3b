//! Redis's checksum of payloads: the CRC-64 of Jones.

pub fn crc64(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = {
        const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut sum = at as u64;
            let mut bit = 0;
            while bit < 8 {
                sum = sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
                bit += 1;
            }
            table[at] = sum;
            at += 1;
        }
        table
    };
    bytes.iter().fold(0, |sum, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}
