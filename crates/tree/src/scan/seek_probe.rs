//! Decides whether a seek first probes for the key itself. That pays if the keys sought usually
//! exist and the cursor does not iterate from them. A cursor used otherwise probes rarely; one
//! whose seeks are sequential (to adjacent or nearby keys) does not probe at all. Pure: counts past
//! results.

/// Statistics of a cursor's past seeks.
#[derive(Debug)]
pub struct SeekProbe {
    enabled: bool,
    /// From 0 (probing is never useful) to [`SeekProbe::SCORE_MAX`].
    worth: u8,
    /// Seeks since the last probe.
    seeks_since_probe: u8,
    /// True if the last seek probed and found the key.
    hit: bool,
    /// Consecutive seeks to nearby keys, up to [`SeekProbe::SCORE_MAX`].
    nearby_seeks: u8,
}

impl SeekProbe {
    const SCORE_MAX: u8 = 8;
    const IDLE_SEEKS_MAX: u8 = 32;

    /// Creates the statistics of a new cursor; `enabled`: false if it must never probe.
    pub fn new(enabled: bool) -> SeekProbe {
        SeekProbe {
            enabled,
            worth: SeekProbe::SCORE_MAX / 2,
            seeks_since_probe: 0,
            hit: false,
            nearby_seeks: 0,
        }
    }
    /// Records a seek; `near`: it is to a key after the current one and in the current block.
    pub fn record_seek(&mut self, near: bool) {
        self.nearby_seeks = if near {
            SeekProbe::SCORE_MAX.min(self.nearby_seeks + 1)
        } else {
            self.nearby_seeks / 4
        };
    }
    /// Returns true if recent seeks were sequential.
    pub fn is_sequential(&self) -> bool {
        self.nearby_seeks >= 2
    }
    /// To be called before a seek; `unmoved`: the cursor was not moved since the last probe.
    pub fn update_worth(&mut self, unmoved: bool) {
        if std::mem::take(&mut self.hit) {
            self.worth = if unmoved {
                SeekProbe::SCORE_MAX.min(self.worth + 1)
            } else {
                self.worth.saturating_sub(1)
            };
        }
    }
    /// Returns true if this seek should probe.
    pub fn should_probe(&mut self) -> bool {
        self.seeks_since_probe = self.seeks_since_probe.saturating_add(1);
        let probe =
            self.enabled && (self.worth > 0 || self.seeks_since_probe >= SeekProbe::IDLE_SEEKS_MAX);
        if probe {
            (self.seeks_since_probe, self.hit) = (0, true);
        }
        probe
    }
    /// Records that the probed key did not exist.
    pub fn record_miss(&mut self) {
        self.hit = false;
        self.worth = self.worth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_make_probes_rare() {
        let mut p = SeekProbe::new(true);
        let probed = |p: &mut SeekProbe, exists: bool| {
            p.update_worth(exists);
            let probe = p.should_probe();
            if probe && !exists {
                p.record_miss();
            }
            probe
        };
        assert_eq!((0..324).filter(|_| probed(&mut p, false)).count(), 4 + 10);
        let found = (0..324).filter(|_| probed(&mut p, true)).count();
        assert!(found > 290, "{found}");
        assert!(!SeekProbe::new(false).should_probe());
    }

    #[test]
    fn nearby_seeks_stay_sequential_across_blocks() {
        let mut p = SeekProbe::new(true);
        assert!(!p.is_sequential());
        (0..30).for_each(|_| p.record_seek(true));
        p.record_seek(false);
        assert!(p.is_sequential(), "a seek into the next block");
        p.record_seek(false);
        assert!(!p.is_sequential(), "a seek to a distant key");
    }

    #[test]
    fn iterating_after_seek_makes_probes_rare() {
        let mut p = SeekProbe::new(true);
        let probes = (0..100).filter(|_| {
            p.update_worth(false);
            p.should_probe()
        });
        assert!(probes.count() < 10);
    }
}
