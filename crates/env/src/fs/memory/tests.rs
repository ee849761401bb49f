//! Tests of the simulated disk: what survives which crash, and what each fault does.

use super::*;
use crate::WritableFile;
use std::collections::BTreeSet;

fn new_disk() -> (Arc<SimDisk>, Arc<dyn Dir>) {
    let disk = SimDisk::new(1);
    let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
    (disk, dir)
}

fn write_file(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Arc<dyn WritableFile> {
    let w = dir.create(name).unwrap();
    w.append(&[bytes]).unwrap();
    w
}

fn file_names(disk: &SimDisk) -> Vec<String> {
    disk.paths().iter().map(|p| p.to_str().unwrap().to_owned()).collect()
}

/// Returns disks as left by power failures with many seeds.
fn power_cuts(disk: &SimDisk) -> impl Iterator<Item = Arc<SimDisk>> + '_ {
    (0..300).map(|seed| disk.crash_clone(seed, Crash::Power))
}

#[test]
fn synced_data_survives_power_cut() {
    let (disk, dir) = new_disk();
    let w = write_file(&*dir, "f", b"synced");
    w.sync().unwrap();
    dir.sync().unwrap();
    w.append(&[&[7; 3000]]).unwrap();
    let mut seen = BTreeSet::new();
    for cut in power_cuts(&disk) {
        let left = cut.read_raw("/db/f");
        assert!(left.starts_with(b"synced") && left.len() <= 3006);
        assert!(left[6..].iter().all(|&b| b == 7 || b == 0));
        seen.insert(match &left[6..] {
            [] => "nothing",
            tail if tail.len() == 3000 && tail.iter().all(|&b| b == 7) => "all",
            tail if tail.len() == 3000 && tail.iter().all(|&b| b == 0) => "length without data",
            tail if tail.len() == 3000 => "holes",
            tail if tail.iter().all(|&b| b == 7) => "prefix",
            _ => "prefix with holes",
        });
    }
    let all = ["nothing", "all", "length without data", "holes", "prefix", "prefix with holes"];
    assert_eq!(seen, BTreeSet::from(all));
}

#[test]
fn process_crash_loses_nothing() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "f", b"never synced");
    let _lock = dir.lock("LOCK").unwrap();
    let after = disk.crash_clone(9, Crash::Process);
    assert_eq!(after.read_raw("/db/f"), b"never synced");
    assert_eq!(after.boot_id(), disk.boot_id());
    let dir = after.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap();
    dir.lock("LOCK").unwrap();
    // The kernel has not written these bytes to the disk yet.
    assert!(power_cuts(&after).any(|cut| file_names(&cut).is_empty()));
    assert_ne!(disk.crash_clone(9, Crash::Power).boot_id(), disk.boot_id());
}

#[test]
fn names_are_durable_only_after_directory_sync() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "f", b"x").sync().unwrap();
    let present: BTreeSet<bool> =
        power_cuts(&disk).map(|cut| !file_names(&cut).is_empty()).collect();
    assert_eq!(present.len(), 2, "a synced file in an unsynced directory may exist or not");
    dir.sync().unwrap();
    assert!(power_cuts(&disk).all(|cut| cut.read_raw("/db/f") == b"x"));
    dir.remove("f").unwrap();
    let present: BTreeSet<bool> =
        power_cuts(&disk).map(|cut| !file_names(&cut).is_empty()).collect();
    assert_eq!(present.len(), 2, "a removed file may exist or not");
}

#[test]
fn rename_is_atomic() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "CURRENT", b"old").sync().unwrap();
    dir.sync().unwrap();
    write_file(&*dir, "tmp", b"new").sync().unwrap();
    dir.rename("tmp", "CURRENT").unwrap();
    let mut seen = BTreeSet::new();
    for cut in power_cuts(&disk) {
        let has_tmp = file_names(&cut).contains(&"/db/tmp".to_owned());
        seen.insert((cut.read_raw("/db/CURRENT"), has_tmp));
    }
    let states = [(b"new".to_vec(), false), (b"old".to_vec(), false), (b"old".to_vec(), true)];
    assert_eq!(seen, BTreeSet::from(states));
    dir.sync().unwrap();
    assert!(power_cuts(&disk).all(|cut| {
        file_names(&cut) == ["/db/CURRENT"] && cut.read_raw("/db/CURRENT") == b"new"
    }));
}

