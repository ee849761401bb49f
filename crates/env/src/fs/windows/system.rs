//! Calls of Windows that the standard library does not have. All unsafe code for Windows is here.

#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ID_INFO, FILE_NAME_NORMALIZED, FILE_NAME_OPENED, FileIdInfo,
    GetDiskFreeSpaceExW, GetFileInformationByHandle, GetFileInformationByHandleEx,
    GetFinalPathNameByHandleW,
};
use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation,
    QueryInformationJobObject,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Identifies an open file or directory, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    volume: u64,
    file: [u8; 16],
}

/// Returns the identity of an open file or directory.
pub(super) fn identity(file: &File) -> io::Result<FileIdentity> {
    let mut id = FILE_ID_INFO::default();
    // SAFETY: the handle is open, because `file` is borrowed; the call writes a structure of the
    // size that is passed, which `id` has.
    let done = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileIdInfo,
            (&raw mut id).cast(),
            size_of_value(&id),
        )
    };
    if done != 0 {
        return Ok(FileIdentity { volume: id.VolumeSerialNumber, file: id.FileId.Identifier });
    }
    // File systems with numbers of 64 bits do not all support the call above.
    let mut info = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open; the call writes the structure that `info` is.
    check_done(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut info) })?;
    let number = u128::from(info.nFileIndexHigh) << 32 | u128::from(info.nFileIndexLow);
    let volume = u64::from(info.dwVolumeSerialNumber);
    Ok(FileIdentity { volume, file: number.to_le_bytes() })
}

/// Returns the current path of an open file or directory, in the form that has no limit of length
/// (`\\?\C:\...`).
pub(super) fn current_path(file: &File) -> io::Result<PathBuf> {
    // Some network file systems know only the name under which the file was opened.
    final_path(file, FILE_NAME_NORMALIZED).or_else(|_| final_path(file, FILE_NAME_OPENED))
}

fn final_path(file: &File, form: u32) -> io::Result<PathBuf> {
    let mut buf = vec![0u16; 260];
    loop {
        // SAFETY: the handle is open; the call writes at most the number of characters that is
        // passed, the length of `buf`.
        let len = unsafe {
            GetFinalPathNameByHandleW(
                file.as_raw_handle(),
                buf.as_mut_ptr(),
                buf.len() as u32,
                form,
            )
        } as usize;
        match len {
            0 => return Err(io::Error::last_os_error()),
            len if len < buf.len() => return Ok(OsString::from_wide(&buf[..len]).into()),
            // Too short: then `len` is the size needed.
            len => buf.resize(len + 1, 0),
        }
        check!(buf.len() <= 1 << 16, "a path has at most 32,767 characters", buf.len());
    }
}

/// Returns the space that this user may still use in the file system of a directory, in bytes.
pub(super) fn free_space(dir: &Path) -> io::Result<u64> {
    // The call requires a separator at the end of a network path.
    let path: Vec<u16> = dir.join("").as_os_str().encode_wide().chain([0]).collect();
    let mut bytes = 0;
    // SAFETY: the path ends in a NUL character; the call writes one number of 64 bits to `bytes`,
    // and nothing to the null pointers.
    check_done(unsafe {
        GetDiskFreeSpaceExW(path.as_ptr(), &raw mut bytes, null_mut(), null_mut())
    })?;
    Ok(bytes)
}

/// Returns the memory that the process may use, in bytes: the minimum of the physical memory and
/// the limits of its job object (what containers use).
pub(in crate::fs) fn memory_limit_bytes() -> Option<u64> {
    let mut memory = MEMORYSTATUSEX::default();
    memory.dwLength = size_of_value(&memory);
    // SAFETY: the call writes a structure of the size in its field `dwLength`.
    let known = unsafe { GlobalMemoryStatusEx(&raw mut memory) } != 0;
    let physical = known.then_some(memory.ullTotalPhys).filter(|n| *n > 0);
    physical.into_iter().chain(job_limit_bytes()).min()
}

/// Returns the limit of the job object of the process, if it belongs to one with a limit.
fn job_limit_bytes() -> Option<u64> {
    let mut job = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    // SAFETY: a null handle stands for the job of this process; the call writes a structure of the
    // size that is passed, which `job` has.
    let known = unsafe {
        QueryInformationJobObject(
            null_mut(),
            JobObjectExtendedLimitInformation,
            (&raw mut job).cast(),
            size_of_value(&job),
            null_mut(),
        )
    };
    let flags = if known != 0 { job.BasicLimitInformation.LimitFlags } else { 0 };
    let limits = [
        (JOB_OBJECT_LIMIT_PROCESS_MEMORY, job.ProcessMemoryLimit),
        (JOB_OBJECT_LIMIT_JOB_MEMORY, job.JobMemoryLimit),
    ];
    limits.into_iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bytes)| bytes as u64).min()
}

/// Returns the working set of the process, in bytes.
pub(in crate::fs) fn resident_bytes() -> Option<u64> {
    let mut memory = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of_value(&memory);
    // SAFETY: the handle of this process needs no closing; the call writes a structure of the size
    // that is passed, which `memory` has.
    let done = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut memory, size) };
    (done != 0).then_some(memory.WorkingSetSize as u64)
}

fn size_of_value<T>(value: &T) -> u32 {
    size_of_val(value) as u32
}

fn check_done(done: i32) -> io::Result<()> {
    if done != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
