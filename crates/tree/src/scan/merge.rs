//! Many sources as one, in entry order. Turning round means seeking again: [`super::visible`] does that, so this
//! room only ever goes the way of its last seek.

use super::cursor::{RunCursor, Source};
use crate::View;
use crate::version::Version;
use perigee_base::cut::CutRef;
use perigee_base::key::cmp_entry;
use perigee_base::{EntryRef, Error, KeyOrder, Result, SeqNo};
use perigee_file::Found;
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// The merged position. After an error it is not valid until the next seek.
#[derive(Debug)]
pub struct MergeCursor {
    order: KeyOrder,
    sources: Vec<Source>,
    current: Option<usize>,
    forward: bool,
}

impl MergeCursor {
    /// Over these sources.
    pub fn new(order: KeyOrder, sources: Vec<Source>) -> MergeCursor {
        MergeCursor { order, sources, current: None, forward: true }
    }

    /// Over everything in a view.
    pub fn over_view(view: &View, fill_cache: bool) -> MergeCursor {
        let order = view.version.order;
        let mut sources: Vec<Source> = view.memtables().map(|m| Source::Mem(m.cursor())).collect();
        sources.extend(Self::runs(&view.version, fill_cache));
        MergeCursor::new(order, sources)
    }

    fn runs(version: &Version, fill_cache: bool) -> impl Iterator<Item = Source> {
        version.runs().map(move |r| Source::Run(RunCursor::new(Arc::clone(r), version.order, fill_cache)))
    }

    /// Positions every source by `go`, then chooses.
    fn place(&mut self, forward: bool, go: impl Fn(&mut Source) -> Result<()>) -> Result<()> {
        self.current = None;
        self.forward = forward;
        self.sources.iter_mut().try_for_each(go)?;
        self.choose();
        Ok(())
    }

    /// The source with the smallest entry (largest, when going backward). Linear: there are few sources.
    fn choose(&mut self) {
        let wanted = if self.forward { Less } else { Greater };
        let mut best: Option<usize> = None;
        for i in 0..self.sources.len() {
            if !self.sources[i].valid() {
                continue;
            }
            let better = best.is_none_or(|b| {
                let (a, b) = (self.sources[i].entry(), self.sources[b].entry());
                cmp_entry(self.order, (a.key, a.seq), (b.key, b.seq)) == wanted
            });
            if better {
                best = Some(i);
            }
        }
        self.current = best;
    }

    /// To the first entry at or after (key, seq), going forward.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(true, |s| s.seek(key, seq))
    }
    /// To the last entry before (key, seq), going backward.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(false, |s| s.seek_before(key, seq))
    }
    /// To the first entry, going forward.
    pub fn seek_first(&mut self) -> Result<()> {
        self.place(true, Source::seek_first)
    }
    /// To the last entry, going backward.
    pub fn seek_last(&mut self) -> Result<()> {
        self.place(false, Source::seek_last)
    }
    /// The next entry of the way.
    pub fn step(&mut self) -> Result<()> {
        let Some(i) = self.current.take() else { return Ok(()) };
        if self.forward {
            self.sources[i].next()?
        } else {
            self.sources[i].prev()?
        }
        self.choose();
        Ok(())
    }
    /// Goes on behind `cut` in every source in which everything is older than the tombstone `seq`; a source that also holds
    /// newer entries takes one step, if it is at hand.
    pub fn leave(&mut self, cut: CutRef<'_>, seq: SeqNo) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let (order, forward) = (self.order, self.forward);
        for (i, source) in self.sources.iter_mut().enumerate() {
            let inside = source.valid() && cut.is_before(order, source.entry().key) != forward;
            if inside && source.is_older_than(seq) {
                source.leave(cut, forward)?;
            } else if i == current {
                if forward { source.next()? } else { source.prev()? }
            }
        }
        self.choose();
        Ok(())
    }
    /// Whether it is on an entry.
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }
    fn source(&self) -> &Source {
        &self.sources[self.current.expect("entry() is called on a valid cursor")]
    }
    /// The entry it is on.
    pub fn entry(&self) -> EntryRef<'_> {
        self.source().entry()
    }
    /// Its value, pinned.
    pub fn found(&self) -> Found {
        self.source().found()
    }
    /// Whether it goes forward.
    pub fn forward(&self) -> bool {
        self.forward
    }
    /// Fails unless it goes the given way: a guard for callers.
    pub fn expect_way(&self, forward: bool) -> Result<()> {
        if self.forward == forward {
            Ok(())
        } else {
            Err(Error::internal("a merge was asked to turn without a seek"))
        }
    }
}
