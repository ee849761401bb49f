//! What transactions have read and written, in forms that can be compared: keys by themselves, and stretches of keys.

use perigee_base::cut::{Cut, CutRef};
use perigee_base::{FamilyId, KeyOrder};
use perigee_file::log::Op;
use std::collections::HashSet;
use std::ops::Range;

/// What a read or a write is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A key.
    Key(&'a [u8]),
    /// All keys between two places.
    Range(CutRef<'a>, CutRef<'a>),
}

impl<'a> Target<'a> {
    /// What `op`, which points into `buf`, is about.
    pub fn of(buf: &'a [u8], op: &Op) -> Target<'a> {
        match op.range_in(buf) {
            Some((begin, end)) => Target::Range(begin, end),
            None => Target::Key(&buf[op.key.clone()]),
        }
    }
    /// Whether both are about a key in common.
    pub fn meets(self, order: KeyOrder, other: Target<'_>) -> bool {
        match (self, other) {
            (Target::Key(a), Target::Key(b)) => order.equal(a, b),
            (Target::Key(key), Target::Range(begin, end)) | (Target::Range(begin, end), Target::Key(key)) => {
                holds(order, begin, end, key)
            }
            // A stretch whose ends are the wrong way round holds nothing.
            (Target::Range(a, b), Target::Range(c, d)) => {
                let holds = |from: CutRef<'_>, to: CutRef<'_>| from.cmp(order, to).is_lt();
                holds(a, b) && holds(c, d) && CutRef::overlap(order, (a, b), (c, d))
            }
        }
    }
    /// The key, or where the stretch begins.
    pub fn key(self) -> &'a [u8] {
        match self {
            Target::Key(key) => key,
            Target::Range(begin, _) => begin.key().unwrap_or_default(),
        }
    }
}

fn holds(order: KeyOrder, begin: CutRef<'_>, end: CutRef<'_>, key: &[u8]) -> bool {
    begin.is_before(order, key) && !end.is_before(order, key)
}

/// The operations of a batch by family, as the commit has them.
pub trait Parts {
    /// Every operation with its family; the buffer that it points into.
    fn each(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &Op));
}

/// Keys read by themselves, and stretches walked through.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    bytes: Vec<u8>,
    keys: Vec<(FamilyId, Range<usize>)>,
    /// Hashes of the keys that are listed: most are read again and again.
    seen: HashSet<(FamilyId, u64)>,
    ranges: Vec<(FamilyId, Cut, Cut)>,
}

impl Reads {
    /// Remembers a key.
    pub fn key(&mut self, family: FamilyId, order: KeyOrder, key: &[u8]) {
        if self.seen.insert((family, order.filter_hash(key))) || !order.can_filter() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.keys.push((family, start..self.bytes.len()));
        }
    }
    /// Remembers a stretch; the number under which it can be widened.
    pub fn range(&mut self, family: FamilyId, (begin, end): (CutRef<'_>, CutRef<'_>)) -> usize {
        self.ranges.push((family, begin.to_cut(), end.to_cut()));
        self.ranges.len() - 1
    }
    /// A walk has gone on: its stretch reaches at least from and to these places.
    pub fn widen(&mut self, number: usize, order: KeyOrder, (begin, end): (CutRef<'_>, CutRef<'_>)) {
        if let Some((_, from, to)) = self.ranges.get_mut(number) {
            if begin.cmp(order, from.as_ref()).is_lt() {
                *from = begin.to_cut();
            }
            if end.cmp(order, to.as_ref()).is_gt() {
                *to = end.to_cut();
            }
        }
    }
    /// Everything, as what it is about.
    pub fn each(&self, visit: &mut dyn FnMut(FamilyId, Target<'_>)) {
        self.keys.iter().for_each(|(family, at)| visit(*family, Target::Key(&self.bytes[at.clone()])));
        self.ranges.iter().for_each(|(family, b, e)| visit(*family, Target::Range(b.as_ref(), e.as_ref())));
    }
    /// Whether a write to `target`, a key of which has `hash`, changes what was read.
    pub fn meet(&self, family: FamilyId, order: KeyOrder, hash: u64, target: Target<'_>) -> bool {
        let ranges = || self.ranges.iter().filter(|(f, ..)| *f == family);
        let in_ranges =
            || ranges().any(|(_, b, e)| Target::Range(b.as_ref(), e.as_ref()).meets(order, target));
        match target {
            Target::Key(_) if order.can_filter() => self.seen.contains(&(family, hash)) || in_ranges(),
            Target::Key(key) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| order.equal(&self.bytes[at.clone()], key)) || in_ranges()
            }
            Target::Range(begin, end) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| holds(order, begin, end, &self.bytes[at.clone()])) || in_ranges()
            }
        }
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.keys.len() * 64 + self.ranges.len() * 128) as u64
    }
}

/// What a transaction has written, kept beyond its batch: family and its order, hash of the key, place.
#[derive(Debug, Default)]
pub struct Written(pub Vec<(FamilyId, KeyOrder, u64, Place)>);

/// What a write was about, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// One key.
    Key(Vec<u8>),
    /// All keys between two places.
    Stretch(Cut, Cut),
}

impl Place {
    /// Borrowed.
    pub fn target(&self) -> Target<'_> {
        match self {
            Place::Key(key) => Target::Key(key),
            Place::Stretch(begin, end) => Target::Range(begin.as_ref(), end.as_ref()),
        }
    }
}

impl Written {
    /// All that a batch writes; families that are gone have no order, and nobody reads them.
    pub fn of(parts: &dyn Parts, order_of: &dyn Fn(FamilyId) -> Option<KeyOrder>) -> Written {
        let mut all = Vec::new();
        parts.each(&mut |family, buf, op| {
            let Some(order) = order_of(family) else { return };
            let (hash, place) = match Target::of(buf, op) {
                Target::Key(key) => (order.filter_hash(key), Place::Key(key.to_vec())),
                Target::Range(begin, end) => (0, Place::Stretch(begin.to_cut(), end.to_cut())),
            };
            all.push((family, order, hash, place));
        });
        Written(all)
    }
    /// Something of it that changes what was read.
    pub fn meets(&self, reads: &Reads) -> Option<(FamilyId, &Place)> {
        let hit =
            self.0.iter().find(|(family, order, hash, p)| reads.meet(*family, *order, *hash, p.target()));
        hit.map(|(family, _, _, place)| (*family, place))
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|w| 96 + w.3.target().key().len() as u64).sum()
    }
}
