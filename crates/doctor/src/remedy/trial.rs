//! Whether a change has made a figure better, from measurements before and after in turns.

use serde::Serialize;

use crate::check::Measurement;

/// A difference below this share is nothing, however little the figures scatter.
const LEAST: f64 = 0.02;

/// What a trial says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure rose beyond the noise.
    Better,
    /// The figure fell beyond the noise.
    Worse,
    /// It did neither.
    Same,
}

/// The figures of one measurement, of which more is better.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was measured.
    pub measurement: Measurement,
    /// With the earlier values.
    pub before: Vec<f64>,
    /// With the new ones; each was measured just after the one of the same number.
    pub after: Vec<f64>,
}

impl Trial {
    pub(super) fn new(measurement: Measurement) -> Trial {
        Trial { measurement, before: Vec::new(), after: Vec::new() }
    }

    /// The median of the ratios of each pair, less one.
    pub fn gain(&self) -> f64 {
        let ratios = self
            .before
            .iter()
            .zip(&self.after)
            .filter(|(before, _)| **before > 0.0)
            .map(|(before, after)| after / before);
        median(ratios.collect()).unwrap_or(1.0) - 1.0
    }

    /// How far the figures scatter by themselves: the larger of the two medians of the distances from the median.
    pub fn noise(&self) -> f64 {
        let scatter = |figures: &[f64]| {
            let Some(middle) = median(figures.to_vec()).filter(|&middle| middle > 0.0) else { return 0.0 };
            median(figures.iter().map(|figure| (figure / middle - 1.0).abs()).collect()).unwrap_or(0.0)
        };
        scatter(&self.before).max(scatter(&self.after))
    }

    /// What it says.
    pub fn verdict(&self) -> Verdict {
        // Twice the median distance holds three quarters of what scatters evenly; the median of five pairs is steadier still.
        let limit = (2.0 * self.noise()).max(LEAST);
        match self.gain() {
            gain if gain > limit => Verdict::Better,
            gain if gain < -limit => Verdict::Worse,
            _ => Verdict::Same,
        }
    }

    /// The trial in words.
    pub fn words(&self) -> String {
        let percent = self.gain() * 100.0;
        let what = match self.verdict() {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "no difference",
        };
        format!("{}: {what} ({percent:+.0} %, noise {:.0} %)", self.measurement.words(), self.noise() * 100.0)
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(before: [f64; 5], after: [f64; 5]) -> Trial {
        Trial { measurement: Measurement::Core, before: before.into(), after: after.into() }
    }

    #[test]
    fn a_difference_counts_only_beyond_the_noise() {
        let even = [100.0, 101.0, 99.0, 100.0, 100.0];
        assert_eq!(trial(even, [120.0, 121.0, 119.0, 120.0, 120.0]).verdict(), Verdict::Better);
        assert_eq!(trial(even, [90.0, 91.0, 89.0, 90.0, 90.0]).verdict(), Verdict::Worse);
        assert_eq!(trial(even, even).verdict(), Verdict::Same);
        let wild = [60.0, 100.0, 140.0, 80.0, 120.0];
        assert_eq!(trial(wild, [70.0, 110.0, 150.0, 90.0, 130.0]).verdict(), Verdict::Same);
        assert_eq!(trial([0.0; 5], [0.0; 5]).verdict(), Verdict::Same);
    }
}
