//! Places on the Earth as scores of a sorted set: 26 bits of longitude and 26 of latitude, interleaved, so that a square
//! of the map is a range of scores; and the shapes that are searched for.
//!
//! ```text
//!   score     lon lat lon lat ... lon lat     most significant first: a prefix of 2n bits is a cell of the n-step grid
//!   search    the cell of the center and its eight neighbors, each a range of scores, in Redis's order
//! ```
//!
//! Redis's numbers to the last bit: the sphere, the order of the additions, the estimate of the grid's step, the cells
//! that are left out. What is cheaper than Redis is only what surely is outside (`Reach`).
//!
//! It knows no sorted set and no reply. Source: <https://redis.io/docs/latest/commands/geoadd/> (the model of the Earth) and
//! the answers of Redis 8.2.3. Cost: about 10 ns to refuse a place, 60 ns to measure one.

use std::ops::Range;

/// Radius of the sphere.
const EARTH_M: f64 = 6_372_797.560856;
/// Half of the length of the equator on the map.
const MAP_HALF_M: f64 = 20_037_726.37;
pub const LON_MAX: f64 = 180.0;
pub const LAT_MAX: f64 = 85.05112878;
/// Steps of the grid of a score.
const STEPS: u32 = 26;
const SCORE_BITS: u32 = 2 * STEPS;
/// How far above a bound something must be to be outside for sure, whatever was rounded.
const SURELY: f64 = 1.0 + 1e-9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub lon: f64,
    pub lat: f64,
}

impl Place {
    /// The place a score stands for: the middle of its cell. Any double is one, as in Redis.
    pub fn of_score(score: f64) -> Self {
        let area = Cell::of_bits(bits_of(score), STEPS).area();
        Self {
            lon: ((area.west + area.east) / 2.0).clamp(-LON_MAX, LON_MAX),
            lat: ((area.south + area.north) / 2.0).clamp(-LAT_MAX, LAT_MAX),
        }
    }

    /// The score of its cell. The place is on the map.
    pub fn score(self) -> u64 {
        Cell::around(self, STEPS, LAT_MAX).bits()
    }

    pub fn is_on_map(self) -> bool {
        (-LON_MAX..=LON_MAX).contains(&self.lon) && (-LAT_MAX..=LAT_MAX).contains(&self.lat)
    }

    /// The eleven characters of the common geohash, whose latitudes go up to the pole.
    pub fn text(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::around(self, STEPS, 90.0).bits();
        std::array::from_fn(|at| match (SCORE_BITS as usize).checked_sub(5 * (at + 1)) {
            Some(shift) => ALPHABET[(bits >> shift & 31) as usize],
            // 52 bits are ten characters and a bit.
            None => ALPHABET[0],
        })
    }

    /// Metres on the sphere.
    pub fn distance_m(self, other: Place) -> f64 {
        Origin::new(self).distance_m(other)
    }
}

/// Metres between two latitudes.
fn latitudes_apart_m(a_rad: f64, b_rad: f64) -> f64 {
    EARTH_M * (b_rad - a_rad).abs()
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// As an x86 processor turns a double into 64 bits: scores that GEOADD has not made stand for places, too.
fn bits_of(score: f64) -> u64 {
    const TOP: f64 = (1_u64 << 63) as f64;
    if score < TOP {
        score as i64 as u64
    } else {
        let rest = score - TOP;
        if rest < TOP { rest as u64 ^ 1 << 63 } else { 0 }
    }
}

/// A place that distances are measured from.
struct Origin {
    lon_rad: f64,
    lat_rad: f64,
    cos_lat: f64,
}

impl Origin {
    fn new(place: Place) -> Self {
        let lat_rad = radians(place.lat);
        Self { lon_rad: radians(place.lon), lat_rad, cos_lat: lat_rad.cos() }
    }

    /// The square of half the chord to another place, on a sphere of radius 1; none if the longitudes are the same.
    #[inline]
    fn half_chord_squared(&self, lon_rad: f64, lat_rad: f64) -> Option<f64> {
        let v = ((lon_rad - self.lon_rad) / 2.0).sin();
        if v == 0.0 {
            return None;
        }
        let u = ((lat_rad - self.lat_rad) / 2.0).sin();
        Some(u * u + self.cos_lat * lat_rad.cos() * v * v)
    }

    fn distance_m(&self, other: Place) -> f64 {
        let lat_rad = radians(other.lat);
        match self.half_chord_squared(radians(other.lon), lat_rad) {
            None => latitudes_apart_m(self.lat_rad, lat_rad),
            Some(squared) => arc_m(squared),
        }
    }
}

fn arc_m(half_chord_squared: f64) -> f64 {
    2.0 * EARTH_M * half_chord_squared.sqrt().asin()
}

// ---- the grid

/// A cell of the grid of `steps` steps. Its numbers may be one above the last, for a place on the map's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    lon: u32,
    lat: u32,
    steps: u32,
}

