//! The engine as a [`Target`]: maps slots to handles and results to outcomes.

use crate::feed_consumer::FeedConsumer;
use crate::history::{
    CURSORS, CursorMove, FAMILIES, HISTORY_POINTS, Op, SNAPSHOTS, ScanBounds, Value, Write,
    WriteKind, family_name,
};
use crate::oracle::{DAY_MS, Outcome, START_MS, Target};
use crate::settings::Settings;
use perigee::env::{Clock, Env};
use perigee::stats::VerifyReport;
use perigee::{Cursor, Db, Error, ErrorKind, Family, Iter, Result, Snapshot, WriteBatch};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A clock whose wall time only histories change. Its monotonic time follows the simulated clock,
/// plus the days that were skipped.
#[derive(Debug)]
struct SimWallClock {
    base: Arc<dyn Clock>,
    wall_ms: AtomicU64,
    advanced_us: AtomicU64,
}

impl SimWallClock {
    fn new(env: &Env) -> Arc<SimWallClock> {
        let (wall_ms, passed_us) = (AtomicU64::new(START_MS), AtomicU64::new(0));
        Arc::new(SimWallClock { base: Arc::clone(&env.clock), wall_ms, advanced_us: passed_us })
    }
    fn advance_days(&self, days: u64) {
        self.wall_ms.fetch_add(days * DAY_MS, SeqCst);
        self.advanced_us.fetch_add(days * DAY_MS * 1000, SeqCst);
    }
    fn jump_years(&self, ahead: bool) {
        let years = 10 * 365 * DAY_MS;
        let by = if ahead { years } else { years.wrapping_neg() };
        self.wall_ms.fetch_add(by, SeqCst);
    }
}

impl Clock for SimWallClock {
    fn wall_ms(&self) -> u64 {
        // Repeated jumps back would end before 1970: the clock stays there.
        let ms = self.wall_ms.load(SeqCst);
        if ms > u64::MAX / 2 { 0 } else { ms }
    }
    fn monotonic_us(&self) -> u64 {
        self.base.monotonic_us() + self.advanced_us.load(SeqCst)
    }
    fn sleep_us(&self, us: u64) {
        self.base.sleep_us(us);
    }
}

/// Returns a time to live of this many days and a half.
fn ttl_of_days(days: u64) -> Duration {
    Duration::from_millis(days * DAY_MS + DAY_MS / 2)
}

/// Path of the simulated database.
pub const PATH: &str = "/db";

enum OpenIterator {
    Cursor(Box<Cursor>),
    Iter(Box<Iter>),
}

/// An open database with its slots.
pub struct EngineTarget {
    db: Db,
    env: Env,
    clock: Arc<SimWallClock>,
    settings: Settings,
    families: [Option<Family>; FAMILIES],
    snapshots: [Option<Snapshot>; SNAPSHOTS],
    /// Remembered sequence numbers, each with true if a named snapshot pins it.
    history_points: [Option<(u64, bool)>; HISTORY_POINTS],
    feed_consumer: FeedConsumer,
    open_cursors: [Option<OpenIterator>; CURSORS],
}

impl Target for EngineTarget {
    fn perform(&mut self, op: &Op) -> Outcome {
        match self.try_perform(op) {
            Ok(outcome) => outcome,
            Err(e) => expected_error(&e),
        }
    }
}

impl EngineTarget {
    /// Opens (or creates) the database at [`PATH`].
    pub fn open(env: Env, settings: Settings) -> Result<EngineTarget> {
        let hands = SimWallClock::new(&env);
        let env = Env { clock: hands.clone(), ..env };
        let db = Db::open(Path::new(PATH), settings.options(env.clone()))?;
        let mut engine = EngineTarget {
            db,
            env,
            clock: hands,
            settings,
            families: Default::default(),
            snapshots: Default::default(),
            history_points: Default::default(),
            feed_consumer: FeedConsumer::default(),
            open_cursors: Default::default(),
        };
        engine.load_family_handles()?;
        Ok(engine)
    }

    /// Closes the database.
    pub fn close(mut self) -> Result<()> {
        self.drop_slots();
        self.db.close()
    }

    fn load_family_handles(&mut self) -> Result<()> {
        let names = self.db.families();
        for slot in 0..FAMILIES {
            let name = family_name(slot);
            self.families[slot] =
                if names.contains(&name) { Some(self.db.family(&name)?) } else { None };
        }
        Ok(())
    }

    fn drop_slots(&mut self) {
        self.families = Default::default();
        self.snapshots = Default::default();
        self.open_cursors = Default::default();
    }

