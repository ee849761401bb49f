//! The change feed of a table.
#![allow(clippy::unwrap_used)]

use perigee_tables::{
    Column, ColumnType, ErrorKind, IndexDef, Row, RowEvent, RowFeed, SchemaChange, TableDb, Value,
};

#[derive(Row, Clone, Debug, PartialEq)]
struct Item {
    #[key(desc)]
    id: u32,
    name: String,
}

fn item(id: u32, name: &str) -> Item {
    Item { id, name: name.into() }
}

fn events(feed: &mut RowFeed<Item>) -> Vec<RowEvent<Item, (u32,)>> {
    std::iter::from_fn(|| feed.next_change().unwrap()).map(|change| change.event).collect()
}

#[test]
fn changes_are_reported_in_commit_order() {
    let db = perigee::example_db().unwrap();
    let items = db.table::<Item>("items").unwrap();
    let other = db.table::<Item>("other").unwrap();
    let mut feed = items.changes(db.history().latest_seq()).unwrap();
    items.insert(&item(1, "a")).unwrap();
    items.put(&item(2, "b")).unwrap();
    other.put(&item(9, "z")).unwrap();
    items.update(1, |i| i.name = "aa".into()).unwrap();
    items.delete(2).unwrap();
    items.delete(3).unwrap();
    use RowEvent::{Delete, Insert, Put, Update};
    let expected = [Insert(item(1, "a")), Put(item(2, "b")), Update(item(1, "aa")), Delete((2,))];
    assert_eq!(events(&mut feed), expected);
    assert_eq!(feed.position(), db.history().latest_seq());
    // With an index, a put knows whether there is an older row.
    items.create_index(IndexDef::new("name").column("name")).unwrap();
    assert!(events(&mut feed).iter().all(|e| *e == RowEvent::SchemaChanged));
    items.put(&item(1, "c")).unwrap();
    items.put(&item(4, "d")).unwrap();
    assert_eq!(events(&mut feed), [Update(item(1, "c")), Insert(item(4, "d"))]);
    let until = 4_102_444_800_000;
    items.put_until(&item(4, "e"), until).unwrap();
    assert_eq!(feed.next_change().unwrap().unwrap().expires_at_ms, Some(until));
    items.load([item(7, "l")]).unwrap();
    assert!(events(&mut feed).contains(&RowEvent::Loaded));
    db.drop_table("items").unwrap();
    assert_eq!(events(&mut feed), [RowEvent::Dropped]);
}

#[test]
fn a_feed_continues_at_its_position() {
    let db = perigee::example_db().unwrap();
    let items = db.table::<Item>("items").unwrap();
    items.write(|t| (0..5).try_for_each(|id| t.insert(&item(id, "x")))).unwrap();
    items.write(|t| (5..9).try_for_each(|id| t.insert(&item(id, "x")))).unwrap();
    let mut feed = items.changes(0).unwrap();
    let mut returned = 0;
    // In the middle of the first commit the position is before it.
    while returned < 3 {
        let change = feed.next_change().unwrap().unwrap();
        returned += u32::from(matches!(change.event, RowEvent::Insert(_)));
    }
    let mut again = items.changes(feed.position()).unwrap();
    assert_eq!(events(&mut again).len(), 9);
    (0..2).for_each(|_| drop(feed.next_change().unwrap().unwrap()));
    let mut second = items.changes(feed.position()).unwrap();
    assert_eq!(events(&mut second).len(), 4);
}

/// Rows of an older layout are decoded with the current schema.
#[test]
fn old_rows_in_the_log_are_decoded() {
    let db = perigee::example_db().unwrap();
    db.table::<Item>("items").unwrap().insert(&item(1, "a")).unwrap();
    let score = Column::new("score", ColumnType::U8).default_value(3u8);
    db.alter_table("items", &[SchemaChange::AddColumn(score)]).unwrap();
    let items = db.dyn_table("items").unwrap();
    let mut feed = items.changes(0).unwrap();
    let changes = std::iter::from_fn(|| feed.next_change().unwrap());
    let rows: Vec<_> = changes
        .filter_map(|change| match change.event {
            RowEvent::Insert(row) => Some(row),
            _ => None,
        })
        .collect();
    assert_eq!(rows, [[1u32.into(), "a".into(), perigee_tables::Value::U8(3)]]);
}

/// A caller that goes on after an error would lose the changes of the commit that it concerns.
#[test]
fn a_feed_returns_its_error_again() {
    let db = perigee::example_db().unwrap();
    let items = db.table::<Item>("items").unwrap();
    items.insert(&item(1, "a")).unwrap();
    let mut feed = items.changes(0).unwrap();
    while feed.next_change().unwrap().is_some() {}
    let before = feed.position();
    let column = Column::new("age", ColumnType::U8).default_value(7u8);
    db.alter_table("items", &[SchemaChange::AddColumn(column)]).unwrap();
    let table = db.dyn_table("items").unwrap();
    let row = |id: u32| vec![id.into(), "b".into(), 9u8.into()];
    table.insert(&row(2)).unwrap();
    table.delete([Value::U32(1)]).unwrap();
    let errors: Vec<_> = std::iter::from_fn(|| Some(feed.next_change()))
        .skip_while(Result::is_ok)
        .take(3)
        .map(|change| change.unwrap_err().kind())
        .collect();
    assert_eq!(errors, [ErrorKind::SchemaMismatch; 3]);
    // A feed of another row type continues there, and loses nothing.
    assert!(feed.position() >= before);
    let mut feed = table.changes(feed.position()).unwrap();
    let mut events = Vec::new();
    while let Some(change) = feed.next_change().unwrap() {
        events.push(change.event);
    }
    events.retain(|e| *e != RowEvent::SchemaChanged);
    assert_eq!(events, [RowEvent::Insert(row(2)), RowEvent::Delete(vec![Value::U32(1)])]);
}
