//! What range tombstones hide from a scan. The stretch around the scan's place is kept: inside it an entry costs one or
//! two comparisons of keys, whatever lies beside it; only where the stretch ends are the sources asked again.

use crate::memtable::Memtable;
use crate::own::Own;
use crate::version::Run;
use crate::view::View;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::Cut;
use perigee_base::{KeyOrder, SeqNo};
use perigee_file::ranges::Window;
use std::sync::Arc;

/// A source that has range tombstones.
#[derive(Debug)]
enum Source {
    Own(Own),
    Mem(Arc<Memtable>),
    Run(Arc<Run>),
}

/// The range tombstones of a view, as a reader at one sequence number sees them.
#[derive(Debug)]
pub struct Cover {
    order: KeyOrder,
    at: SeqNo,
    sources: Vec<Source>,
    /// The stretch at hand, in which no source has more than one fragment or gap.
    window: Option<(Cut, Cut)>,
    /// The newest visible tombstone over it.
    newest: Option<SeqNo>,
    /// Entries hidden since the stretch was entered.
    hidden: u32,
}

impl Cover {
    /// Over a view; `None` if nothing in it has range tombstones.
    pub fn over(view: &View, at: SeqNo) -> Option<Box<Cover>> {
        let with = |m: &&Arc<Memtable>| m.ranges().any();
        let own = view.own.iter().filter(|o| o.has_ranges());
        let mut sources: Vec<Source> = own.cloned().map(Source::Own).collect();
        sources.extend(view.memtables().filter(with).map(|m| Source::Mem(Arc::clone(m))));
        if view.version.has_ranges {
            let with = |r: &&Arc<Run>| r.tables.iter().any(|t| t.meta.summary.ranges.is_some());
            sources.extend(view.version.runs().filter(with).map(|r| Source::Run(Arc::clone(r))));
        }
        let order = view.version.order;
        let cover = Cover { order, at, sources, window: None, newest: None, hidden: 0 };
        (!cover.sources.is_empty()).then(|| Box::new(cover))
    }

    /// Whether an entry is hidden.
    pub fn hides(&mut self, key: &[u8], seq: SeqNo) -> bool {
        let inside = self.window.as_ref().is_some_and(|(begin, end)| {
            begin.as_ref().is_before(self.order, key) && !end.as_ref().is_before(self.order, key)
        });
        if !inside {
            self.enter(key);
        }
        let hidden = self.newest.is_some_and(|t| t > seq || bug::on(Bug::RangeCoversNewer));
        self.hidden += u32::from(hidden);
        hidden
    }

    /// Moves to the stretch around `key`.
    fn enter(&mut self, key: &[u8]) {
        self.hidden = 0;
        self.newest = None;
        let (mut begin, mut end) = (Cut::First, Cut::Last);
        let (order, at, newest) = (self.order, self.at, &mut self.newest);
        let mut narrow = |w: Window<'_>, seen: Option<SeqNo>| {
            begin = w.begin.max(order, begin.as_ref()).to_cut();
            end = w.end.min(order, end.as_ref()).to_cut();
            *newest = seen.max(*newest);
        };
        for source in &self.sources {
            match source {
                Source::Mem(m) => drop(m.ranges().with(|list| {
                    let w = list.window(order, key);
                    narrow(w, w.newest(at));
                })),
                Source::Run(r) => {
                    let w = r.window(order, key);
                    narrow(w, w.newest(at));
                }
                Source::Own(own) => {
                    let shown = own.shown();
                    own.memtable().ranges().with(|list| {
                        let w = list.window(order, key);
                        narrow(w, shown.range(|at| w.newest(at)));
                    });
                    for run in own.runs() {
                        let w = run.window(order, key);
                        narrow(w, shown.range(|at| w.newest(at)));
                    }
                }
            }
        }
        self.window = Some((begin, end));
    }

    /// The end of the stretch in the way of the scan and the tombstone over it, once so many of its entries were hidden that
    /// it is worth to seek over the rest.
    pub fn way_out(&self, forward: bool) -> Option<(&Cut, SeqNo)> {
        const PATIENCE: u32 = 4;
        let (begin, end) = self.window.as_ref().filter(|_| self.hidden >= PATIENCE)?;
        Some((if forward { end } else { begin }, self.newest?))
    }
    /// Whether nothing is hidden in the stretch at hand.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.window.is_some() && self.newest.is_none()
    }
    /// Whether a key that lies ahead lies behind the stretch at hand.
    pub fn ends_before(&self, forward: bool, key: &[u8]) -> bool {
        self.window.as_ref().is_none_or(|(begin, end)| {
            if forward {
                end.as_ref().is_before(self.order, key)
            } else {
                !begin.as_ref().is_before(self.order, key)
            }
        })
    }

    /// The scan did leave: the patience starts again.
    pub fn left(&mut self) {
        self.hidden = 0;
    }
}
