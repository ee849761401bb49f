// One object per open table, shared by its handlers.
#ifndef PERIGEE_TABLE_SHARE_H
#define PERIGEE_TABLE_SHARE_H

#include "compat.h"
#include "bridge.h"
#include "table_definition.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace perigee {

// Optimizer statistics of one index: records per distinct value of the first n columns.
struct IndexStatistics {
  std::string name;
  std::vector<double> records_per_key;
};

struct TableStatistics {
  uint64_t records = 0;
  uint64_t average_row_size = 0;
  std::vector<IndexStatistics> indexes;
  bool analyzed = false;  // by ANALYZE TABLE, not from a sample at open

  void serialize(Bytes *out) const;
  bool parse(pgb_slice bytes);
};

class TableShare {
 public:
  // Returns the share of a family, opening it if needed; release() it afterwards. `table` is used to make the definition
  // again after TRUNCATE, or is NULL if it must exist. Returns 0 or a handler error.
  static int acquire(const std::string &name, const TABLE *table, TableShare **out);
  // Adds a reference.
  void retain() { m_references.fetch_add(1, std::memory_order_relaxed); }
  void release();

  // Forgets a family after DROP, RENAME, TRUNCATE or ALTER in place, which the caller protects by an exclusive metadata lock:
  // later calls of acquire() read everything again. Handlers that are still open keep the old object.
  static void invalidate(const std::string &name);

  // Family name of a table path of the server: "db/t1" for "./db/t1" (characters that need it stay encoded like in file
  // names; partitions keep their "#P#p0"), "#tmp/" and the file name for a temporary table, whose path is in tmpdir.
  static std::string family_name(const char *path);
  // Prefix of the families of temporary tables; the plugin drops what is left of them when it starts.
  static const char *temporary_prefix() { return "#tmp/"; }

  const std::string &name() const { return m_name; }
  pgb_table *table() const { return m_table; }
  std::shared_ptr<const TableDefinition> definition() const;
  // Stores a new definition (pgb_put_direct) and uses it for handlers that are opened later.
  int write_definition(const TableDefinition &definition, pgb_durability durability);

  // ---- AUTO_INCREMENT ----
  // Reserves `count` values and returns the first: the smallest value >= the counter in the sequence offset,
  // offset + increment, ... ULONGLONG_MAX if there is none.
  uint64_t reserve_auto_increment(uint64_t offset, uint64_t increment, uint64_t count);
  // Next value that would be generated (SHOW CREATE TABLE, information_schema).
  uint64_t next_auto_increment() const { return m_auto_increment.load(std::memory_order_relaxed); }
  // True once; the caller then raises the counter by the largest value in the table.
  bool begin_auto_increment_check() { return !m_auto_increment_checked.exchange(true); }
  // Raises the counter to `next` if it is lower. Returns true if it was raised.
  bool raise_auto_increment(uint64_t next);
  // Sets the counter and stores it (ALTER TABLE ... AUTO_INCREMENT, TRUNCATE).
  int set_auto_increment(uint64_t next);
  // Stores the counter if the stored one differs. Called when the last reference is released.
  int write_auto_increment();
  // Makes sure that the stored counter is not less than the counter. Called before the commit of a transaction that advanced it.
  // If that happens often, a larger one is stored, so that most commits need no write; after a crash the next value is then
  // larger than necessary by up to 1,023.
  int cover_auto_increment();

  // ---- change log of index builds ----
  // Makes every write of a row also record its primary key (CHANGE_LOG_INDEX), until end_change_log(). No transaction that
  // has written to the table may be open.
  void begin_change_log() { m_logs_changes.store(true, std::memory_order_release); }
  void end_change_log() { m_logs_changes.store(false, std::memory_order_release); }
  bool logs_changes() const { return m_logs_changes.load(std::memory_order_relaxed); }
  // A number that distinguishes two records of the same row.
  uint64_t next_change_number() { return m_change_number.fetch_add(1, std::memory_order_relaxed); }
  // False after invalidate(): handlers that are opened later use another object.
  bool is_current();

  // ---- hidden primary key ----
  uint64_t next_row_id() { return m_row_id.fetch_add(1, std::memory_order_relaxed); }

  // ---- statistics ----
  // Number of rows as far as known: an estimate at open, then changed by each write.
  uint64_t records() const;
  void add_records(int64_t difference) {
    m_records.fetch_add(difference, std::memory_order_relaxed);
    m_changes.fetch_add(1, std::memory_order_relaxed);
  }
  // Statistics for the optimizer; sampled again if many rows have changed since and ANALYZE TABLE was never run.
  std::shared_ptr<const TableStatistics> statistics(TABLE *table);
  // ANALYZE TABLE: computes the statistics from up to `groups` different values of each key prefix (0: all) and stores them.
  int analyze(TABLE *table, uint64_t groups);

 private:
  TableShare() = default;
  ~TableShare();
  int open(const std::string &name, const TABLE *table);
  int read_definition(const TABLE *table);
  int read_statistics();
  int read_auto_increment();
  int store_auto_increment(uint64_t value);
  int find_last_row_id();
  int count_records();
  int collect_statistics(TABLE *table, uint64_t groups, TableStatistics *out);

  std::string m_name;
  pgb_table *m_table = nullptr;
  std::atomic<uint32_t> m_references{1};
  bool m_registered = false;  // guarded by the registry's mutex

  mutable std::mutex m_mutex;  // guards the two pointers
  std::shared_ptr<const TableDefinition> m_definition;
  std::shared_ptr<const TableStatistics> m_statistics;

  std::atomic<uint64_t> m_auto_increment{1};
  std::mutex m_auto_increment_mutex;          // guards the following
  std::atomic<uint64_t> m_auto_increment_stored{0};  // written under the mutex
  uint64_t m_auto_increment_ahead = 0;        // how much more was stored
  uint64_t m_auto_increment_written_us = 0;

  std::atomic<bool> m_auto_increment_checked{false};

  std::atomic<bool> m_logs_changes{false};
  std::atomic<uint64_t> m_change_number{1};

  std::atomic<uint64_t> m_row_id{1};
  std::atomic<int64_t> m_records{0};
  std::atomic<uint64_t> m_changes{0};
  std::atomic<uint64_t> m_changes_at_sample{0};
};

}  // namespace perigee
#endif
