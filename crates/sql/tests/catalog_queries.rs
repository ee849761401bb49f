//! Queries of `pg_catalog`, word for word as psql 15 and the JDBC driver 42.7 send them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, lines, run, session};
use perigee_sql::Session;

async fn tables(session: &mut Session) {
    lines(
        session,
        "CREATE TABLE t (b TEXT NOT NULL UNIQUE, a INTEGER, c BIGINT DEFAULT 7, d TIMESTAMP,
             PRIMARY KEY (a, b));
         CREATE INDEX td ON t (d DESC);
         CREATE TABLE \"Other\" (id BIGINT PRIMARY KEY)",
    )
    .await;
}

const LIST_RELATIONS: &str = r#"
    SELECT n.nspname as "Schema", c.relname as "Name", CASE c.relkind WHEN 'r' THEN 'table'
    WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index' WHEN 'S'
    THEN 'sequence' WHEN 't' THEN 'TOAST table' WHEN 'f' THEN 'foreign table' WHEN 'p' THEN
    'partitioned table' WHEN 'I' THEN 'partitioned index' END as "Type",
    pg_catalog.pg_get_userbyid(c.relowner) as "Owner" FROM pg_catalog.pg_class c LEFT JOIN
    pg_catalog.pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_catalog.pg_am am ON
    am.oid = c.relam WHERE c.relkind IN ('r','p','v','m','S','f','') AND n.nspname <>
    'pg_catalog' AND n.nspname !~ '^pg_toast' AND n.nspname <> 'information_schema' AND
    pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2"#;

const DESCRIBE_FIND_RELATION: &str = r#"
    SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN
    pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname
    OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default AND
    pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3"#;

const DESCRIBE_RELATION: &str = r#"
    SELECT c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relhastriggers,
    c.relrowsecurity, c.relforcerowsecurity, false AS relhasoids, c.relispartition, '',
    c.reltablespace, CASE WHEN c.reloftype = 0 THEN '' ELSE
    c.reloftype::pg_catalog.regtype::pg_catalog.text END, c.relpersistence, c.relreplident,
    am.amname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_class tc ON (c.reltoastrelid
    = tc.oid) LEFT JOIN pg_catalog.pg_am am ON (c.relam = am.oid) WHERE c.oid = '{oid}'"#;

const DESCRIBE_COLUMNS: &str = r#"
    SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT
    pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d WHERE
    d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull, (SELECT
    c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t WHERE c.oid =
    a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS
    attcollation, a.attidentity, a.attgenerated FROM pg_catalog.pg_attribute a WHERE
    a.attrelid = '{oid}' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"#;

const DESCRIBE_INDEXES: &str = r#"
    SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid,
    pg_catalog.pg_get_indexdef(i.indexrelid, 0, true),
    pg_catalog.pg_get_constraintdef(con.oid, true), contype, condeferrable, condeferred,
    i.indisreplident, c2.reltablespace FROM pg_catalog.pg_class c, pg_catalog.pg_class c2,
    pg_catalog.pg_index i LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid
    AND conindid = i.indexrelid AND contype IN ('p','u','x')) WHERE c.oid = '{oid}' AND c.oid
    = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname"#;

const DESCRIBE_POLICIES: &str = r#"
    SELECT pol.polname, pol.polpermissive, CASE WHEN pol.polroles = '{0}' THEN NULL ELSE
    pg_catalog.array_to_string(array(select rolname from pg_catalog.pg_roles where oid = any
    (pol.polroles) order by 1),',') END, pg_catalog.pg_get_expr(pol.polqual, pol.polrelid),
    pg_catalog.pg_get_expr(pol.polwithcheck, pol.polrelid), CASE pol.polcmd WHEN 'r' THEN
    'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' END AS cmd
    FROM pg_catalog.pg_policy pol WHERE pol.polrelid = '{oid}' ORDER BY 1"#;