#[test]
fn rename_and_move_chains_keep_each_file_exactly_once() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "a", b"1").sync().unwrap();
    dir.sync().unwrap();
    dir.rename("a", "b").unwrap();
    dir.rename("b", "c").unwrap();
    dir.move_into("c", "lost").unwrap();
    let lost = dir.subdir("lost").unwrap();
    lost.rename("c", "d").unwrap();
    let mut seen = BTreeSet::new();
    for cut in power_cuts(&disk) {
        assert_eq!(file_names(&cut).len(), 1, "{:?}", file_names(&cut));
        seen.extend(file_names(&cut));
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    lost.sync().unwrap();
    assert!(
        power_cuts(&disk).all(|cut| file_names(&cut) == ["/db/lost/d"]),
        "a move into a synced directory is durable"
    );
}

#[test]
fn unsynced_remove_after_rename_keeps_replaced_file() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "a", b"1");
    write_file(&*dir, "b", b"2");
    dir.sync().unwrap();
    dir.rename("a", "b").unwrap();
    dir.remove("b").unwrap();
    let seen: BTreeSet<Vec<String>> = power_cuts(&disk).map(|cut| file_names(&cut)).collect();
    let state = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(seen, BTreeSet::from([state(&["/db/a", "/db/b"]), state(&["/db/b"]), state(&[])]));
}

#[test]
fn same_seed_gives_same_crash_image() {
    let (disk, dir) = new_disk();
    for i in 0..20 {
        write_file(&*dir, &format!("f{i}"), &vec![i; 5000]);
    }
    let image = |seed| {
        let cut = disk.crash_clone(seed, Crash::Power);
        cut.paths().into_iter().map(|p| (cut.read_raw(&p), p)).collect::<Vec<_>>()
    };
    assert_eq!(image(3), image(3));
    assert!((0..20).any(|seed| image(seed) != image(3)));
}

#[test]
fn crash_at_fails_every_later_call() {
    let mut lens = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let w = write_file(&*dir, "f", b"x");
        assert_eq!(disk.mutating_calls(), 3);
        disk.crash_at(2);
        w.append(&[b"y"]).unwrap();
        assert!(!disk.crashed());
        let e = w.append(&[&[1; 100]]).unwrap_err();
        assert_eq!((e.kind(), e.message()), (ErrorKind::Io, "simulated crash"));
        assert!(disk.crashed());
        assert!(
            w.sync().is_err()
                && dir.list().is_err()
                && dir.create("g").is_err()
                && dir.open("f").is_err()
        );
        assert_eq!(w.len(), 2);
        lens.insert(disk.crash_clone(0, Crash::Process).read_raw("/db/f").len());
    }
    assert!(lens.len() > 10 && lens.iter().all(|l| (2..=102).contains(l)), "any prefix: {lens:?}");
}

