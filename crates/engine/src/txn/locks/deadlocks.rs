//! Detection of deadlocks: cycles of transactions that wait for each other.

use super::family_locks::{FamilyLocks, LockRequestState};
use super::granted_lock::LockOwner;
use std::collections::{HashMap, HashSet};
use std::ops::DerefMut;

/// Where the waiting request of an owner is.
#[derive(Clone, Copy, Debug)]
pub struct RequestIndex {
    /// Index of the table in the list of locked tables.
    pub table: usize,
    /// Index of the request in its list.
    pub request: usize,
}

fn waiting_requests<T: DerefMut<Target = FamilyLocks>>(
    tables: &[T],
) -> HashMap<LockOwner, RequestIndex> {
    let mut all = HashMap::new();
    for (table, locks) in tables.iter().enumerate() {
        let waiting = locks.requests.iter().enumerate().filter(|(_, r)| r.is_waiting());
        all.extend(waiting.map(|(request, r)| (r.owner, RequestIndex { table, request })));
    }
    all
}

/// Returns a cycle of waiting transactions that begins with `start`: each waits for the next one,
/// and the last one for the first.
///
/// Every cycle is found by the request that closes it: a new edge of the wait graph starts at the
/// owner of a new request, or leads to an owner that was just granted a lock and so does not wait.
fn find_cycle<T: DerefMut<Target = FamilyLocks>>(
    tables: &[T],
    waiting: &HashMap<LockOwner, RequestIndex>,
    start: LockOwner,
) -> Option<Vec<LockOwner>> {
    let blockers = |owner: LockOwner| {
        waiting.get(&owner).map(|at| tables[at.table].blockers(at.request)).unwrap_or_default()
    };
    let mut visited = HashSet::from([start]);
    let mut path = vec![(start, blockers(start))];
    while let Some((_, pending)) = path.last_mut() {
        match pending.pop() {
            None => drop(path.pop()),
            Some(next) if next == start => {
                return Some(path.into_iter().map(|(owner, _)| owner).collect());
            }
            Some(next) => {
                if waiting.contains_key(&next) && visited.insert(next) {
                    path.push((next, blockers(next)));
                }
            }
        }
    }
    None
}

/// Aborts a victim of every cycle that contains `start`: the youngest transaction. `report` is
/// called before with the index of each request of the cycle, and the victim.
pub fn abort_deadlocks<T: DerefMut<Target = FamilyLocks>>(
    tables: &mut [T],
    start: LockOwner,
    mut report: impl FnMut(&[T], &[RequestIndex], LockOwner),
) {
    loop {
        let waiting = waiting_requests(tables);
        let Some(cycle) = find_cycle(tables, &waiting, start) else { return };
        let victim = cycle.iter().copied().max().unwrap_or(start);
        let requests: Vec<RequestIndex> =
            cycle.iter().filter_map(|owner| waiting.get(owner).copied()).collect();
        check!(
            requests.len() == cycle.len(),
            "the transactions of a deadlock wait for locks",
            cycle,
            victim
        );
        report(tables, &requests, victim);
        let at = waiting[&victim];
        let request = &mut tables[at.table].requests[at.request];
        request.state = LockRequestState::Victim;
        request.wakeup.notify_one();
    }
}