const DESCRIBE_STATISTICS: &str = r#"
    SELECT oid, stxrelid::pg_catalog.regclass,
    stxnamespace::pg_catalog.regnamespace::pg_catalog.text AS nsp, stxname,
    pg_catalog.pg_get_statisticsobjdef_columns(oid) AS columns, 'd' = any(stxkind) AS
    ndist_enabled, 'f' = any(stxkind) AS deps_enabled, 'm' = any(stxkind) AS mcv_enabled,
    stxstattarget FROM pg_catalog.pg_statistic_ext WHERE stxrelid = '{oid}' ORDER BY nsp,
    stxname"#;

const DESCRIBE_PUBLICATIONS: &str = r#"
    SELECT pubname , NULL , NULL FROM pg_catalog.pg_publication p JOIN
    pg_catalog.pg_publication_namespace pn ON p.oid = pn.pnpubid JOIN pg_catalog.pg_class pc
    ON pc.relnamespace = pn.pnnspid WHERE pc.oid ='{oid}' and
    pg_catalog.pg_relation_is_publishable('{oid}') UNION SELECT pubname ,
    pg_get_expr(pr.prqual, c.oid) , (CASE WHEN pr.prattrs IS NOT NULL THEN (SELECT
    string_agg(attname, ', ') FROM pg_catalog.generate_series(0,
    pg_catalog.array_upper(pr.prattrs::pg_catalog.int2[], 1)) s, pg_catalog.pg_attribute
    WHERE attrelid = pr.prrelid AND attnum = prattrs[s]) ELSE NULL END) FROM
    pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel pr ON p.oid = pr.prpubid
    JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid WHERE pr.prrelid = '{oid}' UNION SELECT
    pubname , NULL , NULL FROM pg_catalog.pg_publication p WHERE p.puballtables AND
    pg_catalog.pg_relation_is_publishable('{oid}') ORDER BY 1"#;

const DESCRIBE_PARENTS: &str = r#"
    SELECT c.oid::pg_catalog.regclass FROM pg_catalog.pg_class c, pg_catalog.pg_inherits i
    WHERE c.oid = i.inhparent AND i.inhrelid = '{oid}' AND c.relkind != 'p' AND c.relkind !=
    'I' ORDER BY inhseqno"#;

const DESCRIBE_CHILDREN: &str = r#"
    SELECT c.oid::pg_catalog.regclass, c.relkind, inhdetachpending,
    pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM pg_catalog.pg_class c,
    pg_catalog.pg_inherits i WHERE c.oid = i.inhrelid AND i.inhparent = '{oid}' ORDER BY
    pg_catalog.pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT',
    c.oid::pg_catalog.regclass::pg_catalog.text"#;

const JDBC_TABLES: &str = r#"
    SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME, CASE
    n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN CASE WHEN n.nspname
    = 'pg_catalog' OR n.nspname = 'information_schema' THEN CASE c.relkind WHEN 'r' THEN
    'SYSTEM TABLE' WHEN 'v' THEN 'SYSTEM VIEW' WHEN 'i' THEN 'SYSTEM INDEX' ELSE NULL END
    WHEN n.nspname = 'pg_toast' THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TOAST TABLE' WHEN
    'i' THEN 'SYSTEM TOAST INDEX' ELSE NULL END ELSE CASE c.relkind WHEN 'r' THEN 'TEMPORARY
    TABLE' WHEN 'p' THEN 'TEMPORARY TABLE' WHEN 'i' THEN 'TEMPORARY INDEX' WHEN 'S' THEN
    'TEMPORARY SEQUENCE' WHEN 'v' THEN 'TEMPORARY VIEW' ELSE NULL END END WHEN false THEN
    CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'i' THEN
    'INDEX' WHEN 'P' then 'PARTITIONED INDEX' WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW'
    WHEN 'c' THEN 'TYPE' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE
    NULL END ELSE NULL END AS TABLE_TYPE, d.description AS REMARKS, '' as TYPE_CAT, '' as
    TYPE_SCHEM, '' as TYPE_NAME, '' AS SELF_REFERENCING_COL_NAME, '' AS REF_GENERATION FROM
    pg_catalog.pg_namespace n, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON
    (c.oid = d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass) WHERE
    c.relnamespace = n.oid AND n.nspname LIKE 'public' AND c.relname LIKE '%' AND (false OR (
    c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ) ) ORDER
    BY TABLE_TYPE,TABLE_SCHEM,TABLE_NAME"#;

