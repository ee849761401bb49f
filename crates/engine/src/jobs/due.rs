//! Which compactions are due, and which of them one job carries out: a large one alone, small ones of many families together, as
//! `group` does for flushes. Must not carry anything out.

use super::flush::strata;
use crate::core::Core;
use crate::family::Family;
use crate::memory;
use crate::pressure::LEVEL0_TRIGGER;
use perigee_base::{FileId, Now};
use perigee_file::KlogSummary;
use perigee_tree::Version;
use perigee_tree::compact::pick::{Limits, Progress, covered, dense, expired, passed, pick, spooky};
use perigee_tree::compact::{Plan, Reason, Shape};
use std::collections::HashSet;
use std::sync::Arc;

/// Most families of one job: so many merges are done in vain if its edit fails.
const FAMILIES_MAX: usize = 512;
/// Most bytes that they read together, unless the first is larger: then it goes alone. They lie beside their outputs until the
/// job is over.
const BYTES_MAX: u64 = 8 << 20;

/// A plan that a family needs, and what it was made of.
#[derive(Debug)]
pub struct Due {
    /// The family.
    pub family: Arc<Family>,
    /// The version that the plan was made for.
    pub version: Arc<Version>,
    /// The plan.
    pub plan: Plan,
    /// How far the family's merges are once it is carried out, if it is a step of one.
    pub progress: Option<Progress>,
    score: f64,
}

impl Due {
    /// A plan that is no step of anything.
    pub fn new(family: &Arc<Family>, version: Arc<Version>, plan: Plan) -> Due {
        Due { family: Arc::clone(family), version, plan, progress: None, score: f64::MAX }
    }
    /// What its inputs say of themselves.
    pub fn inputs(&self) -> impl Iterator<Item = &KlogSummary> {
        let named: HashSet<FileId> = self.plan.inputs.iter().map(|(_, id)| *id).collect();
        self.version
            .tables()
            .filter(move |(_, _, t)| named.contains(&t.meta.id))
            .map(|(_, _, t)| &t.meta.summary)
    }
    /// Whether its tables are written anew.
    pub fn rewrites(&self) -> bool {
        !self.plan.trivial && self.plan.reason != Reason::Covered
    }
    /// Bytes that it reads.
    pub fn read_bytes(&self) -> u64 {
        if self.rewrites() { self.inputs().map(|s| s.bytes).sum() } else { 0 }
    }
}

