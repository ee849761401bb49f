//! The simulation: virtual time, seeded randomness, a simulated disk, and threads whose every
//! switch is chosen by a seed. The same seed and the same program give the same run, bit for bit.
//!
//! ```
//! use perigee_env::fs::memory::SimDisk;
//! use perigee_env::sim::SimWorld;
//!
//! let world = SimWorld::new(7);
//! let woke_at = world.run(SimDisk::new(7), |env| {
//!     let clock = env.clock.clone();
//!     let thread = env.spawn.spawn("sleeper", Box::new(move || clock.sleep_us(5_000))).unwrap();
//!     thread.join().unwrap();
//!     env.clock.monotonic_us()
//! });
//! assert!(woke_at >= 5_000);
//! ```

#[cfg(feature = "sim")]
mod sim_env;
#[cfg(feature = "sim")]
mod world;

#[cfg(feature = "sim")]
pub use crate::sched::ScheduleTrace;
pub use crate::sim_hooks::{is_simulated, yield_point};
#[cfg(feature = "sim")]
pub use world::{SimWorld, current_trace, shift_wall_clock_ms, yield_now};
