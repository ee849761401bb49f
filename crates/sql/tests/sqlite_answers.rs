//! Answers compared with those of SQLite: the same statements run on both, written by hand and
//! generated from a fixed seed.
#![allow(clippy::unwrap_used)]

mod common;

use common::{query, run, session};
use perigee_sql::{Session, SqlState};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

/// Both engines, with the same statements so far.
struct Engines {
    session: Session,
    sqlite: Connection,
    compared: u32,
}

fn sqlite_rows(sqlite: &Connection, sql: &str) -> Result<Vec<Vec<String>>, rusqlite::Error> {
    let mut statement = sqlite.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |i| match row.get_ref(i).unwrap() {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(v) => v.to_string(),
            ValueRef::Real(v) => format!("{v:.9}"),
            ValueRef::Text(v) => String::from_utf8(v.to_vec()).unwrap(),
            ValueRef::Blob(v) => format!("{v:?}"),
        };
        all.push((0..columns).map(text).collect());
    }
    Ok(all)
}

impl Engines {
    fn new() -> Engines {
        let sqlite = Connection::open_in_memory().unwrap();
        sqlite.pragma_update(None, "case_sensitive_like", true).unwrap();
        Engines { session: session().1, sqlite, compared: 0 }
    }
    /// Runs a statement on both; both must return the same rows, in the same order if the statement
    /// has ORDER BY, or fail with the same kind of error. Returns false if they fail.
    async fn compare(&mut self, sql: &str) -> bool {
        let own = query(&mut self.session, sql).await;
        let theirs = sqlite_rows(&self.sqlite, sql);
        self.compared += 1;
        match (own, theirs) {
            (Ok(mut own), Ok(mut theirs)) => {
                if !sql.contains("ORDER BY") {
                    own.sort();
                    theirs.sort();
                }
                // An integer of one may be a float of the other.
                let same = |a: &str, b: &str| {
                    a == b
                        || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
                };
                let equal = own.len() == theirs.len()
                    && own.iter().zip(&theirs).all(|(a, b)| {
                        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
                    });
                assert!(equal, "{sql}\n own: {own:?}\n SQLite: {theirs:?}");
            }
            (Err(own), Err(theirs)) => {
                let same = match own.state() {
                    SqlState::UNIQUE_VIOLATION | SqlState::NOT_NULL_VIOLATION => {
                        theirs.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
                    }
                    SqlState::SYNTAX_ERROR => theirs.to_string().contains("incomplete input"),
                    SqlState::UNDEFINED_COLUMN => theirs.to_string().contains("no such column"),
                    SqlState::UNDEFINED_TABLE => theirs.to_string().contains("no such table"),
                    SqlState::DUPLICATE_TABLE => theirs.to_string().contains("already exists"),
                    _ => false,
                };
                assert!(same, "{sql}\n own: {own}\n SQLite: {theirs}");
                return false;
            }
            (own, theirs) => panic!("{sql}\n own: {own:?}\n SQLite: {theirs:?}"),
        }
        true
    }
    /// Compares a statement that must succeed.
    async fn compare_ok(&mut self, sql: &str) {
        assert!(self.compare(sql).await, "{sql}: failed");
    }
    async fn compare_all(&mut self, statements: &str) {
        for sql in statements.split(';').map(str::trim).filter(|sql| !sql.is_empty()) {
            self.compare(sql).await;
        }
    }
}

#[test]
fn written_statements_have_the_same_answers() {
    run(async {
        let mut engines = Engines::new();
        engines.compare_all(include_str!("sqlite_answers.sql")).await;
        assert!(engines.compared > 150, "{} statements", engines.compared);
    });
}

