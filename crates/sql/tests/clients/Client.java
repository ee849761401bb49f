// The JDBC driver of PostgreSQL against a server at the port given.
import java.sql.*;
import java.util.Properties;

public class Client {
    static void check(boolean ok, String what) {
        if (!ok) throw new AssertionError(what);
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
