//! What checkpoints and backups say about themselves. Plain data.

use crate::Error;

/// What [`crate::Db::checkpoint`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Sequence number of the last operation in it.
    pub sequence: u64,
    /// Files that share their bytes with the source.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files that had to be copied, because the target lies on another file system or it has no
    /// links.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Bytes of its own log and manifest.
    pub own_bytes: u64,
}

/// Settings of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupOptions {
    /// Read every copied file again before the generation counts (default false). The source's
    /// checksums are compared while it is read in any case; this catches a disk that does not keep
    /// what was written.
    pub reread: bool,
}

impl BackupOptions {
    /// The defaults.
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

/// What [`crate::Db::backup`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The new generation.
    pub generation: u64,
    /// Sequence number of the last operation in it.
    pub sequence: u64,
    /// Table files that were copied.
    pub new_files: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Table files that an earlier generation had brought.
    pub shared_files: u64,
    /// Their bytes.
    pub shared_bytes: u64,
}

/// A generation of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number, from 1.
    pub generation: u64,
    /// The id of the database that it was made of.
    pub database: u64,
    /// Sequence number of the last operation in it.
    pub sequence: u64,
    /// When it was made, by the wall clock, in milliseconds since 1970.
    pub created_ms: u64,
    /// Bytes of all its files, shared ones included.
    pub bytes: u64,
    /// Its files.
    pub files: Vec<BackupFile>,
}

/// A file of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupFile {
    /// Its name in the backup directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// What [`crate::Backups::restore`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The generation.
    pub generation: u64,
    /// Sequence number of the last operation in it.
    pub sequence: u64,
    /// Files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What [`crate::Backups::verify`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupVerifyReport {
    /// Generations looked at.
    pub generations: u64,
    /// Files read, each once.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// One error for each damaged or missing file, with the generations that need it. A damaged
    /// data file may be deleted: the next backup of a database that still has it copies it again,
    /// for all of them.
    pub errors: Vec<(Error, Vec<u64>)>,
}

/// What [`crate::Backups::prune`] removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// Generations that went.
    pub removed: Vec<u64>,
    /// Generations that are left.
    pub kept: Vec<u64>,
    /// Files that no generation needed any more.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}