const JDBC_COLUMNS: &str = r#"
    SELECT * FROM (SELECT n.nspname,c.relname,a.attname,a.atttypid,a.attnotnull OR (t.typtype
    = 'd' AND t.typnotnull) AS attnotnull,a.atttypmod,a.attlen,t.typtypmod,row_number() OVER
    (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') as
    attidentity,nullif(a.attgenerated, '') as attgenerated,pg_catalog.pg_get_expr(def.adbin,
    def.adrelid) AS adsrc,dsc.description,t.typbasetype,t.typtype FROM
    pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid) JOIN
    pg_catalog.pg_attribute a ON (a.attrelid=c.oid) JOIN pg_catalog.pg_type t ON (a.atttypid
    = t.oid) LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid=def.adrelid AND a.attnum =
    def.adnum) LEFT JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum =
    dsc.objsubid) LEFT JOIN pg_catalog.pg_class dc ON (dc.oid=dsc.classoid AND
    dc.relname='pg_class') LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace=dn.oid
    AND dn.nspname='pg_catalog') WHERE c.relkind in ('r','p','v','f','m') and a.attnum > 0
    AND NOT a.attisdropped AND n.nspname LIKE 'public' AND c.relname LIKE 't') c WHERE true
    AND attname LIKE '%' ORDER BY nspname,c.relname,attnum"#;

