//! A small seeded generator (xorshift64*) and the draws that a link needs.

/// The generator.
#[derive(Debug, Clone)]
pub(crate) struct XorShift64(u64);

impl XorShift64 {
    pub(crate) fn new(seed: u64) -> XorShift64 {
        // The finaliser of splitmix64, as neighbouring seeds must not give similar streams.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        XorShift64((state ^ (state >> 31)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in 0..1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`, which is at least one.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Independent events of one probability, drawn as the distance to the next one, so that a packet without an
/// event costs one subtraction.
#[derive(Debug, Clone)]
pub(crate) struct EventDraw {
    share: f64,
    until_next: u64,
}

impl EventDraw {
    pub(crate) fn new(share: f64, random: &mut XorShift64) -> EventDraw {
        let mut events = EventDraw { share, until_next: 0 };
        events.draw(random);
        events
    }

    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Whether the event happens to this packet.
    pub(crate) fn happens(&mut self, random: &mut XorShift64) -> bool {
        if self.until_next > 0 {
            self.until_next -= 1;
            return false;
        }
        self.draw(random);
        true
    }

    fn draw(&mut self, random: &mut XorShift64) {
        self.until_next = match self.share {
            share if share <= 0.0 => u64::MAX,
            share if share >= 1.0 => 0,
            // The geometric distribution; 1 - share() is never zero.
            share => ((1.0 - random.share()).ln() / (1.0 - share).ln()) as u64,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_share() {
        for share in [0.0, 0.001, 0.01, 0.3, 1.0] {
            let mut random = XorShift64::new(7);
            let mut events = EventDraw::new(share, &mut random);
            let count = (0..1_000_000).filter(|_| events.happens(&mut random)).count() as f64;
            let deviation = (1e6 * share * (1.0 - share)).sqrt();
            assert!((count - 1e6 * share).abs() <= 4.0 * deviation, "{share}: {count}");
        }
    }
}
