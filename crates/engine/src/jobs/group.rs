//! Which sealed memtables one job flushes, and how far each of them is. Small memtables of many families share what a flush
//! costs beside its table: the syncs of directory and log, the edit and its sync, and a look at every family. Their tables
//! are synced side by side. Small compactions do the same ([`build`]).

use crate::core::Core;
use crate::family::Family;
use perigee_base::Result;
use perigee_tree::rewrite::{Created, Later, Output};
use perigee_tree::{Memtable, VersionEdit};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most memtables of one job: so many tables are written in vain if its edit fails.
const MEMTABLES_MAX: usize = 512;
/// Most bytes of them together, unless the first is larger: then it goes alone.
const BYTES_MAX: u64 = 4 << 20;
/// So many are synced side by side. Their files are open until then.
const SYNCED_MAX: usize = 64;

/// A memtable on its way into a table.
#[derive(Debug)]
pub struct Member {
    /// Its family.
    pub family: Arc<Family>,
    /// The family's name when the job began.
    pub name: Arc<str>,
    /// The oldest sealed memtable of the family.
    pub memtable: Arc<Memtable>,
    /// The files that were made of it.
    pub created: Created,
    /// What they hold, once they are synced.
    pub made: Option<Made>,
    /// Whether the edit that names them was installed.
    pub installed: bool,
}

/// A memtable as tables, not installed.
#[derive(Debug)]
pub struct Made {
    /// Says so to the manifest.
    pub edit: VersionEdit,
    /// What was written.
    pub output: Output,
    /// How long it took.
    pub us: u64,
}

/// What a job of several makes one of.
pub trait Piece {
    /// Its tables, once they are synced.
    fn made(&self) -> Option<&Made>;
    /// They are, or they are worthless.
    fn set_made(&mut self, made: Option<Made>);
}

impl Piece for Member {
    fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }
    fn set_made(&mut self, made: Option<Made>) {
        self.made = made;
    }
}

impl Member {
    /// Nothing made yet.
    pub fn new(family: Arc<Family>, memtable: Arc<Memtable>) -> Member {
        let name = family.name();
        Member { family, name, memtable, created: Created::default(), made: None, installed: false }
    }
    /// Whether the memtable still waits for its flush.
    pub fn waits(&self) -> bool {
        self.family.awaits_flush(&self.memtable)
    }
}

/// The oldest sealed memtable of all families, and those next in age, one of each family, that are small together with it.
pub fn oldest(core: &Core) -> Vec<Member> {
    let sealed = |f: Arc<Family>| f.tree.view().sealed.last().map(|m| (m.first_seq(), Arc::clone(m), f));
    let mut all: Vec<_> = core.families.all().into_iter().filter_map(sealed).collect();
    all.sort_unstable_by_key(|(seq, _, _)| *seq);
    all.truncate(together(all.iter().map(|(_, m, _)| m.bytes())));
    all.into_iter().map(|(_, memtable, family)| Member::new(family, memtable)).collect()
}

/// How many of memtables of these sizes, the oldest first, go together.
fn together(mut sizes: impl Iterator<Item = u64>) -> usize {
    let Some(mut sum) = sizes.next() else { return 0 };
    1 + sizes
        .take(MEMTABLES_MAX - 1)
        .take_while(|bytes| {
            sum += bytes;
            sum <= BYTES_MAX
        })
        .count()
}

/// Makes the tables of all with `make`, by so many threads, which is given somebody to leave syncs to. After an
/// error those that are whole and synced have been told ([`Piece::set_made`]), the others have not.
pub fn build<P: Piece + Send>(
    core: &Core,
    group: &mut [P],
    threads: usize,
    make: impl Fn(&mut P, &Later) -> Result<Made> + Sync,
) -> Result<()> {
    for slice in group.chunks_mut(SYNCED_MAX) {
        let later = Later::default();
        let built = side_by_side(core, slice, threads, |m| {
            let made = make(m, &later)?;
            m.set_made(Some(made));
            Ok(())
        });
        let outputs = slice.iter().filter_map(|m| m.made()).map(|m| &m.output);
        let files = outputs.map(|o| (&o.tables[..], &o.vlogs[..]));
        let synced = later.finish(&core.shelf, files, core.settings.verify_outputs);
        if synced.is_err() {
            slice.iter_mut().for_each(|m| m.set_made(None));
        }
        built.and(synced)?;
    }
    Ok(())
}

/// Does each with `act`, by so many threads; after the first error no other is begun.
fn side_by_side<P: Send>(
    core: &Core,
    group: &mut [P],
    threads: usize,
    act: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<()> {
    let (threads, rest, failed) = (threads.min(group.len()), Mutex::new(group.iter_mut()), OnceLock::new());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    core.env.spawn.side_by_side(threads, &|| {
        while failed.get().is_none() {
            let Some(piece) = next() else { return };
            if let Err(e) = act(piece) {
                let _ = failed.set(e);
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_go_together_and_a_large_one_alone() {
        let n = |sizes: &[u64]| together(sizes.iter().copied());
        assert_eq!((n(&[]), n(&[9 << 20]), n(&[9 << 20, 1])), (0, 1, 1));
        assert_eq!(n(&[1 << 20, 2 << 20, 1 << 20, 1]), 3);
        assert_eq!(n(&[1, 5 << 20, 1]), 1, "in the order of age: none waits behind younger ones");
        assert_eq!(n(&vec![300; 5000]), MEMTABLES_MAX);
    }
}
