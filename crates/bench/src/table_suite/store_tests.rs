//! Tests that all databases of the suite behave alike.

use super::ENGINES;
use super::dataset::{Dataset, RowKey};
use super::run::find_open;
use super::store::{RowSession, RowStore};
use crate::engine::Result;
use crate::settings::tests::parse_settings;
use crate::settings::{RowDurability, RowKeys, Settings};
use perigee_tables::Uuid;
use std::path::PathBuf;

/// A directory that is removed at the end of the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(row_keys: RowKeys, durability: RowDurability) -> Settings {
    let mut settings = parse_settings(&[]);
    settings.rows.row_keys = row_keys;
    settings.rows.durability = durability;
    settings
}

fn get<K: RowKey>(session: &mut dyn RowSession<K>, key: K) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    session.get(key, &mut |value| found = value.map(<[u8]>::to_vec))?;
    Ok(found)
}

/// Returns the row numbers from row `from` on, up to `limit`.
fn range<K: RowKey>(
    session: &mut dyn RowSession<K>,
    data: &Dataset<K>,
    from: u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let mut rows = Vec::new();
    session.range(data.key(from), limit, &mut |key, value| {
        rows.extend((0..data.n).filter(|i| data.key(*i) == key && data.matches(value, *i, 1)));
    })?;
    Ok(rows)
}

/// Fills the table, checks reads and rejected inserts, and reopens it.
fn check_store<K: RowKey>(
    engine: &str,
    row_keys: RowKeys,
    durability: RowDurability,
) -> Result<()> {
    let settings = settings(row_keys, durability);
    let data = Dataset::<K>::new(&settings.rows, 100, 16, 1);
    let name = format!("store-{engine}-{row_keys:?}-{durability:?}-{}", std::process::id());
    let dir = Directory(std::env::temp_dir().join(name));
    let open = find_open::<K>(engine).ok_or("no such engine")?;
    let store: Box<dyn RowStore<K>> = open(&dir.0, &settings)?;
    store.load(&data, row_keys == RowKeys::Uuid7)?;
    assert!(store.load(&data, true).is_err(), "{engine}: a load of existing keys");
    let value = data.value(100, 1);
    store.with_session(&mut |session| {
        for i in [0, 99] {
            assert_eq!(get(session, data.key(i))?, Some(data.value(i, 1)), "{engine}");
        }
        assert_eq!(get(session, data.missing_key(7))?, None, "{engine}");
        // A rejected transaction leaves none of its rows.
        let rows = [(data.key(100), value.clone()), (data.key(5), value.clone())];
        assert!(session.insert_rows(&rows).is_err(), "{engine}");
        assert!(session.insert(data.key(5), &value).is_err(), "{engine}");
        assert_eq!(get(session, data.key(100))?, None, "{engine}");
        assert_eq!(get(session, data.key(5))?, Some(data.value(5, 1)), "{engine}");
        let first = data.row_at(90);
        let expected: Vec<u64> = (90..100).map(|position| data.row_at(position)).collect();
        assert_eq!(range(session, &data, first, 50)?, expected, "{engine}");
        assert_eq!(range(session, &data, first, 4)?, expected[..4], "{engine}");
        session.insert(data.key(100), &value)?;
        session.put(data.key(5), &value)?;
        let mut keys = [data.key(5), data.missing_key(5), data.key(100)].into_iter();
        let mut seen = Vec::new();
        session.get_in_txn(&mut keys, &mut |at, got| seen.push((at, got.map(<[u8]>::to_vec))))?;
        assert_eq!(seen, [(0, Some(value.clone())), (1, None), (2, Some(value.clone()))]);
        Ok(())
    })?;
    store.wait_idle()?;
    store.close()?;
    let store = open(&dir.0, &settings)?;
    store.with_session(&mut |session| {
        assert_eq!(get(session, data.key(5))?, Some(value.clone()), "{engine}");
        assert_eq!(get(session, data.key(99))?, Some(data.value(99, 1)), "{engine}");
        Ok(())
    })?;
    store.close()
}

#[test]
fn engines_agree_on_reads_and_rejected_inserts() -> Result<()> {
    for engine in ENGINES {
        check_store::<u64>(engine, RowKeys::Random, RowDurability::Power)?;
        check_store::<u64>(engine, RowKeys::Ascending, RowDurability::Close)?;
        check_store::<Uuid>(engine, RowKeys::Uuid4, RowDurability::Crash)?;
        check_store::<Uuid>(engine, RowKeys::Uuid7, RowDurability::Power)?;
    }
    Ok(())
}
