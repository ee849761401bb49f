//! Opens of directories that belong to another program, a part of `perigee-sim safety`. Each is
//! refused in every open mode, and nothing in it changes. Files that an interrupted first open
//! leaves, or that a file system creates, are accepted.

use crate::engine_target::PATH;
use crate::rng::{Rng, mix};
use crate::runner::Case;
use perigee::env::{DirOpenMode, Env};
use perigee::{Db, ErrorKind, Options, repair_in};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of other programs, and a text that the refusal must contain.
const FOREIGN_FILES: [(&[&str], &str); 8] = [
    (&["LOCK", "LOG", "users/config.ini", "users/MANIFEST", "users/L1_0.klog"], "--from-tidesdb"),
    (&["LOCK", "uwal_0.log"], "--from-tidesdb"),
    (&["000010.log", "CURRENT", "IDENTITY", "LOCK", "LOG", "MANIFEST-000005"], "--from-rocksdb"),
    (&["000003.log", "CURRENT", "LOCK", "MANIFEST-000002"], "no importer"),
    (&["data.mdb", "lock.mdb"], "--from-lmdb"),
    (&["000001.generation", "LOCK"], "perigee restore"),
    (&["letter.txt"], "letter.txt"),
    (&["mysql/user.frm"], "mysql"),
];
/// Files that may be present where a database is created.
const ACCEPTED_FILES: [&str; 8] = [
    "LOCK",
    "LOG",
    "LOG.1",
    "BALLAST",
    "perigee.toml",
    ".gitkeep",
    "lost+found/#12",
    "trash/000009.klog",
];

type FileContents = Vec<(PathBuf, Vec<u8>)>;

fn read_files(disk: &SimDisk) -> FileContents {
    disk.paths().into_iter().map(|p| (p.clone(), disk.read_raw(&p))).collect()
}

/// Creates the files, with random contents.
fn create_files(
    disk: &Arc<SimDisk>,
    env: &Env,
    names: &[&str],
    rng: &mut Rng,
) -> Result<(), String> {
    let dir = |path: PathBuf| {
        env.fs.open_dir(&path, DirOpenMode::CreateIfMissing).map_err(|e| e.to_string())
    };
    dir(PATH.into())?;
    for name in names {
        let path = Path::new(PATH).join(name);
        if let Some(above) = path.parent() {
            dir(above.to_owned())?;
        }
        let bytes = (0..rng.between(0, 40)).map(|_| rng.next() as u8).collect();
        disk.write_raw(&path, bytes);
    }
    Ok(())
}

/// Checks one foreign directory and one that must be accepted.
pub fn foreign_directory_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(mix(case.case_seed(), 350));
    let (names, says) = FOREIGN_FILES[rng.index(FOREIGN_FILES.len())];
    let disk = SimDisk::new(rng.next());
    case.keep_disk("foreign", &disk);
    SimWorld::new(rng.next()).run(disk.clone(), |env| {
        let mut all = names.to_vec();
        // Files of an earlier, interrupted open beside them.
        all.extend(ACCEPTED_FILES.iter().filter(|a| rng.below(8) == 0 && !names.contains(a)));
        create_files(&disk, &env, &all, &mut rng)?;
        let before = read_files(&disk);
        let options = || Options::in_env(env.clone());
        let attempts = [
            ("open", Db::open(PATH, options()).map(drop), ErrorKind::InvalidArgument),
            ("open of what must exist", open_existing(&env), ErrorKind::NotFound),
            (
                "read-only open",
                Db::open(PATH, options().read_only(true)).map(drop),
                ErrorKind::NotFound,
            ),
            (
                "salvage",
                Db::open(PATH, options().salvage_readonly(true)).map(drop),
                ErrorKind::NotFound,
            ),
            (
                "repair",
                repair_in(&env, PATH, "/repaired", |_, _| {}).map(drop),
                ErrorKind::NotFound,
            ),
        ];
        for (what, answer, kind) in attempts {
            match answer {
                Ok(()) => {
                    return Err(format!("{what} of a directory that holds {all:?} succeeded"));
                }
                Err(e) if e.kind() != kind || !e.to_string().contains(says) => {
                    return Err(format!("{what} of a directory that holds {all:?}: {e}"));
                }
                Err(_) => case.count("foreign directories", 1),
            }
        }
        if read_files(&disk) != before {
            return Err(format!("a refused open changed a directory that holds {all:?}"));
        }
        Ok(())
    })?;
    accepted_directory_case(&mut rng)
}

fn open_existing(env: &Env) -> perigee::Result<()> {
    Db::open(PATH, Options::in_env(env.clone()).create_if_missing(false)).map(drop)
}

fn accepted_directory_case(rng: &mut Rng) -> Result<(), String> {
    let disk = SimDisk::new(rng.next());
    SimWorld::new(rng.next()).run(disk.clone(), |env| {
        let names: Vec<&str> =
            ACCEPTED_FILES.iter().copied().filter(|_| rng.below(2) == 0).collect();
        create_files(&disk, &env, &names, rng)?;
        let db = Db::open(PATH, Options::in_env(env.clone()));
        let db = db.map_err(|e| format!("a directory that holds {names:?} was refused: {e}"))?;
        db.put("k", "v").and_then(|()| db.close()).map_err(|e| e.to_string())
    })
}
