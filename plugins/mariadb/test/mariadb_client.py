"""A minimal MariaDB client over the C library, so that the tests need no Python package."""

import ctypes
import ctypes.util


def load_library():
    for name in ("libmariadb.so.3", ctypes.util.find_library("mariadb")):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                pass
    raise SystemExit("libmariadb.so.3 not found; install libmariadb3")


LIB = load_library()
LIB.mysql_init.restype = ctypes.c_void_p
LIB.mysql_init.argtypes = [ctypes.c_void_p]
LIB.mysql_real_connect.restype = ctypes.c_void_p
LIB.mysql_real_connect.argtypes = [ctypes.c_void_p] + [ctypes.c_char_p] * 4 + [ctypes.c_uint, ctypes.c_char_p, ctypes.c_ulong]
LIB.mysql_real_query.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong]
LIB.mysql_store_result.restype = ctypes.c_void_p
LIB.mysql_store_result.argtypes = [ctypes.c_void_p]
LIB.mysql_free_result.argtypes = [ctypes.c_void_p]
LIB.mysql_num_fields.argtypes = [ctypes.c_void_p]
LIB.mysql_fetch_row.restype = ctypes.POINTER(ctypes.c_void_p)
LIB.mysql_fetch_row.argtypes = [ctypes.c_void_p]
LIB.mysql_fetch_lengths.restype = ctypes.POINTER(ctypes.c_ulong)
LIB.mysql_fetch_lengths.argtypes = [ctypes.c_void_p]
LIB.mysql_affected_rows.restype = ctypes.c_ulonglong
LIB.mysql_affected_rows.argtypes = [ctypes.c_void_p]
LIB.mysql_errno.argtypes = [ctypes.c_void_p]
LIB.mysql_error.restype = ctypes.c_char_p
LIB.mysql_error.argtypes = [ctypes.c_void_p]
LIB.mysql_close.argtypes = [ctypes.c_void_p]

# Errors of a connection whose server has died.
LOST = {2002, 2003, 2006, 2013, 1053, 1927}
# Errors after which a transaction or statement is repeated.
RETRY = {1205, 1213, 1020}


class Error(Exception):
    def __init__(self, number, message):
        super().__init__("%d %s" % (number, message))
        self.number = number
        self.message = message


class Connection:
    def __init__(self, socket, database=None):
        self.handle = LIB.mysql_init(None)
        connected = LIB.mysql_real_connect(
            self.handle, b"localhost", b"root", b"", database.encode() if database else None, 0, socket.encode(), 0)
        if not connected:
            error = Error(LIB.mysql_errno(self.handle), LIB.mysql_error(self.handle).decode(errors="replace"))
            self.close()
            raise error

    def query(self, sql):
        """Returns the rows as tuples of str or None; for statements without a result, the number of affected rows."""
        data = sql.encode() if isinstance(sql, str) else sql
        if LIB.mysql_real_query(self.handle, data, len(data)):
            self.fail()
        result = LIB.mysql_store_result(self.handle)
        if not result:
            if LIB.mysql_errno(self.handle):
                self.fail()
            return LIB.mysql_affected_rows(self.handle)
        fields = LIB.mysql_num_fields(result)
        rows = []
        while True:
            row = LIB.mysql_fetch_row(result)
            if not row:
                break
            lengths = LIB.mysql_fetch_lengths(result)
            rows.append(tuple(
                ctypes.string_at(row[i], lengths[i]).decode(errors="replace") if row[i] else None for i in range(fields)))
        LIB.mysql_free_result(result)
        return rows

    def value(self, sql):
        return self.query(sql)[0][0]

    def fail(self):
        raise Error(LIB.mysql_errno(self.handle), LIB.mysql_error(self.handle).decode(errors="replace"))

    def close(self):
        if self.handle:
            LIB.mysql_close(self.handle)
            self.handle = None
