//! Prepared transactions that nobody has decided yet, and what they keep others from: until the decision nobody writes what one
//! of them wrote, or read where its level checks reads. So the decision to commit can never fail over a conflict.
//!
//! 1. A transaction enters and leaves the list in the commit section; there writers ask it. (It also leaves outside if its prepare
//!    record did not reach the log: until then others have a conflict too many.)
//! 2. Its record in the log has the number [`Undecided::lsn`]; no segment goes that holds it, unless a later one has a copy.
//! 3. Who writes while there is none looks at one counter.
//!
//! Must not know the log, families or the commit. The mutex guards the list; no I/O inside.

use crate::footprint::{Place, Reads, Target};
use crate::locks::{LockMode, Locks, Mine, Owner};
use crate::serial::Member;
use perigee_base::cut::{Cut, CutRef};
use perigee_base::{Error, ErrorKind, FamilyId, KeyOrder, Result, SeqNo};
use perigee_file::log::{Claimed, Ops, Prepare};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The code of the level serializable; larger ones mean nothing.
pub const SERIALIZABLE: u8 = 4;

/// Refuses a level that this version does not know.
pub fn check_level(level: u8) -> Result<()> {
    if level > SERIALIZABLE {
        let text = "a prepared transaction has a level of isolation that this version does not know: open it with a newer Perigee";
        return Err(
            Error::new(ErrorKind::FormatTooNew, text).expected(format_args!("0 to {SERIALIZABLE}"), level)
        );
    }
    Ok(())
}

/// Refuses a record that does not hold as many operations as it says.
pub fn check_operations(said: u32, found: u32) -> Result<()> {
    if said != found {
        let e = Error::corruption("a prepared transaction holds another number of operations than it says");
        return Err(e.expected(said, found));
    }
    Ok(())
}

/// Keys and ranges that nobody else may write, of one family, in its order.
#[derive(Debug, Default)]
struct Side {
    keys: Vec<Vec<u8>>,
    /// Ascending and apart.
    ranges: Vec<(Cut, Cut)>,
}

impl Side {
    fn add(&mut self, target: Target<'_>) {
        match target {
            Target::Key(key) => self.keys.push(key.to_vec()),
            Target::Range(begin, end) => self.ranges.push((begin.to_cut(), end.to_cut())),
        }
    }
    /// Brings them into order; what overlaps becomes one.
    fn settle(&mut self, order: KeyOrder) {
        self.keys.sort_unstable_by(|a, b| order.cmp(a, b));
        self.keys.dedup_by(|a, b| order.equal(a, b));
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|(begin, end)| begin.as_ref().cmp(order, end.as_ref()).is_lt());
        ranges.sort_unstable_by(|a, b| a.0.as_ref().cmp(order, b.0.as_ref()));
        for (begin, end) in ranges {
            match self.ranges.last_mut().filter(|r| begin.as_ref().cmp(order, r.1.as_ref()).is_le()) {
                Some(last) if last.1.as_ref().cmp(order, end.as_ref()).is_lt() => last.1 = end,
                Some(_) => {}
                None => self.ranges.push((begin, end)),
            }
        }
    }
    /// A range that meets `target`: only the first that does not end before it can.
    fn met_by_range(&self, order: KeyOrder, target: Target<'_>) -> Option<Target<'_>> {
        let before = |end: CutRef<'_>| match target {
            Target::Key(key) => end.is_before(order, key),
            Target::Range(begin, _) => end.cmp(order, begin).is_le(),
        };
        let at = self.ranges.partition_point(|(_, end)| before(end.as_ref()));
        let (begin, end) = self.ranges.get(at)?;
        let range = Target::Range(begin.as_ref(), end.as_ref());
        range.meets(order, target).then_some(range)
    }
    /// A key in a range: only the first behind where it begins can be.
    fn met_by_key(&self, order: KeyOrder, (begin, end): (CutRef<'_>, CutRef<'_>)) -> Option<Target<'_>> {
        let at = self.keys.partition_point(|key| !begin.is_before(order, key));
        let key = Target::Key(self.keys.get(at)?);
        key.meets(order, Target::Range(begin, end)).then_some(key)
    }
    fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        let keys = self.keys.iter().map(|k| Target::Key(k));
        keys.chain(self.ranges.iter().map(|(b, e)| Target::Range(b.as_ref(), e.as_ref())))
    }
}

/// What a transaction keeps others from in one family.
#[derive(Debug)]
struct Guards {
    order: KeyOrder,
    wrote: Side,
    read: Side,
}

impl Guards {
    fn sides(&self, writes: bool) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.wrote).chain(writes.then_some(&self.read))
    }
}

