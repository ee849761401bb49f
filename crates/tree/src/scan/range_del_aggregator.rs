//! Entries that range tombstones hide from a scan. The aggregator keeps the span around the scan's
//! position: inside it an entry costs one or two key comparisons, however many sources there are;
//! the sources are consulted again only where the span ends.

use crate::limits::TOMBSTONE_STEPS_MAX;
use crate::memtable::Memtable;
use crate::txn_overlay::TxnOverlay;
use crate::version::Run;
use crate::view::View;
use perigee_base::bug::Bug;
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator, SeqNo, bug};
use perigee_file::RangeTombstones;
use std::ops::Range;
use std::sync::Arc;

/// A source with range tombstones.
#[derive(Debug)]
enum RangeTombstoneSource {
    Overlay(TxnOverlay),
    Memtable {
        memtable: Arc<Memtable>,
        /// Number of steps taken through tombstones that are too new for the reader.
        steps: u32,
    },
    /// The tombstones of a memtable that the reader sees, once it has taken many steps.
    Fragments(RangeTombstones),
    Run(Arc<Run>),
}

/// The range tombstones of a view, as visible to a reader at one sequence number.
#[derive(Debug)]
pub struct RangeDelAggregator {
    comparator: KeyComparator,
    read_seq: SeqNo,
    sources: Vec<RangeTombstoneSource>,
    /// Current span, in which each source has a single visible tombstone, or none.
    span: Option<(KeyBoundary, KeyBoundary)>,
    /// Newest visible tombstone over the span.
    newest_tombstone: Option<SeqNo>,
    /// Number of entries hidden since the span was entered.
    hidden_entries: u32,
}

impl RangeDelAggregator {
    /// Creates an aggregator over a view; `None` if nothing in it has range tombstones.
    pub fn for_view(view: &View, at: SeqNo) -> Option<Box<RangeDelAggregator>> {
        let has_tombstones = |m: &&Arc<Memtable>| m.range_tombstones().has_any();
        let overlays = view.overlay.iter().filter(|o| o.has_range_tombstones());
        let mut sources: Vec<RangeTombstoneSource> =
            overlays.cloned().map(RangeTombstoneSource::Overlay).collect();
        sources.extend(
            view.memtables()
                .filter(has_tombstones)
                .map(|m| RangeTombstoneSource::Memtable { memtable: Arc::clone(m), steps: 0 }),
        );
        if view.version.has_range_tombstones {
            let has_tombstones =
                |r: &&Arc<Run>| r.tables.iter().any(|t| t.meta.summary.ranges.is_some());
            sources.extend(
                view.version
                    .runs()
                    .filter(has_tombstones)
                    .map(|r| RangeTombstoneSource::Run(Arc::clone(r))),
            );
        }
        let comparator = view.version.comparator;
        let aggregator = RangeDelAggregator {
            comparator,
            read_seq: at,
            sources,
            span: None,
            newest_tombstone: None,
            hidden_entries: 0,
        };
        (!aggregator.sources.is_empty()).then(|| Box::new(aggregator))
    }

    /// Returns true if a range tombstone hides the entry.
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

    /// Moves to the span around `key`.
    fn enter_span(&mut self, key: &[u8]) {
        self.hidden_entries = 0;
        self.newest_tombstone = None;
        let (mut begin, mut end) = (KeyBoundary::First, KeyBoundary::Last);
        let (comparator, at, newest) = (self.comparator, self.read_seq, &mut self.newest_tombstone);
        let mut narrow = |keys: Range<KeyBoundaryRef<'_>>, visible: Option<SeqNo>| {
            begin = keys.start.larger(comparator, begin.as_ref()).to_boundary();
            end = keys.end.smaller(comparator, end.as_ref()).to_boundary();
            *newest = visible.max(*newest);
        };
        for source in &mut self.sources {
            if let RangeTombstoneSource::Memtable { memtable, steps } = source
                && *steps > TOMBSTONE_STEPS_MAX
            {
                *source =
                    RangeTombstoneSource::Fragments(memtable.range_tombstones().fragments_at(at));
            }
            match source {
                RangeTombstoneSource::Memtable { memtable, steps } => {
                    let tombstones = memtable.range_tombstones();
                    let is_visible = |seq| seq <= at;
                    tombstones.with_span_around(key, is_visible, |span| {
                        narrow(span.begin..span.end, span.newest);
                        *steps += span.steps;
                    });
                }
                RangeTombstoneSource::Fragments(list) => {
                    let span = list.span_at(comparator, key);
                    narrow(span.begin..span.end, span.newest_visible(at));
                }
                RangeTombstoneSource::Run(r) => {
                    let span = r.range_tombstone_span(comparator, key);
                    narrow(span.begin..span.end, span.newest_visible(at));
                }
                RangeTombstoneSource::Overlay(overlay) => {
                    let visible_seqs = overlay.visible_seqs();
                    let own = overlay.memtable().range_tombstones();
                    let is_visible = |seq| visible_seqs.is_visible(seq);
                    own.with_span_around(key, is_visible, |span| {
                        narrow(span.begin..span.end, span.newest);
                    });
                    for run in overlay.runs() {
                        let span = run.range_tombstone_span(comparator, key);
                        let visible =
                            visible_seqs.newest_range_tombstone(|at| span.newest_visible(at));
                        narrow(span.begin..span.end, visible);
                    }
                }
            }
        }
        check_slow!(
            begin.as_ref().is_before(comparator, key) && !end.as_ref().is_before(comparator, key),
            "the span around a key contains it",
            begin,
            end,
            key
        );
        self.span = Some((begin, end));
    }

    /// Returns the end of the span in scan direction and the tombstone over it, once enough of its
    /// entries were hidden to make seeking past the rest worthwhile.
    pub fn seek_target(&self, forward: bool) -> Option<(&KeyBoundary, SeqNo)> {
        const HIDDEN_BEFORE_SEEK: u32 = 4;
        let (begin, end) =
            self.span.as_ref().filter(|_| self.hidden_entries >= HIDDEN_BEFORE_SEEK)?;
        Some((if forward { end } else { begin }, self.newest_tombstone?))
    }
    /// Returns true if nothing is hidden in the current span.
    #[inline]
    pub fn is_uncovered(&self) -> bool {
        self.span.is_some() && self.newest_tombstone.is_none()
    }
    /// Returns true if a key ahead is past the current span.
    pub fn ends_before_key(&self, forward: bool, key: &[u8]) -> bool {
        self.span.as_ref().is_none_or(|(begin, end)| {
            if forward {
                end.as_ref().is_before(self.comparator, key)
            } else {
                !begin.as_ref().is_before(self.comparator, key)
            }
        })
    }

    /// Restarts the count of hidden entries, after the scan has sought past the span.
    pub fn reset_hidden(&mut self) {
        self.hidden_entries = 0;
    }
}
