//! How many transactions are open, and how much memory their writes hold together. Every begin,
//! write and end says so: cells of each thread's own, so that they do not meet here.

use perigee_base::thread_stripe::StripedCounter;

/// The transactions that have begun and not ended. What one thread adds another may take away: the
/// sums wrap round to the right number.
#[derive(Debug, Default)]
pub struct OpenTxns {
    count: StripedCounter,
    bytes: StripedCounter,
}

/// A transaction that counts, and what it has said that it holds.
#[derive(Debug)]
pub struct OpenTxnToken {
    bytes: u64,
}

impl OpenTxns {
    /// One more.
    pub fn begin(&self) -> OpenTxnToken {
        self.count.add(1);
        OpenTxnToken { bytes: 0 }
    }
    /// It holds so many bytes now.
    #[inline]
    pub fn set_bytes(&self, txn: &mut OpenTxnToken, bytes: u64) {
        self.bytes.add(bytes.wrapping_sub(std::mem::replace(&mut txn.bytes, bytes)));
    }
    /// It has ended.
    pub fn end(&self, txn: OpenTxnToken) {
        self.count.add(0u64.wrapping_sub(1));
        self.bytes.add(0u64.wrapping_sub(txn.bytes));
    }
    /// How many are open, and bytes that they hold. Two sums that are read while others count:
    /// either may be a little behind.
    pub fn totals(&self) -> (u64, u64) {
        // A thread that began one and another that ended it may be read in the wrong order.
        let sum = |counter: &StripedCounter| {
            Some(counter.get()).filter(|n| *n <= u64::MAX / 2).unwrap_or(0)
        };
        (sum(&self.count), sum(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn txn_may_end_on_another_thread() {
        let open = Arc::new(OpenTxns::default());
        let mut one = open.begin();
        let mut other = open.begin();
        open.set_bytes(&mut one, 100);
        open.set_bytes(&mut other, 7);
        open.set_bytes(&mut one, 40);
        assert_eq!(open.totals(), (2, 47));
        let elsewhere = Arc::clone(&open);
        std::thread::spawn(move || elsewhere.end(one)).join().unwrap();
        assert_eq!(open.totals(), (1, 7));
        open.end(other);
        assert_eq!(open.totals(), (0, 0));
    }
}
