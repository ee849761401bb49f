//! Whether a seek asks for the key itself first. That pays where keys that are sought are mostly there and the cursor does
//! not go on from them; a cursor that is used otherwise asks seldom, and one whose seeks go on from where it is (to the next
//! keys, or some further) not at all. Pure: a count of what was learned.

/// What a cursor learned from its seeks.
#[derive(Debug)]
pub struct Probe {
    possible: bool,
    /// From 0 (never of use) to [`Probe::MOST`].
    worth: u8,
    /// Seeks since the last question.
    since: u8,
    /// The last seek asked, and found.
    hit: bool,
    /// Seeks one after the other that went on nearby, up to [`Probe::MOST`].
    near: u8,
}

impl Probe {
    const MOST: u8 = 8;
    const SELDOM: u8 = 32;

    /// A cursor that was not used yet; `possible`: whether it may ask at all.
    pub fn new(possible: bool) -> Probe {
        Probe { possible, worth: Probe::MOST / 2, since: 0, hit: false, near: 0 }
    }
    /// A seek came; `near`: to a key behind the one that is shown, in the block at hand.
    pub fn came(&mut self, near: bool) {
        self.near = if near { Probe::MOST.min(self.near + 1) } else { self.near / 4 };
    }
    /// Whether seeks go on from where the cursor is.
    pub fn goes_on(&self) -> bool {
        self.near >= 2
    }
    /// Before a seek; `unmoved`: the cursor still stands where the last question left it.
    pub fn rate(&mut self, unmoved: bool) {
        if std::mem::take(&mut self.hit) {
            self.worth = if unmoved { Probe::MOST.min(self.worth + 1) } else { self.worth.saturating_sub(1) };
        }
    }
    /// Whether to ask now.
    pub fn is_worth_it(&mut self) -> bool {
        self.since += 1;
        let ask = self.possible && (self.worth > 0 || self.since >= Probe::SELDOM);
        if ask {
            (self.since, self.hit) = (0, true);
        }
        ask
    }
    /// The key was not there.
    pub fn was_in_vain(&mut self) {
        self.hit = false;
        self.worth = self.worth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_that_finds_nothing_asks_seldom_until_it_finds() {
        let mut p = Probe::new(true);
        let asked = |p: &mut Probe, there: bool| {
            p.rate(there);
            let ask = p.is_worth_it();
            if ask && !there {
                p.was_in_vain();
            }
            ask
        };
        assert_eq!((0..324).filter(|_| asked(&mut p, false)).count(), 4 + 10);
        let found = (0..324).filter(|_| asked(&mut p, true)).count();
        assert!(found > 290, "{found}");
        assert!(!Probe::new(false).is_worth_it());
    }

    #[test]
    fn seeks_that_go_on_nearby_leave_a_block_now_and_then() {
        let mut p = Probe::new(true);
        assert!(!p.goes_on());
        (0..30).for_each(|_| p.came(true));
        p.came(false);
        assert!(p.goes_on(), "the next block");
        p.came(false);
        assert!(!p.goes_on(), "elsewhere");
    }

    #[test]
    fn a_cursor_that_goes_on_from_where_it_is_asks_seldom() {
        let mut p = Probe::new(true);
        let asked = (0..100).filter(|_| {
            p.rate(false);
            p.is_worth_it()
        });
        assert!(asked.count() < 10);
    }
}
