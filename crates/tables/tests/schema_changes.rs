//! Changes of schemas: what is accepted, what is refused and how, and handles that are open
//! meanwhile.
#![allow(clippy::unwrap_used)]

use perigee_tables::{
    Column, ColumnType, ErrorKind, IndexDef, Row, Schema, SchemaChange, TableDb, Value,
};

mod v1 {
    #[derive(perigee_tables::Row, Debug, PartialEq)]
    pub struct User {
        #[key]
        pub id: u32,
        pub name: String,
        pub age: Option<u8>,
    }
}

mod v2 {
    #[derive(perigee_tables::Row, Debug, PartialEq)]
    pub struct User {
        #[row(default = "none")]
        pub mail: String,
        #[key]
        pub id: u32,
        pub score: Option<f64>,
        pub name: String,
        pub age: Option<u8>,
    }
}

fn mismatch<R: Row>(db: &perigee::Db) -> perigee_tables::Error {
    let error = db.table::<R>("users").map(drop).unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::SchemaMismatch, Some("users")));
    error
}

#[test]
fn new_columns_are_added_at_open() {
    let db = perigee::example_db().unwrap();
    let old = db.table::<v1::User>("users").unwrap();
    old.insert(&v1::User { id: 1, name: "ann".into(), age: None }).unwrap();
    let users = db.table::<v2::User>("users").unwrap();
    let ann = users.get(1).unwrap().unwrap();
    assert_eq!((ann.mail.as_str(), ann.score, ann.name.as_str()), ("none", None, "ann"));
    let bob =
        v2::User { mail: "b@x".into(), id: 2, score: Some(1.0), name: "bob".into(), age: Some(3) };
    users.insert(&bob).unwrap();
    assert_eq!(users.get(2).unwrap(), Some(bob));
    // The old handle does not know the new columns.
    let error = old.insert(&v1::User { id: 3, name: "eve".into(), age: None }).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::SchemaMismatch, Some("mail")));
    assert_eq!(old.get(2).unwrap_err().kind(), ErrorKind::SchemaMismatch);
    assert_eq!(mismatch::<v1::User>(&db).column(), Some("mail"));
}

#[test]
fn incompatible_row_types_are_refused() {
    #[derive(Row)]
    struct OtherKey {
        #[key(desc)]
        id: u32,
        name: String,
        age: Option<u8>,
    }
    #[derive(Row)]
    struct OtherType {
        #[key]
        id: u32,
        name: String,
        age: Option<u16>,
    }
    #[derive(Row)]
    struct NotNullable {
        #[key]
        id: u32,
        name: String,
        age: u8,
    }
    #[derive(Row)]
    struct NoDefault {
        #[key]
        id: u32,
        name: String,
        age: Option<u8>,
        mail: String,
    }
    let db = perigee::example_db().unwrap();
    db.table::<v1::User>("users").unwrap();
    let error = mismatch::<OtherKey>(&db);
    assert!(error.message().contains("(id), but the row type declares (id desc)"), "{error}");
    let error = mismatch::<OtherType>(&db);
    assert_eq!(error.column(), Some("age"));
    assert!(error.message().contains("nullable u8"), "{error}");
    assert_eq!(mismatch::<NotNullable>(&db).column(), Some("age"));
    let error = mismatch::<NoDefault>(&db);
    assert_eq!(error.column(), Some("mail"));
    assert!(error.message().contains("default"), "{error}");
    let _ = (OtherKey { id: 0, name: String::new(), age: None }.id, NoDefault::declared_schema());
}

