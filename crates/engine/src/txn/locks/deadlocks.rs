//! Detection of deadlocks: cycles of transactions that wait for each other.

use super::family_locks::{FamilyLocks, LockOwner, LockRequestState};
use perigee_base::FamilyId;
use std::collections::{BTreeSet, HashMap};

/// Returns true if the newest request of a column family may close a cycle: only if it waits for an
/// owner that itself waits.
///
/// Every new edge of the wait graph starts at the owner of this request, or leads to an owner that
/// was just granted a lock and so does not wait.
pub fn may_close_cycle(families: &HashMap<FamilyId, FamilyLocks>, family: FamilyId) -> bool {
    let waits = |owner: LockOwner| {
        let requests = families.values().flat_map(|g| &g.requests);
        requests.filter(|r| r.state == LockRequestState::Waiting).any(|r| r.owner == owner)
    };
    families.get(&family).is_some_and(|g| {
        !g.requests.is_empty() && g.blockers_of_request(g.requests.len() - 1).any(waits)
    })
}

/// Aborts a victim of every cycle of transactions that wait for each other.
pub fn abort_deadlocks(families: &mut HashMap<FamilyId, FamilyLocks>) {
    while let Some(victim) = find_deadlock_victim(families) {
        let mut aborted = 0;
        for locks in families.values_mut() {
            for request in locks.requests.iter_mut().filter(|r| r.owner == victim) {
                check!(
                    request.state == LockRequestState::Waiting,
                    "only a waiting request is aborted",
                    victim,
                    request.state
                );
                request.state = LockRequestState::Victim;
                request.wakeup.notify_one();
                aborted += 1;
            }
        }
        check!(aborted > 0, "the victim of a deadlock waits for a lock", victim);
    }
}

/// Returns the youngest transaction of a cycle, if there is one.
fn find_deadlock_victim(families: &HashMap<FamilyId, FamilyLocks>) -> Option<LockOwner> {
    let mut waits: HashMap<LockOwner, BTreeSet<LockOwner>> = HashMap::new();
    for locks in families.values() {
        for (at, request) in
            locks.requests.iter().enumerate().filter(|(_, r)| r.state == LockRequestState::Waiting)
        {
            waits.entry(request.owner).or_default().extend(locks.blockers_of_request(at));
        }
    }
    let mut done = BTreeSet::new();
    let mut starts: Vec<LockOwner> = waits.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut path = Vec::new();
        if let Some(victim) = search_cycle(start, &waits, &mut path, &mut done) {
            return Some(victim);
        }
    }
    None
}

fn search_cycle(
    at: LockOwner,
    waits: &HashMap<LockOwner, BTreeSet<LockOwner>>,
    path: &mut Vec<LockOwner>,
    done: &mut BTreeSet<LockOwner>,
) -> Option<LockOwner> {
    if let Some(from) = path.iter().position(|o| *o == at) {
        return path[from..].iter().max().copied();
    }
    if done.contains(&at) {
        return None;
    }
    path.push(at);
    let found = waits
        .get(&at)
        .into_iter()
        .flatten()
        .find_map(|next| search_cycle(*next, waits, path, done));
    path.pop();
    done.insert(at);
    found
}
