//! Grisu2 (Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers", 2010): digits of a double
//! that read back as it.
//!
//! Why not a printer that is always shortest: Redis prints with Grisu2, which misses the shortest text for about one
//! double in a thousand (`1e23` comes out as `99999999999999990000000`), and clients compare texts. So the choices that
//! the paper leaves open are made as Redis's printer makes them: powers of ten in steps of 8, the scaled exponent
//! between -60 and -32, boundaries narrowed by one unit, products rounded half up.
//!
//! Cost: three multiplications and one pass over at most 17 digits; no memory.

/// A double has at most 17 significant digits; one more is room for the loop.
pub(super) const MAX_DIGITS: usize = 18;

/// `fraction * 2^exponent`.
#[derive(Clone, Copy)]
struct Scaled {
    fraction: u64,
    exponent: i32,
}

/// Digits of a positive finite `value` and the exponent: `value = digits * 10^exponent`.
pub(super) fn shortest(value: f64, digits: &mut [u8; MAX_DIGITS]) -> (usize, i32) {
    let (lower, exact, upper) = neighborhood(value);
    let (power, decimal) = power_for(upper.exponent);
    let exact = exact.times(power);
    let upper = upper.times(power);
    let lower = lower.times(power);
    // The products may be off by one unit: stay inside.
    let high = Scaled { fraction: upper.fraction - 1, ..upper };
    let (n_digits, dropped) = generate(high, lower.fraction + 1, exact.fraction, digits);
    (n_digits, dropped - decimal)
}

/// Half-way points to the doubles on both sides, and the value between them, all with one exponent, normalised.
fn neighborhood(value: f64) -> (Scaled, Scaled, Scaled) {
    const HIDDEN: u64 = 1 << 52;
    let bits = value.to_bits();
    let (fraction, exponent) = match (bits >> 52) as i32 {
        0 => (bits, -1074),
        biased => (bits & (HIDDEN - 1) | HIDDEN, biased - 1075),
    };
    let upper = Scaled { fraction: 2 * fraction + 1, exponent: exponent - 1 }.normalised();
    // Below a power of two the doubles lie twice as dense.
    let shift = if fraction == HIDDEN { 2 } else { 1 };
    let lower = Scaled { fraction: (fraction << shift) - 1, exponent: exponent - shift };
    let lower_fraction = lower.fraction << (lower.exponent - upper.exponent);
    let exact = Scaled { fraction, exponent }.normalised();
    (Scaled { fraction: lower_fraction, ..upper }, exact, upper)
}

impl Scaled {
    fn normalised(self) -> Scaled {
        let shift = self.fraction.leading_zeros();
        Scaled { fraction: self.fraction << shift, exponent: self.exponent - shift as i32 }
    }