struct CellArea {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Cell {
    /// The cell of a place, on a map whose latitudes go up to `lat_max`.
    fn around(place: Place, steps: u32, lat_max: f64) -> Self {
        let n_cells = (1_u64 << steps) as f64;
        let number = |value: f64, max: f64| ((value + max) / (max + max) * n_cells) as u32;
        Self { lon: number(place.lon, LON_MAX), lat: number(place.lat, lat_max), steps }
    }

    fn of_bits(bits: u64, steps: u32) -> Self {
        Self { lon: every_second(bits >> 1), lat: every_second(bits), steps }
    }

    fn bits(self) -> u64 {
        spread(self.lon) << 1 | spread(self.lat)
    }

    fn area(self) -> CellArea {
        let n_cells = (1_u64 << self.steps) as f64;
        let edge = |number: u32, max: f64| -max + f64::from(number) / n_cells * (max + max);
        CellArea {
            west: edge(self.lon, LON_MAX),
            east: edge(self.lon.wrapping_add(1), LON_MAX),
            south: edge(self.lat, LAT_MAX),
            north: edge(self.lat.wrapping_add(1), LAT_MAX),
        }
    }

    /// The cell so many cells away; the map has no edges here.
    fn moved(self, east: i32, north: i32) -> Self {
        let mask = (1_u32 << self.steps) - 1;
        let along = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & mask,
        };
        Self { lon: along(self.lon, east), lat: along(self.lat, north), ..self }
    }

    /// The scores in it.
    fn scores(self) -> Range<u64> {
        let shift = SCORE_BITS - 2 * self.steps;
        self.bits() << shift..(self.bits() + 1) << shift
    }
}

/// Puts a zero before each bit.
fn spread(bits: u32) -> u64 {
    let mut x = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

/// The bits of even places.
#[inline]
fn every_second(bits: u64) -> u32 {
    let mut x = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff_u64),
    ] {
        x = (x | x >> shift) & mask;
    }
    x as u32
}

// ---- shapes

/// A shape around a center, its lengths in a unit of `unit_m` metres.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub center: Place,
    pub outline: Outline,
    pub unit_m: f64,
}

#[derive(Clone, Copy, Debug)]
pub enum Outline {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

impl Shape {
    /// The ranges of scores that may hold places of the shape, in the order in which Redis walks them.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (radius_m, bounds) = (self.radius_m(), self.bounds());
        let mut steps = steps_for(radius_m, self.center.lat);
        let mut cell = Cell::around(self.center, steps, LAT_MAX);
        // Near the map's edges the neighbors are nearer than the estimate thinks.
        let is_too_fine = cell.moved(0, 1).area().north < bounds.north
            || cell.moved(0, -1).area().south > bounds.south
            || cell.moved(1, 0).area().east < bounds.east
            || cell.moved(-1, 0).area().west > bounds.west;
        if steps > 1 && is_too_fine {
            steps -= 1;
            cell = Cell::around(self.center, steps, LAT_MAX);
        }
        let area = cell.area();
        // The center's cell reaches farther than the shape on some sides; NaN compares as no.
        let leaves_out = move |east: i32, north: i32| {
            steps >= 2
                && (north < 0 && area.south < bounds.south
                    || north > 0 && area.north > bounds.north
                    || east < 0 && area.west < bounds.west
                    || east > 0 && area.east > bounds.east)
        };
        const ORDER: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut last_neighbor = None;
        ORDER.into_iter().filter(move |(east, north)| !leaves_out(*east, *north)).filter_map(
            move |(east, north)| {
                let next = cell.moved(east, north);
                // On the coarsest grid neighbors on both sides are the same cell.
                if last_neighbor == Some(next) {
                    return None;
                }
                if (east, north) != (0, 0) {
                    last_neighbor = Some(next);
                }
                Some(next.scores())
            },
        )
    }

