//! The asynchronous calls against the blocking ones, and what only they promise: they do not block
//! the runtime, a stream keeps its state, a panic reaches the caller.
#![allow(clippy::unwrap_used)]

use futures_util::{StreamExt, TryStreamExt};
use perigee::env::{Env, fs::memory::SimDisk};
use perigee::{Error, ErrorKind, LockMode, Options, TxnOptions, WriteBatch};
use perigee_tokio::Db;
use std::time::Duration;

async fn open() -> Db {
    let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    Db::open("/db", options).await.unwrap()
}

fn key(i: u32) -> String {
    format!("{i:06}")
}

#[tokio::test]
async fn calls_agree_with_blocking_calls() {
    let db = open().await;
    db.put("moon", "full").await.unwrap();
    assert_eq!(db.blocking().get("moon").unwrap().unwrap(), b"full");
    assert_eq!(db.get("moon").await.unwrap().unwrap(), b"full");
    assert!(db.contains("moon").await.unwrap() && !db.contains("sun").await.unwrap());
    db.delete("moon").await.unwrap();
    assert_eq!(db.get("moon").await.unwrap(), None);

    let family = db.family_or_create("tides", Default::default()).await.unwrap();
    assert_eq!(
        db.create_family("tides", Default::default()).await.unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let mut batch = WriteBatch::new();
    batch.put(family.blocking(), "a", "1").unwrap();
    batch.put(family.blocking(), "b", "2").unwrap();
    db.write(batch).await.unwrap();
    let values = family.multi_get(["b", "c", "a"]).await.unwrap();
    let values: Vec<_> = values.into_iter().map(|v| v.unwrap().map(|v| v.to_vec())).collect();
    assert_eq!(values, [Some(b"2".to_vec()), None, Some(b"1".to_vec())]);

    db.drop_family("tides").await.unwrap();
    assert_eq!(db.family("tides").unwrap_err().kind(), ErrorKind::NotFound);
    db.close().await.unwrap();
    assert_eq!(db.get("moon").await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn streams_have_the_entries_of_the_iterators() {
    let db = open().await;
    // More than the entries of several calls, and values that end a call by their bytes.
    for i in 0..5000 {
        let value = if i % 500 == 7 { vec![b'v'; 300_000] } else { vec![b'v'; (i % 90) as usize] };
        db.blocking().put(key(i), value).unwrap();
    }
    let family = db.default_family();
    for (from, to) in [(0, 5000), (10, 11), (10, 10), (31, 64), (100, 133), (4000, 9000)] {
        let expected: Vec<_> =
            (db.blocking().range(key(from)..key(to)).unwrap()).collect::<Result<_, _>>().unwrap();
        assert_eq!(expected.len() as u32, to.min(5000) - from, "{from} to {to}");
        let range = || family.range(key(from)..key(to));
        assert!(range().try_collect::<Vec<_>>().await.unwrap() == expected, "{from} to {to}");
        let mut backwards: Vec<_> = range().rev().try_collect().await.unwrap();
        backwards.reverse();
        assert!(backwards == expected, "{from} to {to}, reversed");
    }
    assert_eq!(db.prefix("0012").count().await, 100);
    assert_eq!(db.range::<&str>(..).count().await, 5000);
}

#[tokio::test]
async fn a_stream_keeps_the_state_of_its_first_poll() {
    let db = open().await;
    for i in 0..200 {
        db.put(key(i), "old").await.unwrap();
    }
    let mut entries = db.range::<&str>(..);
    db.put(key(0), "newer").await.unwrap(); // before the first poll
    assert_eq!(entries.next().await.unwrap().unwrap().1, "newer");
    for i in 0..200 {
        db.put(key(i), "newest").await.unwrap();
    }
    let rest: Vec<_> = entries.try_collect().await.unwrap();
    assert_eq!(rest.len(), 199);
    assert!(rest.iter().all(|(_, value)| value == "old"));
}

#[tokio::test]
async fn a_stream_ends_after_an_error() {
    let db = open().await;
    for i in 0..200 {
        db.put(key(i), "value").await.unwrap();
    }
    let mut never_polled = db.range::<&str>(..);
    let mut polled = db.range::<&str>(..);
    assert!(polled.next().await.unwrap().is_ok());
    db.close().await.unwrap();
    assert_eq!(never_polled.next().await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(never_polled.next().await.is_none());
    // What was read before the close is still there; then the error follows.
    let rest: Vec<_> = polled.by_ref().collect().await;
    let failed = rest.iter().position(|entry| entry.is_err());
    assert_eq!(failed, Some(rest.len() - 1), "the last item is the only error");
    assert!(polled.next().await.is_none());
}

/// With one thread, a lock wait that blocked the runtime would keep the owner of the lock from
/// ending its transaction.
#[tokio::test(flavor = "current_thread")]
async fn a_lock_wait_does_not_block_the_runtime() {
    let db = open().await;
    let family = db.default_family();
    let options = || TxnOptions::new().pessimistic(true).lock_timeout(Duration::from_secs(600));
    let owner = db.begin(options()).await.unwrap();
    owner.put(&family, "seat", "alice").await.unwrap();
    let (began, begun) = tokio::sync::oneshot::channel();
    let waiter = tokio::spawn({
        let (db, family) = (db.clone(), family.clone());
        async move {
            let txn = db.begin(options()).await?;
            began.send(()).unwrap();
            let seat = txn.get_for_update(&family, "seat", LockMode::Exclusive).await;
            txn.rollback().await?;
            seat
        }
    });
    begun.await.unwrap();
    tokio::task::yield_now().await; // the waiter makes its call
    owner.commit().await.unwrap();
    // It gets the lock, or learns that its state is out of date.
    match waiter.await.unwrap() {
        Ok(seat) => assert_eq!(seat.unwrap(), "alice"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Conflict),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_repeat_after_conflicts() {
    let db = open().await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let family = db.default_family();
                    db.transaction(TxnOptions::new(), move |txn| {
                        let family = family.blocking();
                        let old = txn.get(family, "count")?;
                        let old = old.map_or(0, |v| u32::from_le_bytes(v.try_into().unwrap()));
                        txn.put(family, "count", (old + 1).to_le_bytes())
                    })
                    .await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(db.get("count").await.unwrap().unwrap(), 200u32.to_le_bytes());
}

#[tokio::test]
async fn transactions_see_their_own_writes_and_end() {
    let db = open().await;
    let family = db.default_family();
    db.put("a", "1").await.unwrap();
    let txn = db.begin(TxnOptions::new()).await.unwrap();
    txn.put(&family, "b", "2").await.unwrap();
    txn.delete(&family, "a").await.unwrap();
    let seen: Vec<_> = txn.range::<&str>(&family, ..).try_collect().await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].0, "b");
    assert_eq!(txn.get(&family, "a").await.unwrap(), None);
    assert_eq!(db.get("b").await.unwrap(), None);
    txn.rollback().await.unwrap();
    assert_eq!(db.get("a").await.unwrap().unwrap(), b"1");

    let txn = db.begin(TxnOptions::new()).await.unwrap();
    txn.put(&family, "b", "2").await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(db.get("b").await.unwrap().unwrap(), b"2");

    let txn = db.begin(TxnOptions::new()).await.unwrap();
    txn.put(&family, "b", "3").await.unwrap();
    drop(txn);
    assert_eq!(db.get("b").await.unwrap().unwrap(), b"2");
}

/// A future that is dropped after its first poll: the write happens or not, and the database stays
/// usable.
#[tokio::test]
async fn dropped_futures_do_no_harm() {
    let db = open().await;
    for i in 0..200 {
        let put = db.put(key(i), "value");
        tokio::select! {
            biased;
            done = put => done.unwrap(),
            () = std::future::ready(()) => {}
        }
        let mut entries = db.range::<&str>(..);
        tokio::select! {
            biased;
            entry = entries.next() => drop(entry),
            () = std::future::ready(()) => {}
        }
    }
    db.put("last", "value").await.unwrap();
    let found = db.range::<&str>(..).try_collect::<Vec<_>>().await.unwrap();
    assert!(found.iter().all(|(_, value)| value == "value"));
    assert_eq!(found.last().unwrap().0, "last");
    db.close().await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "in the call")]
async fn panics_reach_the_caller() {
    let db = open().await;
    let _ = db.run(|_| -> Result<(), Error> { panic!("in the call") }).await;
}

#[tokio::test]
#[should_panic(expected = "the direction of a stream cannot change")]
async fn the_direction_of_a_polled_stream_cannot_change() {
    let db = open().await;
    let mut entries = db.range::<&str>(..);
    assert!(entries.next().await.is_none());
    let _ = entries.rev();
}