fn place(target: Target<'_>) -> Place {
    match target {
        Target::Key(key) => Place::Key(key.to_vec()),
        Target::Range(begin, end) => Place::Stretch(begin.to_cut(), end.to_cut()),
    }
}

/// A prepared transaction.
#[derive(Debug)]
pub struct Undecided {
    /// Its global identifier.
    pub gid: Vec<u8>,
    /// The code of its level.
    pub level: u8,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Operations that it will make.
    pub operations: u32,
    /// The payload of its record, and where the operations lie in it.
    payload: Arc<Vec<u8>>,
    batch: Range<usize>,
    guards: BTreeMap<FamilyId, Guards>,
    /// What it read, as serializable transactions know it, if it is one.
    pub member: Option<Arc<Member>>,
    lsn: AtomicU64,
    /// As which it holds locks, and which.
    owner: Owner,
    mine: Mutex<Mine>,
}

/// A lock that a record says was held: to be taken again.
pub type HeldLock = (FamilyId, Place, LockMode);

impl Undecided {
    /// The transaction of a record's payload.
    pub fn decode(
        payload: Arc<Vec<u8>>,
        order_of: &dyn Fn(FamilyId) -> Option<KeyOrder>,
        owner: Owner,
    ) -> Result<Undecided> {
        let p = Prepare::decode(&payload)?;
        check_level(p.head.level)?;
        let (mut guards, mut reads) = (BTreeMap::new(), Reads::default());
        let mut guard = |family, target: Target<'_>, wrote: bool| {
            // Of a family that is gone nobody writes anything.
            let Some(order) = order_of(family) else { return };
            let none = || Guards { order, wrote: Side::default(), read: Side::default() };
            let mine = guards.entry(family).or_insert_with(none);
            if wrote {
                return mine.wrote.add(target);
            }
            mine.read.add(target);
            match target {
                Target::Key(key) => reads.key(family, order, key),
                Target::Range(begin, end) => drop(reads.range(family, (begin, end))),
            }
        };
        for claim in p.claims.iter().filter(|c| c.mode == 0) {
            let target = match claim.on {
                Claimed::Key(key) => Target::Key(key),
                Claimed::Range(begin, end) => Target::Range(begin, end),
            };
            guard(claim.family, target, false);
        }
        let mut operations = 0;
        for op in Ops::new(&payload, p.batch.clone()) {
            let op = op?;
            operations += 1;
            guard(op.family, Target::of(&payload, &op), true);
        }
        check_operations(p.head.operations, operations)?;
        for g in guards.values_mut() {
            g.wrote.settle(g.order);
            g.read.settle(g.order);
        }
        let serial = p.head.level == SERIALIZABLE;
        Ok(Undecided {
            gid: p.head.gid.to_vec(),
            level: p.head.level,
            at_ms: p.head.at_ms,
            operations,
            batch: p.batch,
            guards,
            member: serial.then(|| Member::ended(SeqNo::ZERO, reads)),
            lsn: AtomicU64::new(u64::MAX),
            owner,
            mine: Mutex::default(),
            payload,
        })
    }
    /// Its record's payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Its operations, in log format.
    pub fn batch(&self) -> &[u8] {
        &self.payload[self.batch.clone()]
    }
    /// The number of its record.
    pub fn lsn(&self) -> u64 {
        self.lsn.load(Relaxed)
    }
    /// Its record has this number now; in the commit section.
    pub fn set_lsn(&self, lsn: u64) {
        self.lsn.store(lsn, Relaxed);
    }
    fn mine(&self) -> MutexGuard<'_, Mine> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// These are its owner's locks.
    pub fn hold(&self, mine: Mine) {
        *self.mine() = mine;
    }
    /// Lets go of its locks.
    pub fn release(&self, locks: &Locks) {
        let mut mine = std::mem::take(&mut *self.mine());
        locks.release(self.owner, &mut mine, 0);
    }
    /// Takes the locks again that it held when it was prepared, and those of what it wrote and read: for one that recovery found.
    pub fn lock_again(&self, locks: &Locks, order_of: &dyn Fn(FamilyId) -> Option<KeyOrder>) -> Result<()> {
        let mut mine = std::mem::take(&mut *self.mine());
        let mut take = |family, place: Place, mode| {
            if let Some(order) = order_of(family) {
                locks.restore((family, order), (self.owner, &mut mine), place, mode);
            }
        };
        for claim in Prepare::decode(&self.payload)?.claims {
            let place = match claim.on {
                Claimed::Key(key) => Place::Key(key.to_vec()),
                Claimed::Range(begin, end) => Place::Stretch(begin.to_cut(), end.to_cut()),
            };
            take(claim.family, place, LockMode::decode(claim.mode).unwrap_or(LockMode::Shared));
        }
        for (family, guards) in &self.guards {
            guards.wrote.targets().for_each(|t| take(*family, place(t), LockMode::Exclusive));
        }
        *self.mine() = mine;
        Ok(())
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        let sides = self.guards.values().flat_map(|g| g.sides(true));
        let guards = sides.flat_map(Side::targets).map(|t| 160 + 2 * t.key().len() as u64);
        self.payload.len() as u64 + guards.sum::<u64>()
    }
    /// Whether it wrote to a family, or read it where that counts.
    fn is_about(&self, family: FamilyId) -> bool {
        self.guards.contains_key(&family)
    }
}

