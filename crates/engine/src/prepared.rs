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
use perigee_base::{Error, ErrorKind, FamilyId, KeyOrder, Result, SeqNo};
use perigee_file::log::{Claimed, Ops, Prepare};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The code of the level serializable; larger ones mean nothing.
pub const SERIALIZABLE: u8 = 4;

/// A key or a range that nobody else may write.
#[derive(Debug)]
struct Guard {
    family: FamilyId,
    /// Of its key, equal for equal keys; a range has none.
    hash: u64,
    place: Place,
    /// The transaction writes it; else it has read it.
    wrote: bool,
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
    guards: Vec<Guard>,
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
        if p.head.level > SERIALIZABLE {
            return Err(Error::corruption("a prepared transaction has an unknown level of isolation"));
        }
        let (mut guards, mut reads) = (Vec::new(), Reads::default());
        let mut guard = |family, target: Target<'_>, wrote: bool| {
            // Of a family that is gone nobody writes anything.
            let Some(order) = order_of(family) else { return };
            let (hash, place) = match target {
                Target::Key(key) => (order.equal_hash(key), Place::Key(key.to_vec())),
                Target::Range(begin, end) => (0, Place::Stretch(begin.to_cut(), end.to_cut())),
            };
            if !wrote {
                match target {
                    Target::Key(key) => reads.key(family, order, key),
                    Target::Range(begin, end) => drop(reads.range(family, (begin, end))),
                }
            }
            guards.push(Guard { family, hash, place, wrote });
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
        if operations != p.head.operations {
            let e =
                Error::corruption("a prepared transaction holds another number of operations than it says");
            return Err(e.expected(p.head.operations, operations));
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
        for guard in self.guards.iter().filter(|g| g.wrote) {
            take(guard.family, guard.place.clone(), LockMode::Exclusive);
        }
        *self.mine() = mine;
        Ok(())
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        let guards = self.guards.iter().map(|g| 160 + 2 * g.place.target().key().len() as u64);
        self.payload.len() as u64 + guards.sum::<u64>()
    }
    /// Whether it wrote to a family, or read it where that counts.
    fn is_about(&self, family: FamilyId) -> bool {
        self.guards.iter().any(|g| g.family == family)
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
    /// Where the guards of keys are, by family and hash.
    keys: HashMap<(FamilyId, u64), Vec<(Arc<Undecided>, usize)>>,
    ranges: Vec<(Arc<Undecided>, usize)>,
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
    /// Refuses an identifier that is in use.
    ///
    /// # Errors
    /// `AlreadyExists`.
    pub fn check_free(&self, gid: &[u8]) -> Result<()> {
        if self.inner().by_gid.contains_key(gid) {
            let text = format!("a transaction is prepared as {} and not decided", shown(gid));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }
    /// From now on others leave alone what it wrote and read.
    ///
    /// # Errors
    /// As [`Prepared::check_free`].
    pub fn enter(&self, undecided: &Arc<Undecided>) -> Result<()> {
        self.check_free(&undecided.gid)?;
        let mut inner = self.inner();
        for (i, guard) in undecided.guards.iter().enumerate() {
            match guard.place {
                Place::Key(_) => {
                    let same = inner.keys.entry((guard.family, guard.hash)).or_default();
                    same.push((Arc::clone(undecided), i));
                }
                Place::Stretch(..) => inner.ranges.push((Arc::clone(undecided), i)),
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
        inner.ranges.retain(|(u, _)| !Arc::ptr_eq(u, undecided));
        for guard in &undecided.guards {
            if let Some(same) = inner.keys.get_mut(&(guard.family, guard.hash)) {
                same.retain(|(u, _)| !Arc::ptr_eq(u, undecided));
                if same.is_empty() {
                    inner.keys.remove(&(guard.family, guard.hash));
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
        let hit = |(undecided, i): &(Arc<Undecided>, usize)| {
            let guard = &undecided.guards[*i];
            let counts = guard.family == family && (writes || guard.wrote);
            (counts && guard.place.target().meets(order, target)).then(|| {
                let key = match target {
                    Target::Key(key) => key,
                    Target::Range(..) => guard.place.target().key(),
                };
                Met { gid: undecided.gid.clone(), key: key.to_vec() }
            })
        };
        let of_ranges = || inner.ranges.iter().find_map(hit);
        match target {
            Target::Key(key) => {
                let same = inner.keys.get(&(family, order.equal_hash(key)));
                same.into_iter().flatten().find_map(hit).or_else(of_ranges)
            }
            Target::Range(..) => {
                let mine = inner.keys.iter().filter(|((f, _), _)| *f == family);
                mine.flat_map(|(_, same)| same).find_map(hit).or_else(of_ranges)
            }
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
        assert!(all.inner().keys.is_empty());
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