    fn times(self, other: Scaled) -> Scaled {
        let product = u128::from(self.fraction) * u128::from(other.fraction) + (1 << 63);
        Scaled { fraction: (product >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

/// A power of ten that brings `2^exponent * 2^64` between 2^-60 and 2^-32, and its decimal exponent.
fn power_for(exponent: i32) -> (Scaled, i32) {
    const LOG10_OF_2: f64 = 0.301_029_995_663_981_14;
    let decimal = (-f64::from(exponent + N_POWERS as i32) * LOG10_OF_2) as i32;
    let mut at = ((decimal - FIRST_POWER) / POWER_STEP) as usize;
    loop {
        let (fraction, power_exponent) = POWERS[at];
        match exponent + i32::from(power_exponent) + 64 {
            ..-60 => at += 1,
            -31.. => at -= 1,
            _ => {
                let power = Scaled { fraction, exponent: i32::from(power_exponent) };
                return (power, FIRST_POWER + at as i32 * POWER_STEP);
            }
        }
    }
}

/// The fewest digits of `high` that stay above `low`, then the last one moved towards `exact`.
/// Returns their number and how many decimal places were dropped (negative: places behind the point kept).
fn generate(high: Scaled, low: u64, exact: u64, digits: &mut [u8; MAX_DIGITS]) -> (usize, i32) {
    let point = -high.exponent as u32;
    let mut whole = high.fraction >> point;
    let mut part = high.fraction & ((1 << point) - 1);
    let mut room = high.fraction - low;
    let mut distance = high.fraction - exact;
    let mut n_digits = 0;
    let mut unit = 1_000_000_000_u64;
    for places in (0..10).rev() {
        let digit = whole / unit;
        whole -= digit * unit;
        if digit != 0 || n_digits != 0 {
            digits[n_digits] = b'0' + digit as u8;
            n_digits += 1;
        }
        let left = (whole << point) + part;
        if left <= room {
            nudge(&mut digits[n_digits - 1], left, room, unit << point, distance);
            return (n_digits, places);
        }
        unit /= 10;
    }
    for places in 1.. {
        part *= 10;
        room *= 10;
        distance = distance.wrapping_mul(10);
        let digit = part >> point;
        part &= (1 << point) - 1;
        if digit != 0 || n_digits != 0 {
            digits[n_digits] = b'0' + digit as u8;
            n_digits += 1;
        }
        if part < room {
            nudge(&mut digits[n_digits - 1], part, room, 1 << point, distance);
            return (n_digits, -places);
        }
    }
    unreachable!("the room grows tenfold each round and passes any remainder")
}

/// Lowers the last digit while that leaves the text inside the room and brings it nearer to the exact value.
/// `left` is how far the text lies below the high end.
fn nudge(last: &mut u8, mut left: u64, room: u64, step: u64, distance: u64) {
    while left < distance
        && room - left >= step
        && (left + step < distance || distance - left > left + step - distance)
    {
        *last -= 1;
        left += step;
    }
}

const FIRST_POWER: i32 = -348;
const POWER_STEP: i32 = 8;
const N_POWERS: usize = 87;

/// `(fraction, exponent)` of 10^-348, 10^-340 ... 10^340, each rounded to the nearest 64 bits.
#[rustfmt::skip]
static POWERS: [(u64, i16); N_POWERS] = [
    (0xfa8fd5a0081c0288, -1220), (0xbaaee17fa23ebf76, -1193), (0x8b16fb203055ac76, -1166),
    (0xcf42894a5dce35ea, -1140), (0x9a6bb0aa55653b2d, -1113), (0xe61acf033d1a45df, -1087),
    (0xab70fe17c79ac6ca, -1060), (0xff77b1fcbebcdc4f, -1034), (0xbe5691ef416bd60c, -1007),
    (0x8dd01fad907ffc3c, -980), (0xd3515c2831559a83, -954), (0x9d71ac8fada6c9b5, -927),
    (0xea9c227723ee8bcb, -901), (0xaecc49914078536d, -874), (0x823c12795db6ce57, -847),
    (0xc21094364dfb5637, -821), (0x9096ea6f3848984f, -794), (0xd77485cb25823ac7, -768),
    (0xa086cfcd97bf97f4, -741), (0xef340a98172aace5, -715), (0xb23867fb2a35b28e, -688),
    (0x84c8d4dfd2c63f3b, -661), (0xc5dd44271ad3cdba, -635), (0x936b9fcebb25c996, -608),
    (0xdbac6c247d62a584, -582), (0xa3ab66580d5fdaf6, -555), (0xf3e2f893dec3f126, -529),
    (0xb5b5ada8aaff80b8, -502), (0x87625f056c7c4a8b, -475), (0xc9bcff6034c13053, -449),
    (0x964e858c91ba2655, -422), (0xdff9772470297ebd, -396), (0xa6dfbd9fb8e5b88f, -369),
    (0xf8a95fcf88747d94, -343), (0xb94470938fa89bcf, -316), (0x8a08f0f8bf0f156b, -289),
    (0xcdb02555653131b6, -263), (0x993fe2c6d07b7fac, -236), (0xe45c10c42a2b3b06, -210),
    (0xaa242499697392d3, -183), (0xfd87b5f28300ca0e, -157), (0xbce5086492111aeb, -130),
    (0x8cbccc096f5088cc, -103), (0xd1b71758e219652c, -77), (0x9c40000000000000, -50),
    (0xe8d4a51000000000, -24), (0xad78ebc5ac620000, 3), (0x813f3978f8940984, 30),
    (0xc097ce7bc90715b3, 56), (0x8f7e32ce7bea5c70, 83), (0xd5d238a4abe98068, 109),
    (0x9f4f2726179a2245, 136), (0xed63a231d4c4fb27, 162), (0xb0de65388cc8ada8, 189),
    (0x83c7088e1aab65db, 216), (0xc45d1df942711d9a, 242), (0x924d692ca61be758, 269),
    (0xda01ee641a708dea, 295), (0xa26da3999aef774a, 322), (0xf209787bb47d6b85, 348),
    (0xb454e4a179dd1877, 375), (0x865b86925b9bc5c2, 402), (0xc83553c5c8965d3d, 428),
    (0x952ab45cfa97a0b3, 455), (0xde469fbd99a05fe3, 481), (0xa59bc234db398c25, 508),
    (0xf6c69a72a3989f5c, 534), (0xb7dcbf5354e9bece, 561), (0x88fcf317f22241e2, 588),
    (0xcc20ce9bd35c78a5, 614), (0x98165af37b2153df, 641), (0xe2a0b5dc971f303a, 667),
    (0xa8d9d1535ce3b396, 694), (0xfb9b7cd9a4a7443c, 720), (0xbb764c4ca7a44410, 747),
    (0x8bab8eefb6409c1a, 774), (0xd01fef10a657842c, 800), (0x9b10a4e5e9913129, 827),
    (0xe7109bfba19c0c9d, 853), (0xac2820d9623bf429, 880), (0x80444b5e7aa7cf85, 907),
    (0xbf21e44003acdd2d, 933), (0x8e679c2f5e44ff8f, 960), (0xd433179d9c8cb841, 986),
    (0x9e19db92b4e31ba9, 1013), (0xeb96bf6ebadf77d9, 1039), (0xaf87023b9bf0ee6b, 1066),
];
