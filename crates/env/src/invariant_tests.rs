//! Tests that the assertions of this crate fail when their invariant is violated.

use crate::fs::OpenFileLimiter;
use crate::fs::memory::SimDisk;
use crate::rand::SeededRng;
use crate::sim::SimWorld;
use perigee_base::violation;

#[test]
fn assertions_detect_violations() {
    let nested = || SimWorld::new(1).run(SimDisk::new(1), |_| ());
    let cases: [(&str, &dyn Fn()); 5] = [
        ("an index is chosen among at least one", &|| {
            SeededRng::new(1).index(0);
        }),
        ("a probability is between 0 and 1", &|| {
            SeededRng::new(1).chance(1.5);
        }),
        ("only files that were counted are closed", &|| OpenFileLimiter::default().count_closed(1)),
        ("only pinned files are unpinned", &|| OpenFileLimiter::default().unpin(1)),
        ("a simulated thread cannot start another simulation", &|| {
            SimWorld::new(1).run(SimDisk::new(1), |_| nested());
        }),
    ];
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}
