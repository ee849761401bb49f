//! [`TargetFile`]: the file that an export writes. It has a temporary name beside the target until
//! it is complete, so that a failed export leaves no incomplete file under the name of the target.

use crate::failure::{Failure, Result, show_path};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::path::{Path, PathBuf};

/// See the module. Removes the temporary file when it is dropped before [`TargetFile::finish`].
pub struct TargetFile {
    target: PathBuf,
    /// `None`: the target is a pipe or a device, which is written as it is, or the file is complete.
    temporary: Option<PathBuf>,
    file: File,
}

fn exists(target: &Path) -> Failure {
    Failure::usage(format!("{} already exists", show_path(target))).hint("specify a new file")
}

#[cfg(unix)]
fn is_pipe_or_device(meta: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    meta.file_type().is_fifo() || meta.file_type().is_char_device()
}

#[cfg(not(unix))]
fn is_pipe_or_device(meta: &Metadata) -> bool {
    !meta.is_file() && !meta.is_dir()
}

impl TargetFile {
    /// Creates the temporary file; opens a target that is a pipe or a character device.
    pub fn create(target: &Path) -> Result<TargetFile> {
        if let Ok(meta) = target.metadata()
            && is_pipe_or_device(&meta)
        {
            let file = OpenOptions::new().write(true).open(target);
            let file = file.map_err(|e| Failure::file("open", target, &e))?;
            return Ok(TargetFile { target: target.to_owned(), temporary: None, file });
        }
        // Also true for a link without a file.
        if target.symlink_metadata().is_ok() {
            return Err(exists(target));
        }
        let Some(name) = target.file_name() else {
            return Err(Failure::usage(format!("{} is no file name", show_path(target)))
                .hint("specify a new file"));
        };
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.partial", std::process::id()));
        let temporary = target.with_file_name(partial);
        let file = File::create(&temporary).map_err(|e| Failure::file("create", target, &e))?;
        Ok(TargetFile { target: target.to_owned(), temporary: Some(temporary), file })
    }
    /// Returns the file.
    pub fn writer(&self) -> &File {
        &self.file
    }
    /// Gives the complete file the name of the target.
    pub fn finish(mut self) -> Result<()> {
        let target = &self.target;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file.sync_all().map_err(|e| Failure::file("write", target, &e))?;
        // Another program may have created it in the meantime.
        if target.symlink_metadata().is_ok() {
            return Err(exists(target));
        }
        std::fs::rename(temporary, target).map_err(|e| Failure::file("create", target, &e))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for TargetFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns a new directory.
    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("perigee-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn file_has_its_name_once_it_is_complete() {
        let dir = directory("target-complete");
        let target = dir.join("a.csv");
        let names = || std::fs::read_dir(&dir).unwrap().count();

        let failed = TargetFile::create(&target).unwrap();
        failed.writer().write_all(b"half").unwrap();
        assert!(!target.exists());
        assert_eq!(names(), 1);
        drop(failed);
        assert_eq!(names(), 0);

        let complete = TargetFile::create(&target).unwrap();
        complete.writer().write_all(b"whole").unwrap();
        complete.finish().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");
        assert_eq!(names(), 1);
        assert!(TargetFile::create(&target).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn file_that_was_created_in_the_meantime_is_kept() {
        let dir = directory("target-race");
        let target = dir.join("a.csv");
        let file = TargetFile::create(&target).unwrap();
        std::fs::write(&target, b"other").unwrap();
        assert!(file.finish().is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"other");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn devices_are_written_as_they_are() {
        let file = TargetFile::create(Path::new("/dev/null")).unwrap();
        file.writer().write_all(b"x").unwrap();
        file.finish().unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }
}
