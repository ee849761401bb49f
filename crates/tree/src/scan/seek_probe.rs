//! Whether a seek asks for the key itself first. That pays where keys that are sought are mostly
//! there and the cursor does not go on from them; a cursor that is used otherwise asks seldom, and
//! one whose seeks go on from where it is (to the next keys, or some further) not at all. Pure: a
//! count of what was learned.

/// What a cursor learned from its seeks.
#[derive(Debug)]
pub struct SeekProbe {
    enabled: bool,
    /// From 0 (never of use) to [`SeekProbe::MOST`].
    worth: u8,
    /// Seeks since the last question.
    seeks_since_probe: u8,
    /// The last seek asked, and found.
    hit: bool,
    /// Seeks one after the other that went on nearby, up to [`SeekProbe::MOST`].
    nearby_seeks: u8,
}

impl SeekProbe {
    const SCORE_MAX: u8 = 8;
    const IDLE_SEEKS_MAX: u8 = 32;

    /// A cursor that was not used yet; `possible`: whether it may ask at all.
    pub fn new(possible: bool) -> SeekProbe {
        SeekProbe {
            enabled: possible,
            worth: SeekProbe::SCORE_MAX / 2,
            seeks_since_probe: 0,
            hit: false,
            nearby_seeks: 0,
        }
    }
    /// A seek came; `near`: to a key behind the one that is shown, in the block at hand.
    pub fn record_seek(&mut self, near: bool) {
        self.nearby_seeks = if near {
            SeekProbe::SCORE_MAX.min(self.nearby_seeks + 1)
        } else {
            self.nearby_seeks / 4
        };
    }
    /// Whether seeks go on from where the cursor is.
    pub fn is_sequential(&self) -> bool {
        self.nearby_seeks >= 2
    }
    /// Before a seek; `unmoved`: the cursor still stands where the last question left it.
    pub fn update_worth(&mut self, unmoved: bool) {
        if std::mem::take(&mut self.hit) {
            self.worth = if unmoved {
                SeekProbe::SCORE_MAX.min(self.worth + 1)
            } else {
                self.worth.saturating_sub(1)
            };
        }
    }
    /// Whether to ask now.
    pub fn should_probe(&mut self) -> bool {
        self.seeks_since_probe += 1;
        let ask =
            self.enabled && (self.worth > 0 || self.seeks_since_probe >= SeekProbe::IDLE_SEEKS_MAX);
        if ask {
            (self.seeks_since_probe, self.hit) = (0, true);
        }
        ask
    }
    /// The key was not there.
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
        let asked = |p: &mut SeekProbe, there: bool| {
            p.update_worth(there);
            let ask = p.should_probe();
            if ask && !there {
                p.record_miss();
            }
            ask
        };
        assert_eq!((0..324).filter(|_| asked(&mut p, false)).count(), 4 + 10);
        let found = (0..324).filter(|_| asked(&mut p, true)).count();
        assert!(found > 290, "{found}");
        assert!(!SeekProbe::new(false).should_probe());
    }

    #[test]
    fn nearby_seeks_stay_sequential_across_blocks() {
        let mut p = SeekProbe::new(true);
        assert!(!p.is_sequential());
        (0..30).for_each(|_| p.record_seek(true));
        p.record_seek(false);
        assert!(p.is_sequential(), "the next block");
        p.record_seek(false);
        assert!(!p.is_sequential(), "elsewhere");
    }

    #[test]
    fn iterating_after_seek_makes_probes_rare() {
        let mut p = SeekProbe::new(true);
        let asked = (0..100).filter(|_| {
            p.update_worth(false);
            p.should_probe()
        });
        assert!(asked.count() < 10);
    }
}