/// The most urgent plan of any family, and of other families those that are small together with it; none if no family needs one.
pub fn together(core: &Core) -> Vec<Due> {
    let families = core.families.all();
    let mut all: Vec<Due> = families.iter().filter_map(|f| unneeded(core, f)).collect();
    if all.is_empty() {
        all = families.iter().filter_map(|f| next(core, f)).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    let chosen = choose(all.iter().map(Due::read_bytes));
    let mut chosen = chosen.into_iter();
    all.retain(|_| chosen.next() == Some(true));
    let threads = threads(core, &all);
    if let [alone] = &all[..] {
        let more = beside(core, alone, threads - 1);
        all.extend(more);
    }
    all
}

/// How many of them are carried out at once.
pub fn threads(core: &Core, due: &[Due]) -> usize {
    let largest = due.iter().map(|d| limits(core, &d.family).table_bytes).max().unwrap_or(0);
    memory::merges_at_once(core.memory.budget, largest, core.env.spawn.cores())
}

/// So many plans at most that follow in the same merge, and share no keys with it or each other.
fn beside(core: &Core, due: &Due, most: usize) -> Vec<Due> {
    let mut all: Vec<Due> = Vec::new();
    if most == 0 || !due.rewrites() || !due.plan.reason.is_step() {
        return all;
    }
    let (shape, limits) = (shape(&due.version), limits(core, &due.family));
    while all.len() < most {
        let last = all.last().unwrap_or(due);
        let Some((plan, progress)) = last.progress.as_ref().and_then(|p| spooky::beside(&shape, &limits, p))
        else {
            break;
        };
        let version = Arc::clone(&due.version);
        all.push(Due { progress: Some(progress), ..Due::new(&due.family, version, plan) });
    }
    all
}

/// The shape of a version, with what pickers want to know of it counted.
fn shape(version: &Version) -> Shape {
    let shape = Shape::of(version);
    if spooky::may_waste(&shape) { shape.counted(version) } else { shape }
}

/// Which of merges that read so many bytes, the most urgent first, go together.
fn choose(bytes: impl Iterator<Item = u64>) -> Vec<bool> {
    let (mut sum, mut taken) = (0, 0);
    bytes
        .map(|bytes| {
            let fits = taken == 0 || (taken < FAMILIES_MAX && sum + bytes <= BYTES_MAX);
            if fits {
                (sum, taken) = (sum + bytes, taken + 1);
            }
            fits
        })
        .collect()
}

/// Whether any family needs a compaction.
pub fn any(core: &Core) -> bool {
    core.families.all().iter().any(|f| of(core, f))
}

/// Whether a family needs one.
pub fn of(core: &Core, family: &Arc<Family>) -> bool {
    unneeded(core, family).is_some() || next(core, family).is_some()
}

/// The next plan that the shape of a family asks for. A version that asked for nothing is remembered.
fn next(core: &Core, family: &Arc<Family>) -> Option<Due> {
    let version = Arc::clone(&family.tree.view().version);
    let limits = limits(core, family);
    let progress = family.picked.look(&version, limits)?;
    let shape = shape(&version);
    let Some((plan, progress)) = pick(&shape, &limits, &progress) else {
        family.picked.rest(&version, limits);
        return None;
    };
    let score = spooky::scores(&shape, &limits).into_iter().fold(0.0, f64::max);
    Some(Due { progress: Some(progress), score, ..Due::new(family, version, plan) })
}

/// The tables of a family that range tombstones hide as a whole, from everybody, that are mostly tombstones which everybody
/// sees, or whose tombstones are in the way of scans, or of which much has expired.
fn unneeded(core: &Core, family: &Arc<Family>) -> Option<Due> {
    let version = Arc::clone(&family.tree.view().version);
    // Only where an entry expires somebody asks for the time.
    let now_ms = if version.expires_ms == u64::MAX { 0 } else { core.now.settled_ms() };
    let expired = version.expires_ms <= now_ms;
    let look = core.passed.looks();
    let passed = family.picked.may_have_passed(look);
    if !version.has_ranges && !version.is_dense && !expired && !passed {
        return None;
    }
    let (shape, strata) = (Shape::of(&version), strata(core.readers(None)));
    let plan = covered::pick(&shape, &strata).or_else(|| dense::pick(&shape, &strata));
    let plan = plan.or_else(|| {
        let plan = passed::pick(&shape, &strata).filter(|_| passed);
        if plan.is_none() {
            family.picked.looked(look);
        }
        plan
    });
    let plan = plan.or_else(|| expired::pick(&shape, &strata, now_ms).filter(|_| expired))?;
    Some(Due::new(family, version, plan))
}

/// How long until the next table will be worth a merge for what has expired in it, if there is one; the longest wait if only what
/// is due already, and not worth it or held by a snapshot, is left.
pub fn next_expiry_us(core: &Core) -> Option<u64> {
    let all = core.families.all();
    let times = || all.iter().map(|f| f.tree.pin().version.expires_ms).filter(|ms| *ms < u64::MAX);
    times().next()?;
    let now = core.now.settled_ms();
    let next = times().filter(|ms| *ms > now).min();
    Some(next.map_or(u64::MAX, |ms| (ms - now).saturating_mul(1000)))
}

/// Whether a family has tables that go once a snapshot does.
pub fn waits_for_snapshots(core: &Core) -> bool {
    core.families.all().iter().any(|f| unneeded(core, f).is_some())
}

/// The pickers' settings of a family.
fn limits(core: &Core, family: &Family) -> Limits {
    Limits {
        level0_runs: LEVEL0_TRIGGER,
        level1_bytes: family.settings().level1_bytes,
        ratio: u64::from(family.settings().level_ratio),
        table_bytes: memory::table_bytes(core.memory.budget, family.settings().target_file_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_go_together_and_a_large_one_alone() {
        let n = |bytes: &[u64]| choose(bytes.iter().copied());
        assert_eq!(n(&[]), []);
        assert_eq!(n(&[BYTES_MAX * 9, 1]), [true, false]);
        assert_eq!(n(&[1, BYTES_MAX, 2]), [true, false, true], "small ones do not wait for a large one");
        assert_eq!(n(&[BYTES_MAX - 1, 1, 0, 1]), [true, true, true, false]);
        assert_eq!(n(&vec![0; 5000]).iter().filter(|taken| **taken).count(), FAMILIES_MAX);
    }
}
