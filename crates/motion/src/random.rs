//! A small seeded generator (splitmix64), so that a seed replays a run on any machine.

/// The generator.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number, evenly distributed.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An evenly distributed number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A normally distributed number with a mean of 0 and a deviation of 1.
    pub fn normal(&mut self) -> f64 {
        let length = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        length * (std::f64::consts::TAU * self.unit()).cos()
    }
}
