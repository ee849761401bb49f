//! Options and reports of checkpoints and backups: plain data, part of the public interface of
//! `perigee`.

use perigee_base::Error;

/// Result of `Backups::checkpoint`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Sequence number of the last operation in the checkpoint.
    pub sequence: u64,
    /// Number of table and value-log files shared with the source by hard links.
    pub linked_files: u64,
    /// Bytes of the linked files.
    pub linked_bytes: u64,
    /// Number of files copied because the target is on another file system or its file system has
    /// no hard links.
    pub copied_files: u64,
    /// Bytes of the copied files.
    pub copied_bytes: u64,
    /// Bytes of the checkpoint's own log and manifest.
    pub own_bytes: u64,
}

/// Options of a backup.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupOptions {
    /// Reads every copied file back before the generation is recorded (default false). This catches
    /// a disk that does not store what was written; checksums of the source are verified during the
    /// copy in any case.
    pub reread: bool,
}

impl BackupOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets [`BackupOptions::reread`].
    #[must_use]
    pub fn reread(mut self, reread: bool) -> Self {
        self.reread = reread;
        self
    }
}

/// Result of `Backups::create`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Number of the new generation.
    pub generation: u64,
    /// Sequence number of the last operation in the backup.
    pub sequence: u64,
    /// Number of table and value-log files copied by this backup.
    pub new_files: u64,
    /// Bytes of the copied files.
    pub new_bytes: u64,
    /// Number of files already stored by an earlier generation and reused.
    pub shared_files: u64,
    /// Bytes of the reused files.
    pub shared_bytes: u64,
}

/// One generation (one backup) in a backup directory.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Number of the generation, from 1.
    pub generation: u64,
    /// Id of the database that was backed up.
    pub database: u64,
    /// Sequence number of the last operation in the backup.
    pub sequence: u64,
    /// Wall-clock time of the backup, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Bytes of all its files, including those shared with other generations.
    pub bytes: u64,
    /// The files that restore this generation.
    pub files: Vec<BackupFile>,
}

/// One file of a generation.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupFile {
    /// File name in the backup directory.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// Result of `BackupDir::restore`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Number of the restored generation.
    pub generation: u64,
    /// Sequence number of the last operation in the restored database.
    pub sequence: u64,
    /// Number of files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
}

/// Result of `BackupDir::verify`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupVerifyReport {
    /// Number of generations checked.
    pub generations: u64,
    /// Number of files read. A file shared by several generations is read once.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// One item per damaged or missing file.
    pub errors: Vec<BackupDamage>,
}

/// A damaged or missing file of a backup directory. A damaged data file may be deleted: if the
/// source database still has the file, its next backup copies it again, which repairs all
/// generations that need it.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupDamage {
    /// The error.
    pub error: Error,
    /// Numbers of the generations that need the file.
    pub generations: Vec<u64>,
}

/// The generations of a backup directory (`BackupDir::list_readable`).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupList {
    /// The generations whose description can be read, oldest first.
    pub generations: Vec<BackupInfo>,
    /// One error for each of the others.
    pub errors: Vec<Error>,
}

/// Result of `BackupDir::prune`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// Numbers of the removed generations.
    pub removed: Vec<u64>,
    /// Numbers of the remaining generations.
    pub kept: Vec<u64>,
    /// Number of deleted files, which no remaining generation needs.
    pub files: u64,
    /// Bytes of the deleted files.
    pub bytes: u64,
}
