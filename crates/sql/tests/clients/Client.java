// The JDBC driver of PostgreSQL against a server at the port given.
import java.sql.*;
import java.util.Properties;

public class Client {
    static void check(boolean ok, String what) {
        if (!ok) throw new AssertionError(what);
    }

    /** Returns the rows of a result, with the columns given. */
    static String rows(ResultSet r, String... columns) throws SQLException {
        StringBuilder text = new StringBuilder();
        while (r.next()) {
            for (String column : columns) text.append(r.getString(column)).append(' ');
            text.append("; ");
        }
        return text.toString();
    }

    static void expect(String got, String expected) {
        check(got.equals(expected), "expected: " + expected + "\ngot: " + got);
    }

    static void metadata(Connection c, Statement s) throws SQLException {
        s.execute("DROP TABLE IF EXISTS jm");
        s.execute("CREATE TABLE jm (b TEXT NOT NULL, a INTEGER, c BIGINT DEFAULT 7, at TIMESTAMP, PRIMARY KEY (a, b))");
        s.execute("CREATE UNIQUE INDEX jm_c ON jm (c, at DESC)");
        DatabaseMetaData m = c.getMetaData();
        expect(rows(m.getTables(null, "public", "jm", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"),
            "public jm TABLE ; ");
        expect(rows(m.getTables(null, null, "jm", null), "TABLE_NAME"), "jm ; ");
        expect(rows(m.getColumns(null, "public", "jm", "%"), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "IS_NULLABLE",
            "COLUMN_DEF", "ORDINAL_POSITION"),
            "b 12 text NO null 1 ; a 4 int4 NO null 2 ; c -5 int8 YES 7 3 ; at 93 timestamptz YES null 4 ; ");
        expect(rows(m.getPrimaryKeys(null, "public", "jm"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"),
            "a 1 jm_pkey ; b 2 jm_pkey ; ");
        expect(rows(m.getIndexInfo(null, "public", "jm", false, true), "INDEX_NAME", "NON_UNIQUE", "ORDINAL_POSITION",
            "COLUMN_NAME", "ASC_OR_DESC"),
            "jm_c f 1 c A ; jm_c f 2 at D ; jm_pkey f 1 a A ; jm_pkey f 2 b A ; ");
        expect(rows(m.getSchemas(), "TABLE_SCHEM"), "information_schema ; pg_catalog ; public ; ");
        expect(rows(m.getCatalogs(), "TABLE_CAT"), "perigee ; ");
        expect(rows(m.getImportedKeys(null, "public", "jm"), "FK_NAME"), "");
        expect(rows(m.getExportedKeys(null, "public", "jm"), "FK_NAME"), "");
        s.execute("DROP TABLE jm");
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/perigee";
        Properties properties = new Properties();
        properties.setProperty("user", "any");
        properties.setProperty("sslmode", "disable");
        try (Connection c = DriverManager.getConnection(url, properties); Statement s = c.createStatement()) {
            s.execute("DROP TABLE IF EXISTS j");
            s.execute("CREATE TABLE j (id BIGINT PRIMARY KEY, name TEXT, v DOUBLE PRECISION, at TIMESTAMP, ok BOOLEAN)");
            try (PreparedStatement p = c.prepareStatement("INSERT INTO j VALUES (?, ?, ?, ?, ?)")) {
                for (int i = 0; i < 100; i++) {
                    p.setLong(1, i);
                    p.setString(2, "n" + i);
                    p.setDouble(3, i / 2.0);
                    p.setTimestamp(4, new Timestamp(1_767_225_600_000L + i));
                    p.setBoolean(5, i % 2 == 0);
                    check(p.executeUpdate() == 1, "one row");
                }
            }
            // More than five executions: the driver uses named statements and binary values.
            try (PreparedStatement p = c.prepareStatement("SELECT name, v, ok, at FROM j WHERE id = ?")) {
                for (int i = 0; i < 20; i++) {
                    p.setLong(1, i);
                    try (ResultSet r = p.executeQuery()) {
                        check(r.next(), "a row");
                        check(r.getString(1).equals("n" + i), "name");
                        check(r.getDouble(2) == i / 2.0, "v");
                        check(r.getBoolean(3) == (i % 2 == 0), "ok");
                        check(r.getTimestamp(4).getTime() == 1_767_225_600_000L + i, "at " + r.getTimestamp(4));
                    }
                }
            }
            // Rows in portions, in a transaction.
            c.setAutoCommit(false);
            try (PreparedStatement p = c.prepareStatement("SELECT id FROM j ORDER BY id")) {
                p.setFetchSize(7);
                int n = 0;
                try (ResultSet r = p.executeQuery()) {
                    while (r.next()) check(r.getLong(1) == n++, "id");
                }
                check(n == 100, "100 rows");
            }
            s.executeUpdate("DELETE FROM j");
            c.rollback();
            c.setAutoCommit(true);
            try (ResultSet r = s.executeQuery("SELECT count(*) FROM j")) {
                check(r.next() && r.getLong(1) == 100, "rolled back");
            }
            try (PreparedStatement p = c.prepareStatement("INSERT INTO j (id, name) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                for (int i = 200; i < 210; i++) {
                    p.setLong(1, i);
                    p.setString(2, "n" + i);
                    check(p.executeUpdate() == 1, "one row");
                    expect(rows(p.getGeneratedKeys(), "id", "name"), i + " n" + i + " ; ");
                }
            }
            metadata(c, s);
            try {
                s.execute("INSERT INTO j (id) VALUES (1)");
                check(false, "no error");
            } catch (SQLException e) {
                check(e.getSQLState().equals("23505"), e.getSQLState());
            }
        }
        System.out.println("JDBC: passed");
    }
}
