//! Locks that the simulation can see. In a real process they are the standard ones (without poisoning); on a
//! thread of the simulation, waiting hands the baton to another thread.
//!
//! Use these wherever a lock is held across I/O, a sleep or another wait. A critical section that does none of
//! these may use `std::sync` directly.