#[test]
fn columns_are_dropped_and_renamed_without_rewriting() {
    let db = perigee::example_db().unwrap();
    let users = db.table::<v1::User>("users").unwrap();
    users.insert(&v1::User { id: 1, name: "ann".into(), age: Some(30) }).unwrap();
    let entries = db.family("@table/users").unwrap().iter().unwrap().count();
    let seq = db.history().latest_seq();
    let rename = SchemaChange::RenameColumn { from: "name".into(), to: "full_name".into() };
    let add = SchemaChange::AddColumn(Column::new("x", ColumnType::I64).default_value(5i64));
    db.alter_table("users", &[rename, SchemaChange::DropColumn { name: "age".into() }, add])
        .unwrap();
    assert_eq!(db.history().latest_seq(), seq + 1, "one write, of the schema");
    assert_eq!(db.family("@table/users").unwrap().iter().unwrap().count(), entries);
    let users = db.dyn_table("users").unwrap();
    let ann = vec![Value::U32(1), "ann".into(), 5i64.into()];
    assert_eq!(users.get([Value::U32(1)]).unwrap(), Some(ann));
    // A new column of the old name is another column.
    let age = Column::new("age", ColumnType::Text).nullable();
    db.alter_table("users", &[SchemaChange::AddColumn(age)]).unwrap();
    let users = db.dyn_table("users").unwrap();
    let ann = vec![Value::U32(1), "ann".into(), 5i64.into(), Value::Null];
    assert_eq!(users.get([Value::U32(1)]).unwrap(), Some(ann));
    let bad = [
        SchemaChange::DropColumn { name: "id".into() },
        SchemaChange::DropColumn { name: "none".into() },
        SchemaChange::RenameColumn { from: "x".into(), to: "age".into() },
        SchemaChange::AddColumn(Column::new("y", ColumnType::U8)),
        SchemaChange::AddColumn(Column::new("y", ColumnType::U8).default_value("text")),
        SchemaChange::AddColumn(Column::new("x", ColumnType::U8).nullable()),
    ];
    for change in bad {
        let error = db.alter_table("users", std::slice::from_ref(&change)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{change:?}");
        assert!(error.column().is_some());
    }
    users.create_index(IndexDef::new("by_x").column("x")).unwrap();
    let drop = SchemaChange::DropColumn { name: "x".into() };
    let error = db.alter_table("users", &[drop]).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::InvalidArgument, Some("by_x")));
}

#[test]
fn dynamic_handles_follow_the_schema() {
    let db = perigee::example_db().unwrap();
    let schema = Schema::new().key("id", ColumnType::U32).nullable("a", ColumnType::U8);
    let table = db.create_dyn_table("t", schema).unwrap();
    let other = db.dyn_table("t").unwrap();
    table.insert(&vec![1u32.into(), 1u8.into()]).unwrap();
    let b = Column::new("b", ColumnType::U8).default_value(7u8);
    db.alter_table("t", &[SchemaChange::AddColumn(b)]).unwrap();
    // A write looks at the schema first.
    assert!(other.insert(&vec![2u32.into(), 1u8.into()]).is_err());
    other.insert(&vec![2u32.into(), 1u8.into(), 2u8.into()]).unwrap();
    // A read of a row with an unknown layout looks at the schema.
    let row = table.get([Value::U32(2)]).unwrap().unwrap();
    assert_eq!(row, [Value::U32(2), 1u8.into(), 2u8.into()]);
    assert_eq!(table.get([Value::U32(1)]).unwrap().unwrap()[2], Value::U8(7));
}