/// A generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
    fn choose<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
    /// Returns a condition over the columns a, b, c (nullable) and e.
    fn condition(&mut self, depth: u32) -> String {
        if depth > 0 && self.below(3) > 0 {
            let (left, right) = (self.condition(depth - 1), self.condition(depth - 1));
            let operator = self.choose(&["AND", "AND", "OR"]);
            return format!("({left} {operator} {right})");
        }
        let column = self.choose(&["a", "a", "b", "c"]);
        let operator = self.choose(&["=", "=", "<", "<=", ">", ">=", "<>"]);
        match self.below(10) {
            0 => format!("{column} BETWEEN {} AND {}", self.below(10), self.below(20)),
            1 => {
                format!("{column} IN ({}, {}, {})", self.below(10), self.below(10), self.below(10))
            }
            2 => format!("{column} NOT IN ({}, {})", self.below(10), self.below(10)),
            3 => format!("c IS {}NULL", self.choose(&["", "NOT "])),
            4 => format!("e {operator} 'e{}'", self.below(10)),
            5 => format!("e LIKE '%{}%'", self.below(10)),
            6 => format!("NOT ({column} {operator} {})", self.below(10)),
            7 => format!("{column} {operator} b + {}", self.below(5)),
            _ => format!("{column} {operator} {}", self.below(12)),
        }
    }
}

#[test]
fn generated_conditions_have_the_same_answers() {
    run(async {
        for seed in 0..4 {
            let mut random = Random(seed);
            let mut engines = Engines::new();
            let direction = |desc| if desc { " DESC" } else { "" };
            let (x, y) = (random.below(2) == 0, random.below(2) == 0);
            let create = format!(
                "CREATE TABLE t (a INTEGER NOT NULL, b BIGINT NOT NULL, c INTEGER, e TEXT, PRIMARY KEY (a{}, b{}))",
                direction(x),
                direction(y)
            );
            engines.compare_ok(&create).await;
            let index = format!("CREATE INDEX by_c ON t (c{}, e)", direction(x));
            engines.compare_ok(&index).await;
            engines.compare_ok("CREATE INDEX by_e ON t (e)").await;
            for i in 0..40 {
                let values: Vec<String> = (0..8)
                    .map(|j| {
                        let c = if random.below(5) == 0 {
                            "NULL".to_owned()
                        } else {
                            random.below(10).to_string()
                        };
                        format!("({}, {}, {c}, 'e{}')", i % 10, (i / 10) * 8 + j, random.below(12))
                    })
                    .collect();
                engines.compare_ok(&format!("INSERT INTO t VALUES {}", values.join(", "))).await;
            }
            for i in 0..80 {
                let condition = random.condition(2);
                let columns =
                    random.choose(&["*", "a, b", "e, c", "count(*), sum(b), min(e)", "c"]);
                engines.compare_ok(&format!("SELECT {columns} FROM t WHERE {condition}")).await;
                let limit = random.below(20);
                let order =
                    random.choose(&["a, b", "a DESC, b DESC", "a, b DESC", "b, a", "a DESC, b"]);
                engines
                    .compare_ok(&format!(
                        "SELECT * FROM t WHERE {condition} ORDER BY {order} LIMIT {limit}"
                    ))
                    .await;
                if i % 10 == 0 {
                    let n = random.below(5);
                    engines
                        .compare_ok(&format!(
                            "UPDATE t SET c = c + {n}, e = 'e{n}' WHERE {condition} AND a = {n}"
                        ))
                        .await;
                    engines
                        .compare_ok(&format!("DELETE FROM t WHERE {condition} AND b % 7 = {n}"))
                        .await;
                    engines.compare_ok("SELECT * FROM t ORDER BY a, b").await;
                }
                if i % 20 == 0 {
                    let sql = format!(
                        "SELECT x.a, count(*), sum(y.b) FROM t AS x JOIN t AS y ON x.c = y.a \
                         WHERE x.a < 5 AND y.b < 10 GROUP BY x.a HAVING count(*) > {}",
                        random.below(3)
                    );
                    engines.compare_ok(&sql).await;
                }
            }
        }
    });
}
