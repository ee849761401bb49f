//! Planned failures: which mutating call of a simulated disk fails, and how. Pure counting; what a failure
//! does to the bytes is the disk's business.

use perigee_base::{Error, ErrorKind};

/// A way in which a call can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any mutating call: input/output error. An append may leave a prefix, a sync loses its dirty pages.
    Eio,
    /// An append (which leaves a prefix), an allocation, a creation or a link: the disk is full.
    Enospc,
    /// An append: only a prefix was written, then an error.
    ShortWrite,
    /// A sync of a file or directory: what was dirty is clean but not written, or reverted, by the seed.
    SyncFails,
}

/// A mutating call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
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
    fn hits(self, op: Op) -> bool {
        match self {
            Fault::Eio => true,
            Fault::Enospc => matches!(op, Op::Append | Op::Allocate | Op::Create | Op::Link),
            Fault::ShortWrite => op == Op::Append,
            Fault::SyncFails => matches!(op, Op::Sync | Op::DirSync),
        }
    }

    /// The error that the caller sees.
    pub(crate) fn error(self, doing: &str) -> Error {
        let os = |code| Error::io(doing, &std::io::Error::from_raw_os_error(code));
        match self {
            Fault::Eio | Fault::SyncFails => os(5),
            Fault::Enospc => os(28),
            Fault::ShortWrite => Error::new(ErrorKind::Io, format!("{doing}: short write")),
        }
    }
}

/// What happens to a mutating call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It works.
    Go,
    /// It fails like this.
    Fail(Fault),
    /// The simulated machine stops inside it.
    Crash,
}

#[derive(Clone, Debug)]
struct Plan {
    /// Number of the first call that may fail.
    from: u64,
    fault: Fault,
    sticky: bool,
}

/// The plans of one disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: u64,
    plans: Vec<Plan>,
    crash_at: Option<u64>,
    crashed: bool,
    /// Suffix of the names whose reads fail, and how often still.
    reads: Vec<(String, u64)>,
}

impl Faults {
    /// Counts a mutating call and decides about it.
    pub fn next(&mut self, op: Op) -> Result<Verdict, Error> {
        self.check_alive()?;
        self.calls += 1;
        if self.crash_at.is_some_and(|at| self.calls >= at) {
            self.crashed = true;
            return Ok(Verdict::Crash);
        }
        let calls = self.calls;
        let due = self.plans.iter().position(|p| calls >= p.from && p.fault.hits(op));
        Ok(due.map_or(Verdict::Go, |at| {
            let plan = &self.plans[at];
            let fault = plan.fault;
            if !plan.sticky {
                self.plans.remove(at);
            }
            Verdict::Fail(fault)
        }))
    }

    /// The error of every call after the crash.
    pub fn check_alive(&self) -> Result<(), Error> {
        if self.crashed { Err(crash_error()) } else { Ok(()) }
    }

    /// Whether a read of `name` fails.
    pub fn next_read(&mut self, name: &str) -> Result<(), Error> {
        self.check_alive()?;
        for (suffix, left) in &mut self.reads {
            if *left > 0 && name.ends_with(suffix.as_str()) {
                *left -= 1;
                return Err(Fault::Eio.error("read").in_file(name));
            }
        }
        Ok(())
    }

    pub fn fail_at(&mut self, n: u64, fault: Fault, sticky: bool) {
        self.plans.push(Plan { from: self.calls.saturating_add(n), fault, sticky });
    }

    pub fn fail_reads(&mut self, suffix: &str, times: u64) {
        self.reads.push((suffix.to_owned(), times));
    }

    pub fn crash_at(&mut self, n: u64) {
        if n == 0 {
            self.crashed = true;
        } else {
            self.crash_at = Some(self.calls.saturating_add(n));
        }
    }

    pub fn heal(&mut self) {
        self.plans.clear();
        self.reads.clear();
    }

    pub fn calls(&self) -> u64 {
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
    fn a_plan_waits_for_a_call_it_fits() {
        let mut f = Faults::default();
        f.fail_at(2, Fault::SyncFails, false);
        assert_eq!(f.next(Op::Sync).unwrap(), Verdict::Go);
        assert_eq!(f.next(Op::Append).unwrap(), Verdict::Go);
        assert_eq!(f.next(Op::Sync).unwrap(), Verdict::Fail(Fault::SyncFails));
        assert_eq!(f.next(Op::Sync).unwrap(), Verdict::Go);
    }

    #[test]
    fn sticky_until_healed() {
        let mut f = Faults::default();
        f.fail_at(1, Fault::Enospc, true);
        for _ in 0..3 {
            assert_eq!(f.next(Op::Append).unwrap(), Verdict::Fail(Fault::Enospc));
            assert_eq!(f.next(Op::Sync).unwrap(), Verdict::Go);
        }
        f.heal();
        assert_eq!(f.next(Op::Append).unwrap(), Verdict::Go);
    }

    #[test]
    fn nothing_works_after_the_crash() {
        let mut f = Faults::default();
        f.crash_at(2);
        assert_eq!(f.next(Op::Create).unwrap(), Verdict::Go);
        assert_eq!(f.next(Op::Create).unwrap(), Verdict::Crash);
        assert_eq!(f.next(Op::Create).unwrap_err().message(), "simulated crash");
        assert!(f.next_read("x").is_err());
        assert_eq!(f.calls(), 2);
    }
}
