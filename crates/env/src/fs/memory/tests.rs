//! The simulated disk: what survives which crash, and what each fault does.

use super::*;
use crate::Append;
use std::collections::BTreeSet;

fn disk() -> (Arc<SimDisk>, Arc<dyn Dir>) {
    let disk = SimDisk::new(1);
    let dir = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
    (disk, dir)
}

fn put(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Arc<dyn Append> {
    let w = dir.create(name).unwrap();
    w.append(&[bytes]).unwrap();
    w
}

fn names(disk: &SimDisk) -> Vec<String> {
    disk.paths().iter().map(|p| p.to_str().unwrap().to_owned()).collect()
}

/// The disks that many power cuts leave.
fn cuts(disk: &SimDisk) -> impl Iterator<Item = Arc<SimDisk>> + '_ {
    (0..300).map(|seed| disk.crash_clone(seed, Crash::Power))
}

#[test]
fn what_was_synced_survives() {
    let (disk, dir) = disk();
    let w = put(&*dir, "f", b"synced");
    w.sync().unwrap();
    dir.sync().unwrap();
    w.append(&[&[7; 3000]]).unwrap();
    let mut seen = BTreeSet::new();
    for cut in cuts(&disk) {
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
fn a_killed_process_loses_nothing() {
    let (disk, dir) = disk();
    put(&*dir, "f", b"never synced");
    let _lock = dir.lock("LOCK").unwrap();
    let after = disk.crash_clone(9, Crash::Process);
    assert_eq!(after.read_raw("/db/f"), b"never synced");
    assert_eq!(after.boot_id(), disk.boot_id());
    let dir = after.open_dir(Path::new("/db"), OpenDir::Existing).unwrap();
    dir.lock("LOCK").unwrap();
    // The kernel still owes the disk those bytes.
    assert!(cuts(&after).any(|cut| names(&cut).is_empty()));
    assert_ne!(disk.crash_clone(9, Crash::Power).boot_id(), disk.boot_id());
}

#[test]
fn names_need_their_directory_synced() {
    let (disk, dir) = disk();
    put(&*dir, "f", b"x").sync().unwrap();
    let present: BTreeSet<bool> = cuts(&disk).map(|cut| !names(&cut).is_empty()).collect();
    assert_eq!(present.len(), 2, "a synced file in an unsynced directory may be there or not");
    dir.sync().unwrap();
    assert!(cuts(&disk).all(|cut| cut.read_raw("/db/f") == b"x"));
    dir.remove("f").unwrap();
    let present: BTreeSet<bool> = cuts(&disk).map(|cut| !names(&cut).is_empty()).collect();
    assert_eq!(present.len(), 2, "so may a removed one");
}

#[test]
fn a_rename_is_all_or_nothing() {
    let (disk, dir) = disk();
    put(&*dir, "CURRENT", b"old").sync().unwrap();
    dir.sync().unwrap();
    put(&*dir, "tmp", b"new").sync().unwrap();
    dir.rename("tmp", "CURRENT").unwrap();
    let mut seen = BTreeSet::new();
    for cut in cuts(&disk) {
        let has_tmp = names(&cut).contains(&"/db/tmp".to_owned());
        seen.insert((cut.read_raw("/db/CURRENT"), has_tmp));
    }
    let states = [(b"new".to_vec(), false), (b"old".to_vec(), false), (b"old".to_vec(), true)];
    assert_eq!(seen, BTreeSet::from(states));
    dir.sync().unwrap();
    assert!(cuts(&disk).all(|cut| names(&cut) == ["/db/CURRENT"] && cut.read_raw("/db/CURRENT") == b"new"));
}

#[test]
fn chains_of_renames_and_moves_never_double_or_lose_a_file() {
    let (disk, dir) = disk();
    put(&*dir, "a", b"1").sync().unwrap();
    dir.sync().unwrap();
    dir.rename("a", "b").unwrap();
    dir.rename("b", "c").unwrap();
    dir.move_into("c", "lost").unwrap();
    let lost = dir.subdir("lost").unwrap();
    lost.rename("c", "d").unwrap();
    let mut seen = BTreeSet::new();
    for cut in cuts(&disk) {
        assert_eq!(names(&cut).len(), 1, "{:?}", names(&cut));
        seen.extend(names(&cut));
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    lost.sync().unwrap();
    assert!(
        cuts(&disk).all(|cut| names(&cut) == ["/db/lost/d"]),
        "a move into a synced directory is durable"
    );
}

#[test]
fn removing_the_new_file_never_takes_the_one_it_replaced() {
    let (disk, dir) = disk();
    put(&*dir, "a", b"1");
    put(&*dir, "b", b"2");
    dir.sync().unwrap();
    dir.rename("a", "b").unwrap();
    dir.remove("b").unwrap();
    let seen: BTreeSet<Vec<String>> = cuts(&disk).map(|cut| names(&cut)).collect();
    let state = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(seen, BTreeSet::from([state(&["/db/a", "/db/b"]), state(&["/db/b"]), state(&[])]));
}

#[test]
fn the_same_seed_leaves_the_same_disk() {
    let (disk, dir) = disk();
    for i in 0..20 {
        put(&*dir, &format!("f{i}"), &vec![i; 5000]);
    }
    let image = |seed| {
        let cut = disk.crash_clone(seed, Crash::Power);
        cut.paths().into_iter().map(|p| (cut.read_raw(&p), p)).collect::<Vec<_>>()
    };
    assert_eq!(image(3), image(3));
    assert!((0..20).any(|seed| image(seed) != image(3)));
}

#[test]
fn a_simulated_crash_stops_everything() {
    let mut lens = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let w = put(&*dir, "f", b"x");
        assert_eq!(disk.io_count(), 3);
        disk.crash_at(2);
        w.append(&[b"y"]).unwrap();
        assert!(!disk.crashed());
        let e = w.append(&[&[1; 100]]).unwrap_err();
        assert_eq!((e.kind(), e.message()), (ErrorKind::Io, "simulated crash"));
        assert!(disk.crashed());
        assert!(
            w.sync().is_err() && dir.list().is_err() && dir.create("g").is_err() && dir.open("f").is_err()
        );
        assert_eq!(w.len(), 2);
        lens.insert(disk.crash_clone(0, Crash::Process).read_raw("/db/f").len());
    }
    assert!(lens.len() > 10 && lens.iter().all(|l| (2..=102).contains(l)), "any prefix: {lens:?}");
}

#[test]
fn planned_faults() {
    let (disk, dir) = disk();
    let w = put(&*dir, "f", b"good");
    disk.fail_at(1, Fault::Enospc, true);
    w.sync().unwrap();
    for _ in 0..3 {
        assert_eq!(w.append(&[b"more"]).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(dir.create("g").unwrap_err().kind(), ErrorKind::NoSpace);
    }
    disk.heal();
    w.append(&[b"!"]).unwrap();
    assert!(disk.read_raw("/db/f").starts_with(b"good!"));
    disk.fail_at(1, Fault::Eio, false);
    assert_eq!(dir.rename("f", "g").unwrap_err().kind(), ErrorKind::Io);
    dir.rename("f", "g").unwrap();

    disk.fail_reads(".sst", 2);
    put(&*dir, "1.sst", b"abc");
    let (sst, other) = (dir.open("1.sst").unwrap(), dir.open("g").unwrap());
    let mut buf = [0; 1];
    assert_eq!(sst.read_exact_at(&mut buf, 0).unwrap_err().kind(), ErrorKind::Io);
    other.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(sst.read_exact_at(&mut buf, 0).unwrap_err().kind(), ErrorKind::Io);
    sst.read_exact_at(&mut buf, 0).unwrap();
}

#[test]
fn a_failed_sync_loses_data_for_good() {
    let mut readable = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let w = put(&*dir, "f", b"safe");
        w.sync().unwrap();
        dir.sync().unwrap();
        w.append(&[b"lost"]).unwrap();
        disk.fail_at(1, Fault::SyncFails, false);
        assert_eq!(w.sync().unwrap_err().kind(), ErrorKind::Io);
        w.sync().unwrap();
        readable.insert(disk.read_raw("/db/f"));
        assert!(cuts(&disk).take(20).all(|cut| cut.read_raw("/db/f") == b"safe"));
    }
    assert_eq!(readable, BTreeSet::from([b"safe".to_vec(), b"safelost".to_vec()]), "ext4 and btrfs");
}

#[test]
fn a_full_disk() {
    let (disk, dir) = disk();
    let w = put(&*dir, "f", &[1; 60]);
    disk.set_capacity(100);
    assert_eq!(w.append(&[&[2; 41]]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(disk.total_bytes() <= 100);
    w.append(&[&[2; 40]]).unwrap();
    assert_eq!(disk.total_bytes(), 100);
    disk.set_capacity(u64::MAX);
    w.append(&[&[3; 41]]).unwrap();
}

#[test]
fn raw_access() {
    let (disk, dir) = disk();
    put(&*dir, "f", b"abc");
    let copy = disk.deep_clone();
    disk.write_raw("/db/f", b"xyz".to_vec());
    disk.write_raw("db/new", b"n".to_vec());
    assert_eq!((disk.read_raw("/db/f"), copy.read_raw("/db/f")), (b"xyz".to_vec(), b"abc".to_vec()));
    assert_eq!(disk.crash_clone(1, Crash::Power).read_raw("/db/new"), b"n");
    assert_eq!(disk.total_bytes(), 4);

    let target = std::env::temp_dir().join(format!("perigee-env-image-{}", std::process::id()));
    disk.to_real_dir(&target).unwrap();
    let back = SimDisk::from_real_dir(&target).unwrap();
    std::fs::remove_dir_all(&target).unwrap();
    assert_eq!(back.paths(), disk.paths());
    assert!(cuts(&back).take(20).all(|cut| cut.read_raw("/db/f") == b"xyz"), "what was loaded is durable");
}

#[test]
fn many_threads_of_the_operating_system() {
    let (disk, dir) = disk();
    std::thread::scope(|s| {
        for t in 0..4 {
            let dir = &dir;
            s.spawn(move || {
                for i in 0..100 {
                    put(&**dir, &format!("{t}-{i}"), b"x").sync().unwrap();
                    dir.sync().unwrap();
                }
            });
        }
    });
    assert_eq!(disk.paths().len(), 400);
}
