//! Backups and repair: directories outside the open database, and the reports about them.

pub use crate::maintenance::safety::prune::prune_generations;
pub use crate::maintenance::safety::restore::{
    list_generations, restore_generation, verify_backup,
};
pub use crate::maintenance::safety::{
    BackupDamage, BackupFile, BackupInfo, BackupList, BackupOptions, BackupReport,
    BackupVerifyReport, CheckpointReport, PruneReport, RestoreReport,
};
pub use crate::repair::{DataLoss, LostSequences, RepairReport, RepairedFamily, repair_database};
