// One Transaction per connection.
#ifndef PERIGEE_TRANSACTION_H
#define PERIGEE_TRANSACTION_H

#include "compat.h"
#include "bridge.h"

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace perigee {

class TableShare;

// What information_schema.PERIGEE_TRX shows of a transaction.
struct TransactionInfo {
  ulonglong thread_id;
  const char *state;  // "ACTIVE", "PREPARED", "COMMITTING"
  const char *isolation;
  uint64_t writes;    // up to the last finished statement
  bool read_view;
  time_t started;
  uint64_t lock_owner;  // 0: none yet
  ulonglong query_id;   // of the connection's statement
};

class Transaction {
 public:
  // The transaction of a connection, created on first use. Never NULL except out of memory.
  static Transaction *get(THD *thd);
  // The same, or NULL if the connection has none.
  static Transaction *find(THD *thd);

  // Called by external_lock and start_stmt: registers with the server, and sets a statement savepoint if the statement may
  // write inside a transaction. Returns 0 or a handler error.
  int begin_statement(THD *thd, bool may_write);
  // Called when a table of a statement is unlocked. The end of a statement is known to the handlerton: the server may unlock
  // some tables of a statement before others.
  void end_statement(THD *) {}

  // The engine transaction; begun if needed. NULL after an error that was reported.
  pgb_trx *engine_trx();
  // The engine transaction if it has begun, else NULL: for consistent reads, which need it only to see own writes.
  pgb_trx *engine_trx_if_begun() const { return m_begun ? m_trx : nullptr; }
  // The read view of consistent reads by the isolation level; taken if needed. *error is a handler error.
  pgb_snapshot *read_view(int *error);
  // The read view that locked rows must be unchanged since, by perigee_snapshot_isolation; NULL: none.
  pgb_snapshot *conflict_view() const { return m_checks_conflicts ? m_view : nullptr; }
  // Value of the engine-wide counter of index builds when the read view was taken (index_builds.h).
  uint64_t read_view_epoch() const { return m_view_epoch; }

  enum_tx_isolation isolation() const { return m_isolation; }
  // True from REPEATABLE READ upwards: locking scans lock gaps.
  bool locks_gaps() const { return m_isolation >= ISO_REPEATABLE_READ; }

  // Records that the counter of a table has advanced: it is written before the commit.
  void note_auto_increment(TableShare *share);

  // Sets the wait of the next lock call by the statement (NOWAIT, SKIP LOCKED, perigee_lock_wait_timeout).
  void set_lock_wait(THD *thd, bool no_wait);

  // Maps a status to a handler error, marks the transaction for rollback after a deadlock, and keeps the message for
  // get_error_message.
  int handle_status(THD *thd, pgb_status status);
  // Message of the last error of handle_status that has no message of the server.
  const std::string &message() const { return m_message; }

  // ---- called by the handlerton (handlerton.cc) ----
  int commit(THD *thd, bool all);
  int rollback(THD *thd, bool all);
  int prepare(THD *thd, bool all);
  // Commits a prepared transaction in memory and in the log without a sync; errors are reported by commit().
  void commit_ordered();
  int start_consistent_snapshot(THD *thd);
  int set_savepoint(uint64_t *number);
  int rollback_to_savepoint(uint64_t number);
  int release_savepoint(uint64_t number);
  bool has_begun() const { return m_begun; }
  // Ends the connection: rolls back, except for a prepared transaction, which stays prepared.
  static void close(THD *thd);
  // Ends a lock wait of the connection, by another thread.
  static void cancel_wait(THD *thd);
  // Called before a transaction waits for locks of others (bridge.h): reports it to the server, which then may kill one that has
  // to commit later (parallel replication).
  static void wait_began(uint64_t waiting, const uint64_t *blocking, size_t count);
  // Keeps the description of a deadlock for SHOW ENGINE STATUS.
  static void deadlock_resolved(const pgb_lock_wait *waits, size_t count, uint64_t victim);
  // Text about the latest deadlock; empty if there was none.
  static std::string latest_deadlock();
  static void for_each(const std::function<void(const TransactionInfo &)> &visit);

 private:
  enum class State : uint8_t { IDLE, ACTIVE, PREPARED, COMMITTED };

  explicit Transaction(THD *thd);
  ~Transaction();
  Transaction(const Transaction &) = delete;
  Transaction &operator=(const Transaction &) = delete;

  bool is_end(bool all) const { return all || !m_multi_statement; }
  void start_state(State state);
  void drop_read_view();
  void finish_statement();
  void finish();
  static Transaction *find_owner(uint64_t owner);
  int commit_one_phase(THD *thd);
  int commit_prepared(pgb_durability durability);
  int write_counters();
  void release_counters();
  int status_error(pgb_status status, const char *what);

  THD *const m_thd;
  pgb_trx *m_trx = nullptr;        // kept between transactions; changed under the registry's mutex
  bool m_begun = false;            // m_trx may hold locks or writes
  pgb_snapshot *m_view = nullptr;
  uint64_t m_view_epoch = 0;
  enum_tx_isolation m_isolation = ISO_REPEATABLE_READ;
  bool m_checks_conflicts = false; // perigee_snapshot_isolation applies to the statement
  bool m_multi_statement = false;  // registered as a transaction of several statements
  bool m_in_statement = false;
  bool m_statement_savepoint = false;
  uint64_t m_next_savepoint = 1;   // 0 is the savepoint of the statement
  int m_commit_error = 0;          // of commit_ordered
  std::string m_gid;               // of a prepared transaction
  std::vector<TableShare *> m_counters;  // each with a reference
  std::string m_message;

  // Read by other threads.
  std::atomic<uint64_t> m_lock_owner{0};  // of a transaction that has begun or is prepared
  std::atomic<State> m_state{State::IDLE};
  std::atomic<uint64_t> m_writes{0};
  std::atomic<bool> m_has_view{false};
  std::atomic<time_t> m_started{0};
  std::atomic<int> m_shown_isolation{ISO_REPEATABLE_READ};
};

// The engine, opened when the plugin is initialised.
extern pgb_engine *engine;
// The plugin's handlerton.
extern handlerton *perigee_hton;

// Maps a status without a transaction. Aborts the server after PGB_OUTCOME_UNKNOWN.
int to_handler_error(pgb_status status);

// Identifier of a prepared transaction in the engine, and back. False if it is not one of ours.
std::string xid_to_gid(const XID &xid);
bool gid_to_xid(const uint8_t *gid, size_t size, XID *xid);

// Durability of a commit by perigee_flush_log_at_trx_commit.
pgb_durability commit_durability(THD *thd);

}  // namespace perigee
#endif
