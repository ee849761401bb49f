//! What range tombstones hide from a scan. The stretch around the scan's place is kept: inside it
//! an entry costs one or two comparisons of keys, whatever lies beside it; only where the stretch
//! ends are the sources asked again.

use crate::memtable::Memtable;
use crate::txn_overlay::TxnOverlay;
use crate::version::Run;
use crate::view::View;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundary;
use perigee_base::{KeyComparator, SeqNo};
use perigee_file::range_tombstones::TombstoneSpan;
use std::sync::Arc;

/// A source that has range tombstones.
#[derive(Debug)]
enum RangeTombstoneSource {
    Overlay(TxnOverlay),
    Memtable(Arc<Memtable>),
    Run(Arc<Run>),
}

/// The range tombstones of a view, as a reader at one sequence number sees them.
#[derive(Debug)]
pub struct RangeDelAggregator {
    comparator: KeyComparator,
    read_seq: SeqNo,
    sources: Vec<RangeTombstoneSource>,
    /// The stretch at hand, in which no source has more than one fragment or gap.
    span: Option<(KeyBoundary, KeyBoundary)>,
    /// The newest visible tombstone over it.
    newest_tombstone: Option<SeqNo>,
    /// Entries hidden since the stretch was entered.
    hidden_entries: u32,
}

impl RangeDelAggregator {
    /// Over a view; `None` if nothing in it has range tombstones.
    pub fn for_view(view: &View, at: SeqNo) -> Option<Box<RangeDelAggregator>> {
        let with = |m: &&Arc<Memtable>| m.range_tombstones().has_any();
        let own = view.overlay.iter().filter(|o| o.has_range_tombstones());
        let mut sources: Vec<RangeTombstoneSource> =
            own.cloned().map(RangeTombstoneSource::Overlay).collect();
        sources.extend(
            view.memtables().filter(with).map(|m| RangeTombstoneSource::Memtable(Arc::clone(m))),
        );
        if view.version.has_range_tombstones {
            let with = |r: &&Arc<Run>| r.tables.iter().any(|t| t.meta.summary.ranges.is_some());
            sources.extend(
                view.version.runs().filter(with).map(|r| RangeTombstoneSource::Run(Arc::clone(r))),
            );
        }
        let order = view.version.comparator;
        let cover = RangeDelAggregator {
            comparator: order,
            read_seq: at,
            sources,
            span: None,
            newest_tombstone: None,
            hidden_entries: 0,
        };
        (!cover.sources.is_empty()).then(|| Box::new(cover))
    }

    /// Whether an entry is hidden.
    pub fn is_covered(&mut self, key: &[u8], seq: SeqNo) -> bool {
        let inside = self.span.as_ref().is_some_and(|(begin, end)| {
            begin.as_ref().is_before(self.comparator, key)
                && !end.as_ref().is_before(self.comparator, key)
        });
        if !inside {
            self.enter_span(key);
        }
        let hidden =
            self.newest_tombstone.is_some_and(|t| t > seq || bug::is_active(Bug::RangeCoversNewer));
        self.hidden_entries += u32::from(hidden);
        hidden
    }

    /// Moves to the stretch around `key`.
    fn enter_span(&mut self, key: &[u8]) {
        self.hidden_entries = 0;
        self.newest_tombstone = None;
        let (mut begin, mut end) = (KeyBoundary::First, KeyBoundary::Last);
        let (order, at, newest) = (self.comparator, self.read_seq, &mut self.newest_tombstone);
        let mut narrow = |w: TombstoneSpan<'_>, seen: Option<SeqNo>| {
            begin = w.begin.larger(order, begin.as_ref()).to_boundary();
            end = w.end.smaller(order, end.as_ref()).to_boundary();
            *newest = seen.max(*newest);
        };
        for source in &self.sources {
            match source {
                RangeTombstoneSource::Memtable(m) => {
                    drop(m.range_tombstones().with_fragments(|list| {
                        let w = list.span_at(order, key);
                        narrow(w, w.newest_visible(at));
                    }))
                }
                RangeTombstoneSource::Run(r) => {
                    let w = r.range_tombstone_span(order, key);
                    narrow(w, w.newest_visible(at));
                }
                RangeTombstoneSource::Overlay(own) => {
                    let shown = own.visible_seqs();
                    own.memtable().range_tombstones().with_fragments(|list| {
                        let w = list.span_at(order, key);
                        narrow(w, shown.newest_range_tombstone(|at| w.newest_visible(at)));
                    });
                    for run in own.runs() {
                        let w = run.range_tombstone_span(order, key);
                        narrow(w, shown.newest_range_tombstone(|at| w.newest_visible(at)));
                    }
                }
            }
        }
        self.span = Some((begin, end));
    }

    /// The end of the stretch in the way of the scan and the tombstone over it, once so many of its
    /// entries were hidden that it is worth to seek over the rest.
    pub fn seek_target(&self, forward: bool) -> Option<(&KeyBoundary, SeqNo)> {
        const PATIENCE: u32 = 4;
        let (begin, end) = self.span.as_ref().filter(|_| self.hidden_entries >= PATIENCE)?;
        Some((if forward { end } else { begin }, self.newest_tombstone?))
    }
    /// Whether nothing is hidden in the stretch at hand.
    #[inline]
    pub fn is_uncovered(&self) -> bool {
        self.span.is_some() && self.newest_tombstone.is_none()
    }
    /// Whether a key that lies ahead lies behind the stretch at hand.
    pub fn ends_before_key(&self, forward: bool, key: &[u8]) -> bool {
        self.span.as_ref().is_none_or(|(begin, end)| {
            if forward {
                end.as_ref().is_before(self.comparator, key)
            } else {
                !begin.as_ref().is_before(self.comparator, key)
            }
        })
    }

    /// The scan did leave: the patience starts again.
    pub fn reset_hidden(&mut self) {
        self.hidden_entries = 0;
    }
}
