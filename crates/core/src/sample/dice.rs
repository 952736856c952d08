//! Random choices that follow from a number: the same number, the same choices, on every machine.

/// A small generator (SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Choices that follow from this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The next 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll().checked_rem(n).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let n = self.below(from.len() as u64);
        usize::try_from(n).ok().and_then(|n| from.get(n))
    }
}
