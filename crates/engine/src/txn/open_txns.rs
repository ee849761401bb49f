//! Counts the open transactions and the memory that their writes hold. Every begin, write and end
//! updates the counters, which are striped by thread to avoid contention.

use perigee_base::StripedCounter;

/// Transactions that have begun and not ended. One thread may add what another subtracts: the
/// wrapping sums are correct.
#[derive(Debug, Default)]
pub struct OpenTxns {
    count: StripedCounter,
    bytes: StripedCounter,
}

/// A counted transaction, with the bytes that it has reported.
#[derive(Debug)]
pub struct OpenTxnToken {
    bytes: u64,
}

impl OpenTxns {
    /// Counts a new transaction.
    pub fn begin(&self) -> OpenTxnToken {
        self.count.add(1);
        OpenTxnToken { bytes: 0 }
    }
    /// Sets the bytes that the transaction holds.
    #[inline]
    pub fn set_bytes(&self, txn: &mut OpenTxnToken, bytes: u64) {
        self.bytes.add(bytes.wrapping_sub(std::mem::replace(&mut txn.bytes, bytes)));
    }
    /// Ends a transaction.
    pub fn end(&self, txn: OpenTxnToken) {
        self.count.add(0u64.wrapping_sub(1));
        self.bytes.add(0u64.wrapping_sub(txn.bytes));
    }
    /// Returns the number of open transactions and the bytes that they hold. The sums are read
    /// while other threads count: either may be slightly stale.
    pub fn totals(&self) -> (u64, u64) {
        // Another thread's end may be counted here before its beginning: report 0 then.
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
        let other_thread = Arc::clone(&open);
        std::thread::spawn(move || other_thread.end(one)).join().unwrap();
        assert_eq!(open.totals(), (1, 7));
        open.end(other);
        assert_eq!(open.totals(), (0, 0));
    }
}
