//! The running checksum of a stream: Fletcher's, of four sums over words of 32 bits.

use super::fields::Order;

/// Four running sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fletcher(pub(super) [u64; 4]);

impl Fletcher {
    /// Adds bytes; a rest of less than four bytes does not occur in streams and is left out.
    pub(super) fn add(&mut self, bytes: &[u8], order: Order) {
        let [mut a, mut b, mut c, mut d] = self.0;
        let (words, _) = bytes.as_chunks::<4>();
        for word in words {
            let word = match order {
                Order::Little => u32::from_le_bytes(*word),
                Order::Big => u32::from_be_bytes(*word),
            };
            a = a.wrapping_add(u64::from(word));
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_sums_of_sums() {
        let mut sum = Fletcher::default();
        sum.add(&[1, 0, 0, 0, 2, 0, 0, 0], Order::Little);
        assert_eq!(sum.0, [3, 4, 5, 6]);
        let mut other = Fletcher::default();
        other.add(&[0, 0, 0, 1], Order::Big);
        other.add(&[0, 0, 0, 2], Order::Big);
        assert_eq!(other, sum);
    }
}