#[test]
fn planned_faults_hit_the_chosen_call() {
    let (disk, dir) = new_disk();
    let w = write_file(&*dir, "f", b"good");
    disk.fail_at(1, Fault::Enospc, true);
    w.sync().unwrap();
    for _ in 0..3 {
        assert_eq!(w.append(&[b"more"]).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(dir.create("g").unwrap_err().kind(), ErrorKind::NoSpace);
    }
    disk.clear_faults();
    w.append(&[b"!"]).unwrap();
    assert!(disk.read_raw("/db/f").starts_with(b"good!"));
    disk.fail_at(1, Fault::Eio, false);
    assert_eq!(dir.rename("f", "g").unwrap_err().kind(), ErrorKind::Io);
    dir.rename("f", "g").unwrap();

    disk.fail_reads(".sst", 2);
    write_file(&*dir, "1.sst", b"abc");
    let (sst, other) = (dir.open("1.sst").unwrap(), dir.open("g").unwrap());
    let mut buf = [0; 1];
    assert_eq!(sst.read_exact_at(&mut buf, 0).unwrap_err().kind(), ErrorKind::Io);
    other.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(sst.read_exact_at(&mut buf, 0).unwrap_err().kind(), ErrorKind::Io);
    sst.read_exact_at(&mut buf, 0).unwrap();
}

#[test]
fn failed_sync_loses_data_permanently() {
    let mut readable = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let w = write_file(&*dir, "f", b"safe");
        w.sync().unwrap();
        dir.sync().unwrap();
        w.append(&[b"lost"]).unwrap();
        disk.fail_at(1, Fault::SyncFails, false);
        assert_eq!(w.sync().unwrap_err().kind(), ErrorKind::Io);
        w.sync().unwrap();
        readable.insert(disk.read_raw("/db/f"));
        assert!(power_cuts(&disk).take(20).all(|cut| cut.read_raw("/db/f") == b"safe"));
    }
    assert_eq!(
        readable,
        BTreeSet::from([b"safe".to_vec(), b"safelost".to_vec()]),
        "ext4 and btrfs"
    );
}

#[test]
fn full_disk_is_no_space() {
    let (disk, dir) = new_disk();
    let w = write_file(&*dir, "f", &[1; 60]);
    disk.set_capacity(100);
    assert_eq!(w.append(&[&[2; 41]]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(disk.total_bytes() <= 100);
    w.append(&[&[2; 40]]).unwrap();
    assert_eq!(disk.total_bytes(), 100);
    disk.set_capacity(u64::MAX);
    w.append(&[&[3; 41]]).unwrap();
}

#[test]
fn raw_read_and_write_reach_open_handles() {
    let (disk, dir) = new_disk();
    write_file(&*dir, "f", b"abc");
    let copy = disk.deep_clone();
    disk.write_raw("/db/f", b"xyz".to_vec());
    disk.write_raw("db/new", b"n".to_vec());
    assert_eq!(
        (disk.read_raw("/db/f"), copy.read_raw("/db/f")),
        (b"xyz".to_vec(), b"abc".to_vec())
    );
    assert_eq!(disk.crash_clone(1, Crash::Power).read_raw("/db/new"), b"n");
    assert_eq!(disk.total_bytes(), 4);

    let target = std::env::temp_dir().join(format!("perigee-env-image-{}", std::process::id()));
    disk.to_real_dir(&target).unwrap();
    let back = SimDisk::from_real_dir(&target).unwrap();
    std::fs::remove_dir_all(&target).unwrap();
    assert_eq!(back.paths(), disk.paths());
    assert!(
        power_cuts(&back).take(20).all(|cut| cut.read_raw("/db/f") == b"xyz"),
        "loaded files are durable"
    );
}

#[test]
fn disk_works_with_many_os_threads() {
    let (disk, dir) = new_disk();
    std::thread::scope(|s| {
        for t in 0..4 {
            let dir = &dir;
            s.spawn(move || {
                for i in 0..100 {
                    write_file(&**dir, &format!("{t}-{i}"), b"x").sync().unwrap();
                    dir.sync().unwrap();
                }
            });
        }
    });
    assert_eq!(disk.paths().len(), 400);
}

#[test]
fn assertions_detect_violations() {
    let disk = SimDisk::new(1);
    let cases: [(&str, &dyn Fn()); 2] = [
        ("a handle that is closed was open", &|| disk.core.state().close_handle()),
        ("a call without an effect fails", &|| {
            let _ = CallOutcome { applies: false, error: None }.apply_with(|| ());
        }),
    ];
    for (invariant, work) in cases {
        let message = perigee_base::violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}