const JDBC_PRIMARY_KEYS: &str = r#"
    SELECT result.TABLE_CAT, result.TABLE_SCHEM, result.TABLE_NAME, result.COLUMN_NAME,
    result.KEY_SEQ, result.PK_NAME FROM (SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM,
    ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME,
    (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME,
    information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM FROM
    pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN
    pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON (
    a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE
    true AND n.nspname = 'public' AND ct.relname = 't' AND i.indisprimary ) result where
    result.A_ATTNUM = (result.KEYS).x ORDER BY result.table_name, result.pk_name,
    result.key_seq"#;

const JDBC_INDEXES: &str = r#"
    SELECT tmp.TABLE_CAT, tmp.TABLE_SCHEM, tmp.TABLE_NAME, tmp.NON_UNIQUE,
    tmp.INDEX_QUALIFIER, tmp.INDEX_NAME, tmp.TYPE, tmp.ORDINAL_POSITION, trim(both '"' from
    pg_catalog.pg_get_indexdef(tmp.CI_OID, tmp.ORDINAL_POSITION, false)) AS COLUMN_NAME, CASE
    tmp.AM_NAME WHEN 'btree' THEN CASE tmp.I_INDOPTION[tmp.ORDINAL_POSITION - 1] &
    1::smallint WHEN 1 THEN 'D' ELSE 'A' END ELSE NULL END AS ASC_OR_DESC, tmp.CARDINALITY,
    tmp.PAGES, tmp.FILTER_CONDITION FROM (SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM,
    ct.relname AS TABLE_NAME, NOT i.indisunique AS NON_UNIQUE, NULL AS INDEX_QUALIFIER,
    ci.relname AS INDEX_NAME, CASE i.indisclustered WHEN true THEN 1 ELSE CASE am.amname WHEN
    'hash' THEN 2 ELSE 3 END END AS TYPE, (information_schema._pg_expandarray(i.indkey)).n AS
    ORDINAL_POSITION, ci.reltuples AS CARDINALITY, ci.relpages AS PAGES,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS FILTER_CONDITION, ci.oid AS CI_OID,
    i.indoption AS I_INDOPTION, am.amname AS AM_NAME FROM pg_catalog.pg_class ct JOIN
    pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON
    (ct.oid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) JOIN
    pg_catalog.pg_am am ON (ci.relam = am.oid) WHERE true AND n.nspname = 'public' AND
    ct.relname = 't') AS tmp ORDER BY NON_UNIQUE, TYPE, INDEX_NAME, ORDINAL_POSITION"#;

const JDBC_IMPORTED_KEYS: &str = r#"
    SELECT NULL::text AS PKTABLE_CAT, pkn.nspname AS PKTABLE_SCHEM, pkc.relname AS
    PKTABLE_NAME, pka.attname AS PKCOLUMN_NAME, NULL::text AS FKTABLE_CAT, fkn.nspname AS
    FKTABLE_SCHEM, fkc.relname AS FKTABLE_NAME, fka.attname AS FKCOLUMN_NAME, pos.n AS
    KEY_SEQ, CASE con.confupdtype WHEN 'c' THEN 0 WHEN 'n' THEN 2 WHEN 'd' THEN 4 WHEN 'r'
    THEN 1 WHEN 'p' THEN 1 WHEN 'a' THEN 3 ELSE NULL END AS UPDATE_RULE, CASE con.confdeltype
    WHEN 'c' THEN 0 WHEN 'n' THEN 2 WHEN 'd' THEN 4 WHEN 'r' THEN 1 WHEN 'p' THEN 1 WHEN 'a'
    THEN 3 ELSE NULL END AS DELETE_RULE, con.conname AS FK_NAME, pkic.relname AS PK_NAME, CASE
    WHEN con.condeferrable AND con.condeferred THEN 5 WHEN con.condeferrable THEN 6 ELSE 7 END
    AS DEFERRABILITY FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc,
    pg_catalog.pg_attribute pka, pg_catalog.pg_namespace fkn, pg_catalog.pg_class fkc,
    pg_catalog.pg_attribute fka, pg_catalog.pg_constraint con, pg_catalog.generate_series(1,
    32) pos(n), pg_catalog.pg_class pkic WHERE pkn.oid = pkc.relnamespace AND pkc.oid =
    pka.attrelid AND pka.attnum = con.confkey[pos.n] AND con.confrelid = pkc.oid AND fkn.oid =
    fkc.relnamespace AND fkc.oid = fka.attrelid AND fka.attnum = con.conkey[pos.n] AND
    con.conrelid = fkc.oid AND con.contype = 'f' AND pkic.relkind = 'i' AND pkic.oid =
    con.conindid AND fkn.nspname = 'public' AND fkc.relname = 't' ORDER BY
    pkn.nspname,pkc.relname, con.conname,pos.n"#;

#[test]
fn psql_lists_and_describes_tables() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        tables(s).await;
        let listed = ["public|Other|table|perigee", "public|t|table|perigee"];
        assert_eq!(lines(s, LIST_RELATIONS).await, listed);
        let found = lines(s, DESCRIBE_FIND_RELATION).await;
        let (oid, name) = found[0].split_once('|').unwrap();
        assert_eq!((found.len(), name), (1, "public|t"));
        let query = |text: &str| text.replace("{oid}", oid);
        let relation = lines(s, &query(DESCRIBE_RELATION)).await;
        assert!(relation[0].starts_with("0|r|1|0|0|0|0|0|0|"), "{relation:?}");
        let columns = [
            "b|text|NULL|1|NULL||",
            "a|integer|NULL|1|NULL||",
            "c|bigint|7|0|NULL||",
            "d|timestamp with time zone|NULL|0|NULL||",
        ];
        assert_eq!(lines(s, &query(DESCRIBE_COLUMNS)).await, columns);
        let indexes = [
            "t_pkey|1|1|0|1|CREATE UNIQUE INDEX t_pkey ON public.t USING btree (a, b)|\
             PRIMARY KEY (a, b)|p|0|0|0|0",
            "t_b_key|0|1|0|1|CREATE UNIQUE INDEX t_b_key ON public.t USING btree (b)|\
             NULL|NULL|NULL|NULL|0|0",
            "td|0|0|0|1|CREATE INDEX td ON public.t USING btree (d DESC)|NULL|NULL|NULL|NULL|0|0",
        ];
        assert_eq!(lines(s, &query(DESCRIBE_INDEXES)).await, indexes);
        for empty in [
            DESCRIBE_POLICIES,
            DESCRIBE_STATISTICS,
            DESCRIBE_PUBLICATIONS,
            DESCRIBE_PARENTS,
            DESCRIBE_CHILDREN,
        ] {
            assert_eq!(count(s, &query(empty)).await, 0, "{empty}");
        }
    });
}

