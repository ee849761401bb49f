//! Parquet and CSV files as external tables: joins with tables, inserts from them, COPY.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, fails, lines, run};
use perigee_sql::{Session, SessionOptions, SqlState};

#[test]
fn files_are_joined_with_tables_and_written() {
    run(async {
        let directory = std::env::temp_dir().join(format!("perigee-sql-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let csv = directory.join("cities.csv");
        std::fs::write(&csv, "id,city\n1,Bern\n2,Oslo\n3,Rome\n").unwrap();
        let db = perigee::example_db().unwrap();
        let options = SessionOptions::default().allow_files(true);
        let s = &mut Session::new(&db, options).unwrap();
        lines(s, "CREATE TABLE people (name TEXT PRIMARY KEY, city_id BIGINT)").await;
        lines(s, "INSERT INTO people VALUES ('ann', 1), ('bob', 3)").await;
        let external = format!(
            "CREATE EXTERNAL TABLE cities STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')",
            csv.display()
        );
        lines(s, &external).await;
        let join = "SELECT name, city FROM people JOIN cities ON id = city_id ORDER BY name";
        assert_eq!(lines(s, join).await, ["ann|Bern", "bob|Rome"]);

        let parquet = directory.join("joined.parquet");
        let copy = format!("COPY ({join}) TO '{}' STORED AS PARQUET", parquet.display());
        assert_eq!(count(s, &copy).await, 2);
        let external = format!(
            "CREATE EXTERNAL TABLE joined STORED AS PARQUET LOCATION '{}'",
            parquet.display()
        );
        lines(s, &external).await;
        let copied = "CREATE TABLE copied (name TEXT PRIMARY KEY, city TEXT);
                      INSERT INTO copied SELECT * FROM joined";
        assert_eq!(count(s, copied).await, 2);
        assert_eq!(lines(s, "SHOW TABLES").await, ["cities", "copied", "joined", "people"]);
        fails(s, "INSERT INTO cities VALUES (9, 'x')", SqlState::UNSUPPORTED).await;
        // Another session creates a table that the file hides in this one.
        let other = &mut Session::new(&db, Default::default()).unwrap();
        lines(other, "CREATE TABLE cities (id BIGINT PRIMARY KEY, city TEXT)").await;
        fails(s, "INSERT INTO cities VALUES (9, 'x')", SqlState::UNSUPPORTED).await;
        assert_eq!(count(other, "SELECT * FROM cities").await, 0);
        lines(other, "DROP TABLE cities").await;
        lines(s, "DROP TABLE cities").await;
        fails(s, "SELECT * FROM cities", SqlState::UNDEFINED_TABLE).await;
        let taken = external.replace("joined STORED", "people STORED");
        fails(s, &taken, SqlState::DUPLICATE_TABLE).await;
        std::fs::remove_dir_all(&directory).unwrap();
    });
}