    /// To the farthest point.
    fn radius_m(&self) -> f64 {
        let radius = match self.outline {
            Outline::Circle { radius } => radius,
            Outline::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        radius * self.unit_m
    }

    /// A box around it, in degrees.
    fn bounds(&self) -> CellArea {
        let (width, height) = match self.outline {
            Outline::Circle { radius } => (radius, radius),
            Outline::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let (width_m, height_m) = (self.unit_m * width, self.unit_m * height);
        let Place { lon, lat } = self.center;
        let lat_delta = degrees(height_m / EARTH_M);
        let lon_delta_at = |lat: f64| degrees(width_m / EARTH_M / radians(lat).cos());
        // The side that is nearer to the pole is the wider one.
        let lon_delta = lon_delta_at(if lat < 0.0 { lat - lat_delta } else { lat + lat_delta });
        CellArea {
            west: lon - lon_delta,
            east: lon + lon_delta,
            south: lat - lat_delta,
            north: lat + lat_delta,
        }
    }

    /// What measures many places against this shape.
    pub fn reach(&self) -> Reach {
        let origin = Origin::new(self.center);
        match self.outline {
            Outline::Circle { radius } => {
                let radius_m = radius * self.unit_m;
                let angle = radius_m / EARTH_M;
                let half_chord = (angle / 2.0).min(std::f64::consts::FRAC_PI_2).sin();
                Reach {
                    origin,
                    outline: Outline::Circle { radius: radius_m },
                    lat_rad_max: angle * SURELY + 1e-12,
                    half_chord_squared_max: half_chord * half_chord * SURELY + 1e-24,
                }
            }
            Outline::Rectangle { width, height } => Reach {
                origin,
                outline: Outline::Rectangle { width: width * self.unit_m, height: height * self.unit_m },
                lat_rad_max: height * self.unit_m / 2.0 / EARTH_M * SURELY + 1e-12,
                half_chord_squared_max: f64::INFINITY,
            },
        }
    }
}

/// The step at which the center's cell and its neighbors cover the radius.
fn steps_for(radius_m: f64, lat: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS;
    }
    let (mut steps, mut radius_m) = (1_i32, radius_m);
    while radius_m < MAP_HALF_M {
        radius_m *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Cells are narrower towards the poles.
    steps -= i32::from(lat.abs() > 66.0) + i32::from(lat.abs() > 80.0);
    steps.clamp(1, STEPS as i32) as u32
}

/// A shape, prepared for many places; its lengths in metres.
pub struct Reach {
    origin: Origin,
    outline: Outline,
    /// Places farther north or south are surely outside.
    lat_rad_max: f64,
    /// As are places of a longer chord.
    half_chord_squared_max: f64,
}

impl Reach {
    /// Metres from the center, if the place is in the shape.
    #[inline]
    pub fn distance_m(&self, place: Place) -> Option<f64> {
        let lat_rad = radians(place.lat);
        if (lat_rad - self.origin.lat_rad).abs() > self.lat_rad_max {
            return None;
        }
        match self.outline {
            Outline::Circle { radius } => {
                let distance_m = match self.origin.half_chord_squared(radians(place.lon), lat_rad) {
                    None => latitudes_apart_m(self.origin.lat_rad, lat_rad),
                    Some(squared) if squared > self.half_chord_squared_max => return None,
                    Some(squared) => arc_m(squared),
                };
                // A distance that is no number is none too long, as in Redis.
                if distance_m > radius { None } else { Some(distance_m) }
            }
            Outline::Rectangle { width, height } => {
                if latitudes_apart_m(lat_rad, self.origin.lat_rad) > height / 2.0 {
                    return None;
                }
                // Along the place's own parallel.
                let own = Origin::new(place);
                let across = own.half_chord_squared(self.origin.lon_rad, lat_rad);
                if across.is_some_and(|squared| arc_m(squared) > width / 2.0) {
                    return None;
                }
                Some(self.origin.distance_m(place))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Redis 8.2.3.
    #[test]
    fn scores_places_and_texts() {
        let palermo = Place { lon: 13.361389, lat: 38.115556 };
        assert_eq!(palermo.score(), 3_479_099_956_230_698);
        let place = Place::of_score(3_479_099_956_230_698.0);
        assert_eq!(place, Place { lon: 13.361389338970184, lat: 38.1155563954963 });
        assert_eq!(&place.text(), b"sqc8b49rny0");
        for (score, text) in [(1e300, b"00bh0hbj200"), (-5.0, b"bp05b5048p0"), (1.9e19, b"00bh0hbj200")] {
            assert_eq!(&Place::of_score(score).text(), text, "{score}");
        }
    }

    /// What `Reach` refuses at once, it would refuse after measuring.
    #[test]
    fn what_is_outside_for_sure_is_outside() {
        let mut state = 7_u64;
        let mut random = |max: f64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0) * max
        };
        for _ in 0..200_000 {
            let center = Place { lon: random(LON_MAX), lat: random(LAT_MAX) };
            let place = Place { lon: random(LON_MAX), lat: random(LAT_MAX) };
            let distance_m = center.distance_m(place);
            for factor in [1.0 - 1e-12, 1.0, 1.0 + 1e-12] {
                let outline = Outline::Circle { radius: distance_m * factor };
                let reach = Shape { center, outline, unit_m: 1.0 }.reach();
                let is_in = distance_m <= distance_m * factor;
                assert_eq!(reach.distance_m(place), is_in.then_some(distance_m), "{center:?} {place:?}");
            }
        }
    }
}