    fn try_perform(&mut self, op: &Op) -> Result<Outcome> {
        match op {
            Op::Write { writes, batched } => self.write(writes, *batched),
            Op::Load { families, entries, memory } => self.bulk_load(families, entries, *memory),
            Op::Get { family, key, snapshot } => self.get(*family, key, *snapshot),
            Op::MultiGet { family, keys, snapshot } => self.multi_get(*family, keys, *snapshot),
            Op::Contains { family, key, snapshot } => self.contains(*family, key, *snapshot),
            Op::Scan { family, span, snapshot, backs, steps } => {
                match self.open_iter(*family, span, *snapshot)? {
                    Some(iter) => drain_iter(iter, *backs, *steps),
                    None => Ok(Outcome::Skipped),
                }
            }
            Op::TakeSnapshot { slot } => {
                self.snapshots[*slot] = Some(self.db.snapshot()?);
                Ok(Outcome::Done)
            }
            Op::DropSnapshot { slot } => Ok(drop_slot(&mut self.snapshots[*slot])),
            Op::RememberSeq { moment, named } => self.save_history_point(*moment, *named),
            Op::ReadPast { moment, family } => self.read_history_point(*moment, *family),
            Op::FollowFeed { family } => self.read_change_feed(*family),
            Op::OpenCursor { slot, family, range, snapshot } => {
                let Some((family, snapshot)) = self.family_and_snapshot(*family, *snapshot) else {
                    return Ok(Outcome::Skipped);
                };
                let cursor = match snapshot {
                    Some(snapshot) => snapshot.cursor_within(family, range.clone())?,
                    None => family.cursor_within(range.clone())?,
                };
                self.open_cursors[*slot] = Some(OpenIterator::Cursor(Box::new(cursor)));
                Ok(Outcome::Done)
            }
            Op::OpenIter { slot, family, span, snapshot } => {
                match self.open_iter(*family, span, *snapshot)? {
                    Some(iter) => {
                        self.open_cursors[*slot] = Some(OpenIterator::Iter(Box::new(iter)));
                        Ok(Outcome::Done)
                    }
                    None => Ok(Outcome::Skipped),
                }
            }
            Op::MoveCursor { slot, to } => match &mut self.open_cursors[*slot] {
                Some(OpenIterator::Cursor(cursor)) => move_cursor(cursor, to),
                _ => Ok(Outcome::Skipped),
            },
            Op::StepIter { slot, back } => match &mut self.open_cursors[*slot] {
                Some(OpenIterator::Iter(iter)) => step(iter, *back).map(Outcome::Entry),
                _ => Ok(Outcome::Skipped),
            },
            Op::DropCursor { slot } => Ok(drop_slot(&mut self.open_cursors[*slot])),
            other => self.perform_admin(other),
        }
    }

    fn save_history_point(&mut self, moment: usize, named: bool) -> Result<Outcome> {
        let name = format!("moment {moment}");
        if let Some((_, true)) = self.history_points[moment] {
            self.db.history().drop_snapshot(&name)?;
        }
        let seq = if named {
            self.db.history().create_snapshot(&name)?
        } else {
            self.db.history().latest_seq()
        };
        self.history_points[moment] = Some((seq, named));
        Ok(Outcome::Done)
    }

    fn read_history_point(&self, moment: usize, family: usize) -> Result<Outcome> {
        let (Some((seq, named)), Some(family)) =
            (self.history_points[moment], &self.families[family])
        else {
            return Ok(Outcome::Skipped);
        };
        let snapshot = if named {
            self.db.history().named_snapshot(&format!("moment {moment}"))?
        } else {
            match self.db.history().snapshot_at(seq) {
                Err(e) if self.settings.retains_history() => {
                    return Ok(Outcome::Failed(e.to_string()));
                }
                snapshot => snapshot?,
            }
        };
        drain_iter(snapshot.iter(family)?, 0, usize::MAX)
    }

    /// Returns the contents of a column family as the feed consumer has them, if its changes are
    /// kept.
    fn read_change_feed(&mut self, family: usize) -> Result<Outcome> {
        let Some(family) = self.families[family].clone() else { return Ok(Outcome::Skipped) };
        let there = drain_iter(family.iter()?, 0, usize::MAX)?;
        if !self.settings.retains_log() {
            return Ok(there);
        }
        self.db.sync()?;
        if let Err(e) = self.feed_consumer.consume(&self.db, &self.settings) {
            return Ok(Outcome::Failed(e));
        }
        let known = self.feed_consumer.entries(family.id(), self.db.admin().clock().now_ms);
        Ok(known.map_or(there, Outcome::Entries))
    }