/// An identifier, as text.
pub fn shown(gid: &[u8]) -> String {
    format!("\"{}\"", gid.escape_ascii())
}

/// A transaction in whose way somebody is, and over which key.
#[derive(Debug)]
pub struct Met {
    /// The transaction.
    pub gid: Vec<u8>,
    /// The key, or where the range begins.
    pub key: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    undecided: Arc<Undecided>,
    /// Somebody is about to decide it.
    claimed: bool,
}

#[derive(Debug, Default)]
struct Inner {
    by_gid: BTreeMap<Vec<u8>, Entry>,
    /// Identifiers of those that are on their way.
    reserved: BTreeSet<Vec<u8>>,
    /// Those that are about a family.
    about: HashMap<FamilyId, Vec<Arc<Undecided>>>,
    /// The keys that they guard, by a number that equal keys share: whose, whether written, and where.
    keys: HashMap<(FamilyId, u64), Vec<(Arc<Undecided>, bool, usize)>>,
}

impl Inner {
    fn check_free(&self, gid: &[u8]) -> Result<()> {
        if self.by_gid.contains_key(gid) || self.reserved.contains(gid) {
            let text = format!("a transaction is prepared as {} and not decided", shown(gid));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }
}

/// An identifier for one that is on its way; free again when this is dropped, if it has not arrived.
#[derive(Debug)]
pub struct Reserved<'a> {
    all: &'a Prepared,
    gid: &'a [u8],
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.all.inner().reserved.remove(self.gid);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Prepared {
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

impl Prepared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether there is any. Exact in the commit section.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }
    /// Reserves an identifier for one that is to be prepared.
    ///
    /// # Errors
    /// `AlreadyExists` if it is in use.
    pub fn reserve<'a>(&'a self, gid: &'a [u8]) -> Result<Reserved<'a>> {
        let mut inner = self.inner();
        inner.check_free(gid)?;
        inner.reserved.insert(gid.to_vec());
        Ok(Reserved { all: self, gid })
    }
    /// From now on others leave alone what it wrote and read. Its identifier is reserved, or there is nobody else yet.
    ///
    /// # Errors
    /// `AlreadyExists`.
    pub fn enter(&self, undecided: &Arc<Undecided>) -> Result<()> {
        let mut inner = self.inner();
        if inner.by_gid.contains_key(&undecided.gid) {
            return inner.check_free(&undecided.gid);
        }
        for (family, guards) in &undecided.guards {
            inner.about.entry(*family).or_default().push(Arc::clone(undecided));
            for (side, wrote) in [(&guards.wrote, true), (&guards.read, false)] {
                for (i, key) in side.keys.iter().enumerate() {
                    let same = inner.keys.entry((*family, guards.order.equal_hash(key))).or_default();
                    same.push((Arc::clone(undecided), wrote, i));
                }
            }
        }
        let entry = Entry { undecided: Arc::clone(undecided), claimed: false };
        inner.by_gid.insert(undecided.gid.clone(), entry);
        self.count.store(inner.by_gid.len(), Relaxed);
        Ok(())
    }
    /// It is decided, or was never prepared.
    pub fn leave(&self, undecided: &Arc<Undecided>) {
        let mut inner = self.inner();
        let known = inner.by_gid.get(&undecided.gid);
        if !known.is_some_and(|e| Arc::ptr_eq(&e.undecided, undecided)) {
            return;
        }
        inner.by_gid.remove(&undecided.gid);
        for (family, guards) in &undecided.guards {
            if let Some(all) = inner.about.get_mut(family) {
                all.retain(|u| !Arc::ptr_eq(u, undecided));
                if all.is_empty() {
                    inner.about.remove(family);
                }
            }
            for key in guards.sides(true).flat_map(|side| &side.keys) {
                let at = (*family, guards.order.equal_hash(key));
                if let Some(same) = inner.keys.get_mut(&at) {
                    same.retain(|(u, ..)| !Arc::ptr_eq(u, undecided));
                    if same.is_empty() {
                        inner.keys.remove(&at);
                    }
                }
            }
        }
        self.count.store(inner.by_gid.len(), Relaxed);
    }
    /// The one of that identifier, for whoever decides it; nobody else does meanwhile.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if somebody else is about to decide it.
    pub fn claim(&self, gid: &[u8]) -> Result<Arc<Undecided>> {
        let mut inner = self.inner();
        let Some(entry) = inner.by_gid.get_mut(gid).filter(|e| e.undecided.lsn() != u64::MAX) else {
            let text =
                format!("no transaction is prepared as {}: it was decided, or never prepared", shown(gid));
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        if std::mem::replace(&mut entry.claimed, true) {
            let text = format!("the transaction {} is being decided by another thread", shown(gid));
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(Arc::clone(&entry.undecided))
    }
    /// It could not be decided now.
    pub fn unclaim(&self, undecided: &Undecided) {
        if let Some(entry) = self.inner().by_gid.get_mut(&undecided.gid) {
            entry.claimed = false;
        }
    }
    /// All that are in the log, by identifier.
    pub fn all(&self) -> Vec<Arc<Undecided>> {
        let inner = self.inner();
        let entries = inner.by_gid.values().map(|e| &e.undecided);
        entries.filter(|u| u.lsn() != u64::MAX).cloned().collect()
    }
    /// The oldest record that must stay in the log; in the commit section.
    pub fn floor(&self) -> Option<u64> {
        self.all().iter().map(|u| u.lsn()).min()
    }
    /// One that is about a family.
    pub fn about(&self, family: FamilyId) -> Option<Arc<Undecided>> {
        self.all().into_iter().find(|u| u.is_about(family))
    }
    /// One that wrote something of `target`; `writes`: or has read it.
    pub fn met(&self, family: FamilyId, order: KeyOrder, target: Target<'_>, writes: bool) -> Option<Met> {
        let inner = self.inner();
        let met = |u: &Arc<Undecided>, key: &[u8]| Met { gid: u.gid.clone(), key: key.to_vec() };
        let about = inner.about.get(&family).map_or(&[][..], |all| all);
        let sides = about.iter().flat_map(|u| u.guards.get(&family).map(|g| (u, g)));
        let mut sides = sides.flat_map(|(u, g)| g.sides(writes).map(move |side| (u, side)));
        match target {
            Target::Key(key) => {
                let same = inner.keys.get(&(family, order.equal_hash(key))).map_or(&[][..], |same| same);
                let equal = |u: &Undecided, wrote: bool, i: usize| {
                    let side = u.guards.get(&family).map(|g| if wrote { &g.wrote } else { &g.read });
                    side.and_then(|s| s.keys.get(i)).is_some_and(|k| order.equal(k, key))
                };
                let same = same.iter().find(|(u, wrote, i)| (writes || *wrote) && equal(u, *wrote, *i));
                let mut in_range = || sides.find(|(_, side)| side.met_by_range(order, target).is_some());
                same.map(|(u, ..)| u).or_else(|| in_range().map(|(u, _)| u)).map(|u| met(u, key))
            }
            Target::Range(begin, end) => sides.find_map(|(u, side)| {
                let hit = side.met_by_key(order, (begin, end));
                hit.or_else(|| side.met_by_range(order, target)).map(|t| met(u, t.key()))
            }),
        }
    }
}

impl Undecided {
    /// Bytes of its record in the log.
    pub fn log_bytes(&self) -> u64 {
        (perigee_file::log::layout::RECORD_HEADER_BYTES + self.payload.len()) as u64
    }
}

impl Prepared {
    /// Bytes of all records in the log from `lsn` on; in the commit section.
    pub fn log_bytes(&self, lsn: u64) -> u64 {
        if !self.any() {
            return 0;
        }
        self.all().iter().filter(|u| u.lsn() >= lsn).map(|u| u.log_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::cut::CutRef;
    use perigee_file::log::prepare::prepare_record;
    use perigee_file::log::{Batch, Claim, Head};

    const FAMILY: FamilyId = FamilyId(0);

    /// One that wrote `key` and everything from "x" on, and has read `read`.
    fn undecided(gid: &str, key: &str, read: &str) -> Arc<Undecided> {
        let mut batch = Batch::new();
        batch.put(FAMILY, key.as_bytes(), b"v").unwrap();
        batch.delete_range(FAMILY, CutRef::Before(b"x"), CutRef::Last).unwrap();
        let finished = batch.finish();
        let head = Head { gid: gid.as_bytes(), level: SERIALIZABLE, at_ms: 1, operations: 2 };
        let on = Claimed::Key(read.as_bytes());
        let claims = |visit: &mut dyn FnMut(Claim<'_>)| visit(Claim { family: FAMILY, mode: 0, on });
        let record = prepare_record(head, &claims, &finished.buf[finished.payload()]).unwrap();
        let payload = Arc::new(record.buf[record.payload()].to_vec());
        let made = Undecided::decode(payload, &|_| Some(KeyOrder::Bytes), 1).unwrap();
        made.set_lsn(7);
        Arc::new(made)
    }

    fn met(all: &Prepared, key: &str, writes: bool) -> bool {
        all.met(FAMILY, KeyOrder::Bytes, Target::Key(key.as_bytes()), writes).is_some()
    }

    #[test]
    fn what_was_written_and_read_is_kept_until_the_decision() {
        let all = Prepared::default();
        let one = undecided("g", "a", "b");
        all.enter(&one).unwrap();
        assert_eq!(all.enter(&undecided("g", "c", "d")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert!(
            met(&all, "a", true) && met(&all, "b", true) && met(&all, "y", true) && !met(&all, "c", true)
        );
        assert!(met(&all, "a", false) && !met(&all, "b", false), "a reader minds what was written");
        let range = |begin, end| {
            let target = Target::Range(CutRef::Before(begin), CutRef::Before(end));
            all.met(FAMILY, KeyOrder::Bytes, target, true).map(|m| m.key)
        };
        assert_eq!((range(b"a", b"b"), range(b"c", b"x")), (Some(b"a".to_vec()), None));
        assert!(all.met(FamilyId(1), KeyOrder::Bytes, Target::Key(b"a"), true).is_none());
        assert_eq!((all.any(), all.floor(), all.about(FAMILY).is_some()), (true, Some(7), true));
        all.leave(&one);
        assert!(!all.any() && !met(&all, "a", true) && !met(&all, "y", true));
        assert!(all.inner().keys.is_empty() && all.inner().about.is_empty());
    }

    #[test]
    fn an_identifier_on_its_way_is_taken() {
        let all = Prepared::default();
        let first = all.reserve(b"g").unwrap();
        assert_eq!(all.reserve(b"g").unwrap_err().kind(), ErrorKind::AlreadyExists);
        all.enter(&undecided("g", "a", "b")).unwrap();
        drop(first);
        assert_eq!(all.reserve(b"g").unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(all.reserve(b"h").unwrap());
        drop(all.reserve(b"h").unwrap());
    }

    /// Against a plain look at every range and key.
    #[test]
    fn ranges_in_order_answer_as_a_list_would() {
        let order = KeyOrder::Bytes;
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let cut = |n: u64| match n {
                0 => Cut::First,
                29 => Cut::Last,
                n if n % 2 == 0 => Cut::Before(vec![n as u8]),
                n => Cut::After(vec![n as u8]),
            };
            let mut list: Vec<Place> =
                (0..below(6)).map(|_| Place::Stretch(cut(below(30)), cut(below(30)))).collect();
            list.extend((0..below(4)).map(|_| Place::Key(vec![below(30) as u8])));
            let mut side = Side::default();
            list.iter().for_each(|p| side.add(p.target()));
            side.settle(order);
            let asked = match below(2) {
                0 => Place::Key(vec![below(30) as u8]),
                _ => Place::Stretch(cut(below(30)), cut(below(30))),
            };
            let target = asked.target();
            let by_key = match target {
                Target::Key(key) => side.keys.iter().any(|k| k == key),
                Target::Range(begin, end) => side.met_by_key(order, (begin, end)).is_some(),
            };
            let found = by_key || side.met_by_range(order, target).is_some();
            assert_eq!(found, list.iter().any(|p| p.target().meets(order, target)), "{list:?} {asked:?}");
        }
    }

    #[test]
    fn one_decides_at_a_time() {
        let all = Prepared::default();
        let one = undecided("g", "a", "b");
        assert_eq!(all.claim(b"g").unwrap_err().kind(), ErrorKind::NotFound);
        all.enter(&one).unwrap();
        let claimed = all.claim(b"g").unwrap();
        assert_eq!(all.claim(b"g").unwrap_err().kind(), ErrorKind::Busy);
        all.unclaim(&claimed);
        assert!(all.claim(b"g").is_ok());
        all.leave(&undecided("g", "a", "b"));
        assert!(all.any(), "another one of the same name is not the one that leaves");
    }
}