#[test]
fn jdbc_reads_metadata() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        tables(s).await;
        let listed = lines(s, JDBC_TABLES).await;
        assert_eq!(listed, ["NULL|public|Other|TABLE|NULL|||||", "NULL|public|t|TABLE|NULL|||||"]);
        let columns = lines(s, JDBC_COLUMNS).await;
        let names: Vec<&str> = columns.iter().map(|c| c.split('|').nth(2).unwrap()).collect();
        assert_eq!(names, ["b", "a", "c", "d"]);
        let keys = lines(s, JDBC_PRIMARY_KEYS).await;
        assert_eq!(keys, ["NULL|public|t|a|1|t_pkey", "NULL|public|t|b|2|t_pkey"]);
        let indexes = lines(s, JDBC_INDEXES).await;
        let found: Vec<String> = indexes
            .iter()
            .map(|row| row.split('|').skip(5).take(5).collect::<Vec<_>>().join("|"))
            .collect();
        let expected = ["t_b_key|3|1|b|A", "t_pkey|3|1|a|A", "t_pkey|3|2|b|A", "td|3|1|d|D"];
        assert_eq!(found, expected);
        // There are no foreign keys.
        let foreign = s.run(JDBC_IMPORTED_KEYS).await.unwrap();
        assert_eq!(foreign[0].rows, Some(0));
        assert_eq!(foreign[0].schema.as_ref().unwrap().fields().len(), 14);
    });
}

#[test]
fn tables_of_the_catalog_are_read_like_others() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        tables(s).await;
        assert_eq!(lines(s, "SELECT tablename FROM pg_tables ORDER BY 1").await, ["Other", "t"]);
        assert_eq!(lines(s, "SELECT count(*) FROM pg_catalog.pg_proc").await, ["0"]);
        let left = "SELECT c.relname FROM pg_class c LEFT JOIN pg_policy p ON p.oid = c.oid
                    WHERE c.relkind = 'r' ORDER BY 1";
        assert_eq!(lines(s, left).await, ["Other", "t"]);
        let join = "SELECT relname FROM pg_class c, pg_policy p WHERE p.polrelid = c.oid";
        assert!(lines(s, join).await.is_empty());
        let names = "SELECT 't'::regclass::oid = oid, oid::regclass FROM pg_class
                     WHERE relname IN ('t', 'Other') ORDER BY 2";
        assert_eq!(lines(s, names).await, ["0|\"Other\"", "1|t"]);
        // The list of tables is that of the statement, not of an earlier one.
        let definitions = "SELECT pg_get_indexdef(oid) FROM pg_class WHERE relname = 'later_pkey'";
        assert!(lines(s, definitions).await.is_empty());
        lines(s, "CREATE TABLE later (a INT PRIMARY KEY)").await;
        let definition = "CREATE UNIQUE INDEX later_pkey ON public.later USING btree (a)";
        assert_eq!(lines(s, definitions).await, [definition]);
        lines(s, "DROP TABLE later").await;
        assert!(lines(s, definitions).await.is_empty());
        // Queries of other tables are not rewritten.
        lines(s, "INSERT INTO t (b, a) VALUES ('x', 1), ('y', 2)").await;
        s.run("SELECT (SELECT a FROM t)").await.unwrap_err();
        s.run("SELECT b COLLATE \"de_DE\" FROM t").await.unwrap_err();
    });
}