    /// Performs an operation on the whole database.
    fn perform_admin(&mut self, op: &Op) -> Result<Outcome> {
        match op {
            Op::Create { family } => {
                let made =
                    self.db.create_family(&family_name(*family), self.settings.family.clone())?;
                self.families[*family] = Some(made);
            }
            Op::Drop { family } => self.db.drop_family(&family_name(*family))?,
            Op::Rename { family, to } => {
                self.db.admin().rename_family(&family_name(*family), &family_name(*to))?;
                if family != to {
                    self.families[*to] = self.families[*family].take();
                }
            }
            Op::Clone { family, to } => {
                let made =
                    self.db.admin().clone_family(&family_name(*family), &family_name(*to))?;
                self.families[*to] = Some(made);
            }
            Op::Clear { family } => self.db.admin().clear_family(&family_name(*family))?,
            Op::FamilyNames => return Ok(Outcome::Names(self.db.families())),
            Op::Flush { family: None } => self.db.admin().flush()?,
            Op::Compact { family: None } => self.db.admin().compact()?,
            Op::Flush { family: Some(slot) } => match &self.families[*slot] {
                Some(family) => family.flush()?,
                None => return Ok(Outcome::Skipped),
            },
            Op::Compact { family: Some(slot) } => match &self.families[*slot] {
                Some(family) => family.compact()?,
                None => return Ok(Outcome::Skipped),
            },
            Op::Purge { family: None } => self.db.admin().purge()?,
            Op::Purge { family: Some(slot) } => match &self.families[*slot] {
                Some(family) => family.purge()?,
                None => return Ok(Outcome::Skipped),
            },
            Op::CompactRange { family, range } => match &self.families[*family] {
                Some(family) => family.compact_range(range.clone())?,
                None => return Ok(Outcome::Skipped),
            },
            Op::FlushWhilePaused => self.flush_while_paused()?,
            Op::CancelCompactions { us } => {
                // At a low rate a compaction is more likely to be cancelled halfway.
                let rate = self.db.admin().background_rate();
                self.db.admin().set_background_rate(Some(50_000));
                self.env.clock.sleep_us(*us);
                self.db.admin().cancel_background_work()?;
                self.db.admin().set_background_rate(rate);
                self.db.admin().resume_background_work()?;
                self.env.clock.sleep_us(100);
                // A cancelled compaction has not failed, however soon compactions resume.
                let failure = self
                    .db
                    .admin()
                    .stats()
                    .background_error
                    .filter(|e| e.kind() == ErrorKind::Busy);
                if let Some(e) = failure {
                    return Ok(Outcome::Failed(format!(
                        "a cancelled compaction is reported as failed: {e}"
                    )));
                }
            }
            Op::SetRate { bytes_per_second } => {
                self.db
                    .admin()
                    .set_background_rate(Some(*bytes_per_second).filter(|rate| *rate > 0));
            }
            Op::Sync => self.db.sync()?,
            Op::WaitIdle => self.db.admin().wait_idle()?,
            Op::Verify => check_report(&self.db.admin().verify()?)?,
            Op::AdvanceDays { days } => {
                self.clock.advance_days(*days);
                return Ok(self.read_time());
            }
            Op::ClockJump => {
                self.db.admin().flush()?;
                self.clock.jump_years(true);
                let compacted = self.db.admin().compact();
                self.clock.jump_years(false);
                compacted?;
                return Ok(self.read_time());
            }
            Op::ClockBack => {
                self.clock.jump_years(false);
                return Ok(self.read_time());
            }
            Op::Reopen => self.reopen()?,
            other => {
                return Err(Error::internal(format!(
                    "driver: {other:?} is not an operation on the whole database"
                )));
            }
        }
        Ok(Outcome::Done)
    }

    /// Checks that a flush is refused while background work is paused.
    fn flush_while_paused(&self) -> Result<()> {
        let pause = self.db.admin().pause_background_work()?;
        let files = self.db.admin().files().len();
        match self.db.admin().flush() {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::Busy => {}
            Err(e) => return Err(e),
        }
        if !self.db.admin().stats().running_jobs.is_empty()
            || self.db.admin().files().len() != files
        {
            return Err(Error::internal("work went on although it was paused"));
        }
        pause.resume();
        Ok(())
    }

