//! How a transfer went, as a curve of at most 600 points, however long it took.
//!
//! Always true: points are equally far apart, except the last one. When there would be too many, each two
//! become one with the mean of their rates.

use farhaul_api::Point;
use serde::{Deserialize, Serialize};

/// The most points of a curve.
pub(crate) const POINTS_MAX: usize = 600;

/// The curve of a run, to which points are added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct HistoryCurve {
    points: Vec<Point>,
    /// How many looks make a point, and how many the next point has so far.
    looks_each: u32,
    looks: u32,
    next: Point,
    /// The highest rate of one look.
    pub(crate) peak_bps: f64,
}

impl HistoryCurve {
    /// Adds the figures of a look, which comes a second after the last one.
    pub(crate) fn add(&mut self, look: Point) {
        self.peak_bps = self.peak_bps.max(look.goodput_bps);
        self.looks_each = self.looks_each.max(1);
        let share = 1.0 / f64::from(self.looks + 1);
        let goodput_bps = self.next.goodput_bps + (look.goodput_bps - self.next.goodput_bps) * share;
        self.next = Point { goodput_bps, ..look };
        self.looks += 1;
        if self.looks >= self.looks_each {
            self.looks = 0;
            self.points.push(std::mem::take(&mut self.next));
            if self.points.len() >= POINTS_MAX {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        let both = |pair: &[Point]| match pair {
            [one, other] => Point { goodput_bps: (one.goodput_bps + other.goodput_bps) / 2.0, ..*other },
            rest => rest.last().copied().unwrap_or_default(),
        };
        self.points = self.points.chunks(2).map(both).collect();
        self.looks_each = self.looks_each.saturating_mul(2);
    }

    /// All points, including the one that is not complete.
    pub(crate) fn points(&self) -> Vec<Point> {
        let mut points = self.points.clone();
        points.extend((self.looks > 0).then_some(self.next));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_transfer_has_no_more_points_than_a_short_one_and_the_same_mean() {
        let mut curve = HistoryCurve::default();
        for second in 1..=10_000 {
            let goodput_bps = if second == 5000 { 1e9 } else { 1e6 * f64::from(second % 10) };
            curve.add(Point { at_s: f64::from(second), goodput_bps, ..Point::default() });
            assert!(curve.points().len() <= POINTS_MAX);
        }
        let points = curve.points();
        assert!(points.len() >= POINTS_MAX / 2 && points.last().is_some_and(|last| last.at_s == 10_000.0));
        assert!(points.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
        let mean = points.iter().map(|point| point.goodput_bps).sum::<f64>() / points.len() as f64;
        assert!((mean / 4.6e6 - 1.0).abs() < 0.02, "{mean}");
        assert_eq!(curve.peak_bps, 1e9);
    }
}