#[test]
fn tables_are_created_listed_and_dropped() {
    let db = perigee::example_db().unwrap();
    db.create_family("other", Default::default()).unwrap().put("k", "v").unwrap();
    let schema = || Schema::new().key("id", ColumnType::U32);
    let table = db.create_dyn_table("b", schema()).unwrap();
    db.create_dyn_table("a", schema()).unwrap();
    let again = db.create_dyn_table("a", schema()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    table.write(|t| (0..500u32).try_for_each(|id| t.put(&vec![id.into()]))).unwrap();
    table.create_index(IndexDef::new("i").column_desc("id")).unwrap();
    let tables = db.tables().unwrap();
    assert_eq!(tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(tables[1].indexes.len(), 1);
    // An estimate: the schema was written several times.
    assert!((480..=520).contains(&tables[1].rows), "{}", tables[1].rows);
    assert!(tables[1].bytes > 0 && tables[1].schema == schema());
    db.drop_table("b").unwrap();
    assert_eq!(table.get([Value::U32(1)]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(table.put(&vec![Value::U32(1)]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_table("b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.dyn_table("b").unwrap_err().kind(), ErrorKind::NotFound);
    // A new table of the same name does not revive the old handle.
    db.create_dyn_table("b", schema()).unwrap();
    assert_eq!(table.put(&vec![Value::U32(1)]).unwrap_err().kind(), ErrorKind::NotFound);
    for name in ["", "a\0b", &"x".repeat(201)] {
        let error = db.create_dyn_table(name, schema()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(db.create_dyn_table("c", Schema::new()).is_err());
    let nullable = Schema::new().nullable("id", ColumnType::U32);
    assert!(db.create_dyn_table("c", nullable).is_err());
    assert_eq!(db.tables().unwrap().len(), 2);
}

#[test]
fn contents_of_other_programs_are_not_touched() {
    let db = perigee::example_db().unwrap();
    let family = db.create_family("@table/mine", Default::default()).unwrap();
    family.put("key", "value").unwrap();
    let schema = Schema::new().key("id", ColumnType::U32);
    let error = db.create_dyn_table("mine", schema).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    family.put([0, 1], "no schema").unwrap();
    assert_eq!(db.dyn_table("mine").unwrap_err().kind(), ErrorKind::Corruption);
}

/// A schema that cannot be read again is not written.
#[test]
fn a_schema_that_is_too_large_is_refused() {
    let db = perigee::example_db().unwrap();
    let table = db.create_dyn_table("t", Schema::new().key("id", ColumnType::U32)).unwrap();
    table.insert(&vec![Value::U32(1)]).unwrap();
    let large = || Value::from("x".repeat(70 << 20));
    let column = Column::new("text", ColumnType::Text).default_value(large());
    let error = db.alter_table("t", &[SchemaChange::AddColumn(column.clone())]).unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::InvalidArgument, Some("t")));
    assert_eq!(db.dyn_table("t").unwrap().get([Value::U32(1)]).unwrap(), Some(vec![1u32.into()]));
    let mut schema = Schema::new().key("id", ColumnType::U32);
    schema = schema.add(column);
    let error = db.create_dyn_table("u", schema).unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::InvalidArgument, Some("u")));
}

/// The plans of all layouts share the default values: a copy in each would be 80 MB here. Checks
/// the values, not the memory.
#[test]
fn rows_of_hundreds_of_layouts_get_a_large_default() {
    let db = perigee::example_db().unwrap();
    let table = db.create_dyn_table("t", Schema::new().key("id", ColumnType::U32)).unwrap();
    table.insert(&vec![Value::U32(1)]).unwrap();
    let note = |name: &str| SchemaChange::AddColumn(Column::new(name, ColumnType::U8).nullable());
    let drop_note = |name: &str| SchemaChange::DropColumn { name: name.to_owned() };
    let changes: Vec<_> = (0..400).flat_map(|_| [note("note"), drop_note("note")]).collect();
    db.alter_table("t", &changes).unwrap();
    let large = Value::from("x".repeat(100_000));
    let column = Column::new("text", ColumnType::Text).default_value(large.clone());
    db.alter_table("t", &[SchemaChange::AddColumn(column)]).unwrap();
    let table = db.dyn_table("t").unwrap();
    table.insert(&vec![Value::U32(2), Value::from("own")]).unwrap();
    assert_eq!(table.get([Value::U32(1)]).unwrap(), Some(vec![Value::U32(1), large]));
    assert_eq!(table.get([Value::U32(2)]).unwrap().unwrap()[1], Value::from("own"));
}
