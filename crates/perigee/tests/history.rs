//! The numbers of commits, the feed of changes, reads at a past number, named snapshots.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::World;
use perigee::{Db, Durability, Options, TxnOptions, WriteBatch, WriteOptions};
use std::sync::Arc;

#[test]
fn a_commit_is_answered_with_its_number() {
    World::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let family = db.default_family();
        assert_eq!(db.write(WriteBatch::new()).unwrap(), 0, "nothing was written: the present");
        let mut batch = WriteBatch::new();
        batch.put(&family, "a", "1").unwrap();
        batch.put(&family, "b", "1").unwrap();
        assert_eq!(db.write(batch).unwrap(), 2);
        let txn = db.begin(TxnOptions::new()).unwrap();
        txn.put(&family, "c", "1").unwrap();
        assert_eq!((txn.commit().unwrap(), db.latest_seq()), (3, 3));
        assert_eq!(db.begin(TxnOptions::new()).unwrap().commit().unwrap(), 3);
        let threads: Vec<_> = (0..4u8)
            .map(|t| {
                let (db, family, numbers) =
                    (db.clone(), family.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
                let told = Arc::clone(&numbers);
                let body = move || {
                    for i in 0..20u8 {
                        let mut batch = WriteBatch::new();
                        batch.put(&family, [t, i], "v").unwrap();
                        batch.put(&family, [t, i, 1], "v").unwrap();
                        let how = if i % 3 == 0 { Durability::None } else { Durability::Full };
                        let seq = db.write_with(batch, WriteOptions::new().durability(how)).unwrap();
                        assert!(db.latest_seq() >= seq);
                        told.lock().unwrap().push(seq);
                    }
                };
                (env.spawn.spawn("writer", Box::new(body)).unwrap(), numbers)
            })
            .collect();
        let mut all = Vec::new();
        for (thread, numbers) in threads {
            thread.join().unwrap();
            all.extend(numbers.lock().unwrap().iter().copied());
        }
        all.sort_unstable();
        assert_eq!(all, (1..=80).map(|i| 3 + 2 * i).collect::<Vec<u64>>(), "each its own, none left out");
    });
}