    fn read_time(&self) -> Outcome {
        let now = self.db.admin().clock().now_ms;
        Outcome::Time(now, now)
    }

    /// Closes and reopens the database. Before the reopen, every handle still held must answer
    /// `Closed`.
    fn reopen(&mut self) -> Result<()> {
        self.db.close()?;
        for family in self.families.iter().flatten() {
            match family.put(b"k", b"v") {
                Err(e) if matches!(e.kind(), ErrorKind::Closed | ErrorKind::NotFound) => {}
                other => {
                    return Err(Error::internal(format!(
                        "a write to a closed database gave {other:?}"
                    )));
                }
            }
        }
        self.drop_slots();
        self.db = Db::open(Path::new(PATH), self.settings.options(self.env.clone()))?;
        let recovery = self.db.admin().stats().recovery;
        if !recovery.clean || recovery.truncated_bytes != 0 {
            return Err(Error::internal(format!("after a clean close: {recovery:?}")));
        }
        self.load_family_handles()
    }

    fn write(&self, writes: &[Write], batched: bool) -> Result<Outcome> {
        if writes.iter().any(|w| self.families[w.family].is_none()) {
            return Ok(Outcome::Skipped);
        }
        let family = |w: &Write| self.families[w.family].as_ref().expect("checked above");
        match (writes, batched) {
            ([w], false) => match (w.value, &w.how) {
                (_, WriteKind::DeleteRange(range)) => family(w).delete_range(range.clone())?,
                (_, WriteKind::DeletePrefix) => family(w).delete_prefix(&w.key)?,
                (Some(value), WriteKind::Ttl(days)) => {
                    family(w).put_with_ttl(&w.key, value.bytes(), ttl_of_days(*days))?
                }
                (Some(value), WriteKind::Merge) => family(w).merge(&w.key, value.bytes())?,
                (Some(value), _) if value.bytes().len() % 5 == 4 => {
                    let mut writer = family(w).writer(&w.key)?;
                    writer.set_logged_bytes_max(0);
                    value.bytes().chunks(7).try_for_each(|part| writer.append(part))?;
                    writer.finish().map(drop)?
                }
                (Some(value), _) => family(w).put(&w.key, value.bytes())?,
                (None, WriteKind::SingleDelete) => family(w).single_delete(&w.key)?,
                (None, _) => family(w).delete(&w.key)?,
            },
            _ => {
                let mut batch = WriteBatch::new();
                for w in writes {
                    let (family, key) = (family(w), &w.key);
                    match (w.value, &w.how) {
                        (_, WriteKind::DeleteRange(range)) => {
                            batch.delete_range(family, range.clone())?
                        }
                        (_, WriteKind::DeletePrefix) => batch.delete_prefix(family, key)?,
                        (Some(v), WriteKind::Ttl(days)) => {
                            batch.put_with_ttl(family, key, v.bytes(), ttl_of_days(*days))?
                        }
                        (Some(value), WriteKind::Merge) => {
                            batch.merge(family, key, value.bytes())?
                        }
                        (Some(value), _) => batch.put(family, key, value.bytes())?,
                        (None, WriteKind::SingleDelete) => batch.single_delete(family, key)?,
                        (None, _) => batch.delete(family, key)?,
                    }
                }
                self.db.write(batch)?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Returns the handles in the slots, if they are occupied.
    fn family_and_snapshot(
        &self,
        family: usize,
        snapshot: Option<usize>,
    ) -> Option<(&Family, Option<&Snapshot>)> {
        let family = self.families[family].as_ref()?;
        match snapshot {
            Some(slot) => Some((family, Some(self.snapshots[slot].as_ref()?))),
            None => Some((family, None)),
        }
    }

    fn get(&self, family: usize, key: &[u8], snapshot: Option<usize>) -> Result<Outcome> {
        Ok(Outcome::Value(match self.family_and_snapshot(family, snapshot) {
            None => return Ok(Outcome::Skipped),
            Some((family, None)) => family.get(key)?,
            Some((family, Some(snapshot))) => snapshot.get(family, key)?,
        }))
    }

    fn bulk_load(
        &self,
        families: &[usize],
        entries: &[(Vec<u8>, Value)],
        memory: usize,
    ) -> Result<Outcome> {
        if entries.is_empty() {
            return Ok(Outcome::Done);
        }
        let Some(families) =
            families.iter().map(|f| self.families[*f].as_ref()).collect::<Option<Vec<_>>>()
        else {
            return Ok(Outcome::Skipped);
        };
        let mut loads = Vec::new();
        let now_ms = self.db.admin().clock().now_ms;
        for family in families {
            let mut load = family.bulk_load()?.memory_bytes(memory);
            for (key, value) in entries {
                match value.load_kind() {
                    WriteKind::Ttl(days) => load.put_until(
                        key,
                        value.bytes(),
                        now_ms + ttl_of_days(days).as_millis() as u64,
                    )?,
                    _ => load.put(key, value.bytes())?,
                }
            }
            loads.push(load);
        }
        perigee::load::BulkLoad::finish_all(&mut loads)?;
        Ok(Outcome::Done)
    }

    fn multi_get(
        &self,
        family: usize,
        keys: &[Vec<u8>],
        snapshot: Option<usize>,
    ) -> Result<Outcome> {
        let answers = match self.family_and_snapshot(family, snapshot) {
            None => return Ok(Outcome::Skipped),
            Some((family, _)) if keys.is_empty() => {
                family.contains([])?; // without keys, multi_get would return no error
                Vec::new()
            }
            Some((family, None)) => family.multi_get(keys),
            Some((family, Some(snapshot))) => snapshot.multi_get(family, keys),
        };
        let values = answers.into_iter().map(|a| a.map(|v| v.map(Vec::from)));
        Ok(Outcome::Values(values.collect::<Result<_>>()?))
    }

    fn contains(&self, family: usize, key: &[u8], snapshot: Option<usize>) -> Result<Outcome> {
        Ok(Outcome::Present(match self.family_and_snapshot(family, snapshot) {
            None => return Ok(Outcome::Skipped),
            Some((family, None)) => family.contains(key)?,
            Some((family, Some(snapshot))) => snapshot.contains(family, key)?,
        }))
    }

    fn open_iter(
        &self,
        family: usize,
        span: &ScanBounds,
        snapshot: Option<usize>,
    ) -> Result<Option<Iter>> {
        let Some((family, snapshot)) = self.family_and_snapshot(family, snapshot) else {
            return Ok(None);
        };
        Ok(Some(match (span, snapshot) {
            (ScanBounds::Range(range), None) => family.range(range.clone())?,
            (ScanBounds::Range(range), Some(snapshot)) => snapshot.range(family, range.clone())?,
            (ScanBounds::Prefix(prefix), None) => family.prefix(prefix)?,
            (ScanBounds::Prefix(prefix), Some(snapshot)) => snapshot.prefix(family, prefix)?,
        }))
    }
}

/// Maps a documented error to its outcome, and any other error to its text.
fn expected_error(e: &Error) -> Outcome {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::InvalidArgument => {
            Outcome::Refused(e.kind())
        }
        _ => Outcome::Failed(e.to_string()),
    }
}

/// Returns the first error of a report.
pub fn check_report(report: &VerifyReport) -> Result<()> {
    report.errors.first().map_or(Ok(()), |e| Err(e.clone()))
}

fn drop_slot<T>(slot: &mut Option<T>) -> Outcome {
    if slot.take().is_some() { Outcome::Done } else { Outcome::Skipped }
}

fn step(iter: &mut Iter, back: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let entry = if back { iter.next_back() } else { iter.next() };
    Ok(entry.transpose()?.map(|(key, value)| (key.to_vec(), value.to_vec())))
}

fn drain_iter(mut iter: Iter, backs: u64, steps: usize) -> Result<Outcome> {
    let mut out = Vec::new();
    for i in 0..steps {
        match step(&mut iter, backs >> (i % 64) & 1 == 1)? {
            Some(entry) => out.push(entry),
            None => {
                let after = (step(&mut iter, false)?, step(&mut iter, true)?);
                if after != (None, None) {
                    return Err(Error::internal("an iterator returned an entry after its end"));
                }
                break;
            }
        }
    }
    Ok(Outcome::Entries(out))
}

fn move_cursor(cursor: &mut Cursor, to: &CursorMove) -> Result<Outcome> {
    match to {
        CursorMove::First => cursor.seek_to_first()?,
        CursorMove::Last => cursor.seek_to_last()?,
        CursorMove::Seek(key) => cursor.seek(key)?,
        CursorMove::SeekForPrev(key) => cursor.seek_for_prev(key)?,
        CursorMove::Next => cursor.next()?,
        CursorMove::Prev => cursor.prev()?,
    }
    if !cursor.is_valid() {
        return Ok(Outcome::Entry(None));
    }
    Ok(Outcome::Entry(Some((cursor.key().to_vec(), cursor.value()?.to_vec()))))
}
