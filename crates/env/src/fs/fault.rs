//! Fault injection: which mutating call of a simulated disk fails, and how. Only counts calls; the
//! disk applies the effect of a failure to the bytes.

use super::os_error::{DEVICE_FAILED, DISK_FULL};
use perigee_base::{Error, ErrorKind};

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any mutating call fails with an input/output error. An append may leave a prefix, a sync
    /// loses its dirty pages.
    Eio,
    /// An append (which leaves a prefix), an allocation, a creation or a link fails because the
    /// disk is full.
    Enospc,
    /// An append writes only a prefix and fails.
    ShortWrite,
    /// A sync of a file or directory fails: dirty data is marked clean without being written, or
    /// reverted, chosen by the seed.
    SyncFails,
}

/// A mutating call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutatingCall {
    Append,
    Allocate,
    Truncate,
    Sync,
    Create,
    Rename,
    Remove,
    DirSync,
    MoveInto,
    Link,
}

impl Fault {
    fn applies_to(self, op: MutatingCall) -> bool {
        match self {
            Fault::Eio => true,
            Fault::Enospc => matches!(
                op,
                MutatingCall::Append
                    | MutatingCall::Allocate
                    | MutatingCall::Create
                    | MutatingCall::Link
            ),
            Fault::ShortWrite => op == MutatingCall::Append,
            Fault::SyncFails => matches!(op, MutatingCall::Sync | MutatingCall::DirSync),
        }
    }

    /// Returns the error that the caller sees.
    pub(crate) fn error(self, doing: &str) -> Error {
        let os = |code| Error::io(doing, &std::io::Error::from_raw_os_error(code));
        match self {
            Fault::Eio | Fault::SyncFails => os(DEVICE_FAILED),
            Fault::Enospc => os(DISK_FULL),
            Fault::ShortWrite => Error::new(ErrorKind::Io, format!("{doing}: short write")),
        }
    }
}

/// Decision about a mutating call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultVerdict {
    /// The call succeeds.
    Proceed,
    /// The call fails with this fault.
    Fail(Fault),
    /// The simulated machine crashes during the call.
    Crash,
}

#[derive(Clone, Debug)]
struct PlannedFault {
    /// Number of the first call that may fail.
    from: u64,
    fault: Fault,
    sticky: bool,
}

/// The planned faults of one disk.
#[derive(Debug, Default)]
pub(crate) struct FaultInjector {
    calls: u64,
    plans: Vec<PlannedFault>,
    crash_at: Option<u64>,
    crashed: bool,
    /// Suffix of the names whose reads fail, and the remaining number of failures.
    read_faults: Vec<(String, u64)>,
}

impl FaultInjector {
    /// Counts a mutating call and decides its result.
    pub fn decide_call(&mut self, op: MutatingCall) -> Result<FaultVerdict, Error> {
        self.check_alive()?;
        check!(!self.crashed, "no call succeeds after the crash", op);
        self.calls += 1;
        if self.crash_at.is_some_and(|at| self.calls >= at) {
            self.crashed = true;
            return Ok(FaultVerdict::Crash);
        }
        let calls = self.calls;
        let due = self.plans.iter().position(|p| calls >= p.from && p.fault.applies_to(op));
        Ok(due.map_or(FaultVerdict::Proceed, |at| {
            let plan = &self.plans[at];
            let fault = plan.fault;
            if !plan.sticky {
                self.plans.remove(at);
            }
            FaultVerdict::Fail(fault)
        }))
    }

    /// Fails after the crash.
    pub fn check_alive(&self) -> Result<(), Error> {
        if self.crashed { Err(crash_error()) } else { Ok(()) }
    }

    /// Fails if a read of `name` is to fail.
    pub fn decide_read(&mut self, name: &str) -> Result<(), Error> {
        self.check_alive()?;
        for (suffix, left) in &mut self.read_faults {
            if *left > 0 && name.ends_with(suffix.as_str()) {
                *left -= 1;
                return Err(Fault::Eio.error("read").in_file(name));
            }
        }
        Ok(())
    }

    pub fn fail_at(&mut self, n: u64, fault: Fault, sticky: bool) {
        self.plans.push(PlannedFault { from: self.calls.saturating_add(n), fault, sticky });
    }

    pub fn fail_reads(&mut self, suffix: &str, times: u64) {
        self.read_faults.push((suffix.to_owned(), times));
    }

    pub fn crash_at(&mut self, n: u64) {
        if n == 0 {
            self.crashed = true;
        } else {
            self.crash_at = Some(self.calls.saturating_add(n));
        }
    }

    pub fn clear_faults(&mut self) {
        self.plans.clear();
        self.read_faults.clear();
    }

    pub fn call_count(&self) -> u64 {
        self.calls
    }

    pub fn crashed(&self) -> bool {
        self.crashed
    }
}

pub(crate) fn crash_error() -> Error {
    Error::new(ErrorKind::Io, "simulated crash")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_fault_waits_for_a_matching_call() {
        let mut f = FaultInjector::default();
        f.fail_at(2, Fault::SyncFails, false);
        assert_eq!(f.decide_call(MutatingCall::Sync).unwrap(), FaultVerdict::Proceed);
        assert_eq!(f.decide_call(MutatingCall::Append).unwrap(), FaultVerdict::Proceed);
        assert_eq!(
            f.decide_call(MutatingCall::Sync).unwrap(),
            FaultVerdict::Fail(Fault::SyncFails)
        );
        assert_eq!(f.decide_call(MutatingCall::Sync).unwrap(), FaultVerdict::Proceed);
    }

    #[test]
    fn sticky_fault_lasts_until_cleared() {
        let mut f = FaultInjector::default();
        f.fail_at(1, Fault::Enospc, true);
        for _ in 0..3 {
            assert_eq!(
                f.decide_call(MutatingCall::Append).unwrap(),
                FaultVerdict::Fail(Fault::Enospc)
            );
            assert_eq!(f.decide_call(MutatingCall::Sync).unwrap(), FaultVerdict::Proceed);
        }
        f.clear_faults();
        assert_eq!(f.decide_call(MutatingCall::Append).unwrap(), FaultVerdict::Proceed);
    }

    #[test]
    fn every_call_fails_after_the_crash() {
        let mut f = FaultInjector::default();
        f.crash_at(2);
        assert_eq!(f.decide_call(MutatingCall::Create).unwrap(), FaultVerdict::Proceed);
        assert_eq!(f.decide_call(MutatingCall::Create).unwrap(), FaultVerdict::Crash);
        assert_eq!(f.decide_call(MutatingCall::Create).unwrap_err().message(), "simulated crash");
        assert!(f.decide_read("x").is_err());
        assert_eq!(f.call_count(), 2);
    }
}
