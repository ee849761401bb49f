#include "transaction.h"

#include "index_builds.h"
#include "system_variables.h"
#include "table_share.h"

#include <mutex>
#include <unordered_set>

#include "lock_reports.h"

// Services of the server for engines with row locks; declared by no header.
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);

namespace perigee {

pgb_engine *engine = nullptr;
handlerton *perigee_hton = nullptr;

namespace {

constexpr uint64_t STATEMENT_SAVEPOINT = 0;

// All transactions: for information_schema and KILL, which come from other threads.
std::mutex registry_mutex;
std::unordered_set<Transaction *> &registry() {
  static std::unordered_set<Transaction *> set;
  return set;
}

std::mutex deadlock_mutex;
std::string deadlock_text;

// Writes the connection, and its statement unless another thread is changing it.
void describe_connection(THD *thd, std::string *text) {
  char line[200];
  snprintf(line, sizeof(line), "thread %llu, query id %llu", static_cast<unsigned long long>(thd_get_thread_id(thd)),
           static_cast<unsigned long long>(thd->query_id));
  *text += line;
  if (thd != current_thd && mysql_mutex_trylock(&thd->LOCK_thd_data)) return;
  if (thd->query()) {
    *text += "\n  ";
    text->append(thd->query(), std::min<size_t>(thd->query_length(), 1000));
  }
  if (thd != current_thd) mysql_mutex_unlock(&thd->LOCK_thd_data);
}

}  // namespace

int to_handler_error(pgb_status status) {
  switch (status) {
    case PGB_OK: return 0;
    case PGB_NOT_FOUND: return HA_ERR_KEY_NOT_FOUND;
    case PGB_LOCK_TIMEOUT: return HA_ERR_LOCK_WAIT_TIMEOUT;
    case PGB_DEADLOCK: return HA_ERR_LOCK_DEADLOCK;
    case PGB_INTERRUPTED: return HA_ERR_ABORTED_BY_USER;
    case PGB_CONFLICT: return HA_ERR_TABLE_DEF_CHANGED;
    case PGB_NO_MEMORY: return HA_ERR_OUT_OF_MEM;
    case PGB_TABLE_MISSING: return HA_ERR_NO_SUCH_TABLE;
    case PGB_TABLE_EXISTS: return HA_ERR_TABLE_EXIST;
    case PGB_NO_SPACE: return HA_ERR_RECORD_FILE_FULL;
    case PGB_CORRUPTION: return HA_ERR_CRASHED;
    case PGB_READ_ONLY: return HA_ERR_TABLE_READONLY;
    case PGB_TOO_LARGE: return HA_ERR_TO_BIG_ROW;
    case PGB_OUTCOME_UNKNOWN:
      // No outcome may be reported to the client, and the binary log may contain the transaction: recovery decides.
      sql_print_error("PERIGEE: the outcome of a commit is unknown: %s. The server stops; restart it to recover.",
                      pgb_last_error());
      abort();
    case PGB_IO:
    case PGB_INVALID:
    case PGB_CLOSED:
    case PGB_INTERNAL: break;
  }
  return HA_ERR_INTERNAL_ERROR;
}

std::string xid_to_gid(const XID &xid) {
  std::string gid(10, '\0');
  for (int i = 0; i < 8; i++) gid[i] = static_cast<char>(static_cast<uint64_t>(xid.formatID) >> (56 - 8 * i));
  gid[8] = static_cast<char>(xid.gtrid_length);
  gid[9] = static_cast<char>(xid.bqual_length);
  gid.append(xid.data, xid.gtrid_length + xid.bqual_length);
  return gid;
}

bool gid_to_xid(const uint8_t *gid, size_t size, XID *xid) {
  if (size < 10) return false;
  const size_t gtrid = gid[8], bqual = gid[9];
  if (gtrid > MAXGTRIDSIZE || bqual > MAXBQUALSIZE || size != 10 + gtrid + bqual) return false;
  uint64_t format = 0;
  for (int i = 0; i < 8; i++) format = format << 8 | gid[i];
  memset(static_cast<void *>(xid), 0, sizeof(*xid));
  const char *data = reinterpret_cast<const char *>(gid) + 10;
  xid->set(static_cast<long>(format), data, static_cast<long>(gtrid), data + gtrid, static_cast<long>(bqual));
  return true;
}

pgb_durability commit_durability(THD *thd) {
  if (thd && thd->durability_property == HA_IGNORE_DURABILITY) return PGB_NO_SYNC;
  return flush_log_at_trx_commit() == 1 ? PGB_SYNC : PGB_INTERVAL;
}

// ---- creation, end, other threads ----

Transaction::Transaction(THD *thd) : m_thd(thd) {
  std::lock_guard<std::mutex> guard(registry_mutex);
  registry().insert(this);
}

Transaction::~Transaction() {
  {
    std::lock_guard<std::mutex> guard(registry_mutex);
    registry().erase(this);
  }
  drop_read_view();
  release_counters();
  if (m_trx) pgb_trx_free(m_trx);  // leaves a prepared transaction prepared
}

Transaction *Transaction::find(THD *thd) { return static_cast<Transaction *>(thd_get_ha_data(thd, perigee_hton)); }

Transaction *Transaction::get(THD *thd) {
  Transaction *transaction = find(thd);
  if (!transaction) {
    transaction = new (std::nothrow) Transaction(thd);
    if (transaction) thd_set_ha_data(thd, perigee_hton, transaction);
  }
  return transaction;
}

void Transaction::close(THD *thd) {
  Transaction *transaction = find(thd);
  if (!transaction) return;
  thd_set_ha_data(thd, perigee_hton, nullptr);
  delete transaction;
}

void Transaction::cancel_wait(THD *thd) {
  std::lock_guard<std::mutex> guard(registry_mutex);
  Transaction *transaction = find(thd);
  if (transaction && registry().count(transaction) && transaction->m_trx) pgb_trx_cancel_wait(transaction->m_trx);
}

void Transaction::for_each(const std::function<void(const TransactionInfo &)> &visit) {
  std::lock_guard<std::mutex> guard(registry_mutex);
  for (const Transaction *transaction : registry()) {
    const State state = transaction->m_state.load();
    if (state == State::IDLE) continue;
    TransactionInfo info;
    info.thread_id = thd_get_thread_id(transaction->m_thd);
    info.state = state == State::ACTIVE ? "ACTIVE" : state == State::PREPARED ? "PREPARED" : "COMMITTING";
    info.isolation = tx_isolation_names[transaction->m_shown_isolation.load()];
    info.writes = transaction->m_writes.load();
    info.read_view = transaction->m_has_view.load();
    info.started = transaction->m_started.load();
    info.lock_owner = transaction->m_lock_owner.load();
    info.query_id = transaction->m_thd->query_id;
    visit(info);
  }
}

// ---- lock waits ----

// The transaction of a lock owner. The caller holds the registry's mutex, and with it the connection stays.
Transaction *Transaction::find_owner(uint64_t owner) {
  for (Transaction *transaction : registry())
    if (transaction->m_lock_owner.load() == owner) return transaction;
  return nullptr;
}

// A replication worker changes its owner under the mutex (finish), so that its rgi_slave is that of the transaction.
void Transaction::wait_began(uint64_t waiting, const uint64_t *blocking, size_t count) {
  THD *thd = current_thd;
  Transaction *own = thd ? find(thd) : nullptr;
  const bool waits_itself = own && own->m_lock_owner.load() == waiting;
  if (waits_itself) {
    if (!thd_need_wait_reports(thd)) return;
    if (!thd->rgi_slave && !opt_binlog_commit_wait_count) {
      thd_rpl_deadlock_check(thd, nullptr);  // for the flag "waited" of its binary log event
      return;
    }
  }
  std::lock_guard<std::mutex> guard(registry_mutex);
  Transaction *waiter = waits_itself ? own : find_owner(waiting);
  if (!waiter || (!waits_itself && !waiter->m_thd->rgi_slave)) return;
  for (size_t i = 0; i < count; i++) {
    Transaction *blocker = find_owner(blocking[i]);
    if (blocker && blocker != waiter) thd_rpl_deadlock_check(waiter->m_thd, blocker->m_thd);
  }
}

void Transaction::deadlock_resolved(const pgb_lock_wait *waits, size_t count, uint64_t victim) {
  std::string text;
  char line[100];
  const time_t now = my_time(0);
  tm local;
  localtime_r(&now, &local);
  strftime(line, sizeof(line), "%Y-%m-%d %H:%M:%S", &local);
  text += line;
  {
    std::lock_guard<std::mutex> guard(registry_mutex);
    for (size_t i = 0; i < count; i++) {
      snprintf(line, sizeof(line), "\n(%zu) TRANSACTION %llu%s: ", i + 1, static_cast<unsigned long long>(waits[i].waiting),
               waits[i].waiting == victim ? " (VICTIM)" : "");
      text += line;
      if (Transaction *transaction = find_owner(waits[i].waiting)) describe_connection(transaction->m_thd, &text);
      snprintf(line, sizeof(line), "\n  waits for (%zu): ", (i + 1) % count + 1);
      text += line;
      describe_lock(waits[i], &text);
    }
  }
  text += "\n";
  std::lock_guard<std::mutex> guard(deadlock_mutex);
  deadlock_text = std::move(text);
}

std::string Transaction::latest_deadlock() {
  std::lock_guard<std::mutex> guard(deadlock_mutex);
  return deadlock_text;
}

// ---- statements ----

void Transaction::start_state(State state) {
  if (m_state.load() == State::IDLE) m_started.store(my_time(0));
  m_state.store(state);
}

int Transaction::begin_statement(THD *thd, bool may_write) {
  const State state = m_state.load();
  if (state == State::PREPARED || state == State::COMMITTED) return HA_ERR_WRONG_COMMAND;
  m_isolation = static_cast<enum_tx_isolation>(thd_tx_isolation(thd));
  m_shown_isolation.store(m_isolation);
  m_checks_conflicts = m_isolation >= ISO_REPEATABLE_READ && snapshot_isolation(thd);
  trans_register_ha(thd, false, perigee_hton, 0);
  if (thd->in_multi_stmt_transaction_mode()) {
    trans_register_ha(thd, true, perigee_hton, 0);
    m_multi_statement = true;
  }
  start_state(State::ACTIVE);
  if (!m_in_statement) {
    m_in_statement = true;
    if (m_trx) set_lock_wait(thd, false);
  }
  if (!may_write || !m_multi_statement || m_statement_savepoint) return 0;
  if (!engine_trx()) return HA_ERR_INTERNAL_ERROR;
  int error = handle_status(thd, pgb_trx_savepoint(m_trx, STATEMENT_SAVEPOINT));
  m_statement_savepoint = error == 0;
  return error;
}

void Transaction::finish_statement() {
  if (m_statement_savepoint) pgb_trx_release_savepoint(m_trx, STATEMENT_SAVEPOINT);
  m_statement_savepoint = false;
  m_in_statement = false;
  if (m_isolation < ISO_REPEATABLE_READ) drop_read_view();
  if (m_begun) m_writes.store(pgb_trx_writes(m_trx));
}

pgb_trx *Transaction::engine_trx() {
  if (!m_trx) {
    pgb_trx *trx = nullptr;
    if (status_error(pgb_trx_begin(engine, lock_wait_timeout_us(m_thd), &trx), "begin")) return nullptr;
    {
      std::lock_guard<std::mutex> guard(registry_mutex);
      m_trx = trx;
    }
    set_lock_wait(m_thd, false);
  }
  if (!m_begun) m_lock_owner.store(pgb_trx_lock_owner(m_trx));
  m_begun = true;
  return m_trx;
}

void Transaction::set_lock_wait(THD *thd, bool no_wait) {
  if (!m_trx) return;
  pgb_trx_set_lock_timeout(m_trx, no_wait ? 0 : lock_wait_timeout_us(thd));
  // The call above ended the effect of a KILL that came before.
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED) pgb_trx_cancel_wait(m_trx);
}

pgb_snapshot *Transaction::read_view(int *error) {
  *error = 0;
  if (m_view) return m_view;
  m_view_epoch = index_build_epoch();
  *error = handle_status(m_thd, pgb_snapshot_take(engine, &m_view));
  if (*error) m_view = nullptr;
  m_has_view.store(m_view != nullptr);
  return m_view;
}

void Transaction::drop_read_view() {
  if (m_view) pgb_snapshot_release(m_view);
  m_view = nullptr;
  m_has_view.store(false);
}

int Transaction::handle_status(THD *thd, pgb_status status) {
  if (likely(status == PGB_OK)) return 0;
  if (status == PGB_NOT_FOUND) return HA_ERR_KEY_NOT_FOUND;
  m_message = pgb_last_error();
  if (status == PGB_DEADLOCK) thd->mark_transaction_to_rollback(true);
  if (status == PGB_LOCK_TIMEOUT) thd->mark_transaction_to_rollback(rollback_on_timeout());
  return to_handler_error(status);
}

// ---- AUTO_INCREMENT counters ----

void Transaction::note_auto_increment(TableShare *share) {
  for (const TableShare *noted : m_counters) {
    if (noted == share) return;
  }
  share->retain();
  m_counters.push_back(share);
}

int Transaction::write_counters() {
  int first_error = 0;
  for (TableShare *share : m_counters) {
    int error = share->cover_auto_increment();
    if (error == HA_ERR_NO_SUCH_TABLE) error = 0;  // a temporary table that was dropped in the transaction
    if (!first_error) first_error = error;
  }
  if (!first_error) release_counters();
  return first_error;
}

void Transaction::release_counters() {
  for (TableShare *share : m_counters) share->release();
  m_counters.clear();
}

// ---- end of a transaction ----

int Transaction::status_error(pgb_status status, const char *what) {
  if (status == PGB_OK) return 0;
  m_message = pgb_last_error();
  sql_print_error("PERIGEE: %s: %s", what, m_message.c_str());
  // The server's message has only the number of the error.
  if (m_thd == current_thd)
    push_warning_printf(m_thd, Sql_condition::WARN_LEVEL_WARN, ER_ERROR_DURING_COMMIT, "PERIGEE: %s: %s", what,
                        m_message.c_str());
  return to_handler_error(status);
}

void Transaction::finish() {
  if (m_thd->rgi_slave) {
    std::lock_guard<std::mutex> guard(registry_mutex);  // see wait_began
    m_lock_owner.store(0);
  } else {
    m_lock_owner.store(0, std::memory_order_relaxed);
  }
  drop_read_view();
  release_counters();
  m_begun = false;
  m_multi_statement = false;
  m_in_statement = false;
  m_statement_savepoint = false;
  m_next_savepoint = STATEMENT_SAVEPOINT + 1;
  m_commit_error = 0;
  m_gid.clear();
  m_writes.store(0);
  m_state.store(State::IDLE);
}

int Transaction::commit_one_phase(THD *thd) {
  if (!m_begun) return 0;
  if (pgb_trx_writes(m_trx) == 0) {
    pgb_trx_rollback(m_trx);
    return 0;
  }
  int error = write_counters();
  if (error) {
    pgb_trx_rollback(m_trx);
    return error;
  }
  return status_error(pgb_trx_commit(m_trx, commit_durability(thd)), "commit");
}

int Transaction::commit_prepared(pgb_durability durability) {
  const pgb_slice gid{reinterpret_cast<const uint8_t *>(m_gid.data()), m_gid.size()};
  return status_error(pgb_commit_prepared(engine, gid, durability), "commit of a prepared transaction");
}

int Transaction::commit(THD *thd, bool all) {
  if (!is_end(all)) {
    finish_statement();
    return 0;
  }
  int error = 0;
  switch (m_state.load()) {
    case State::COMMITTED: error = m_commit_error; break;
    case State::PREPARED: error = commit_prepared(commit_durability(thd)); break;
    case State::ACTIVE: error = commit_one_phase(thd); break;
    case State::IDLE: break;
  }
  if (!m_gid.empty() && m_trx) pgb_trx_rollback(m_trx);  // makes the object of a decided transaction usable again
  finish();
  return error;
}

int Transaction::rollback(THD *, bool all) {
  if (!is_end(all)) {
    int error = 0;
    if (m_statement_savepoint)
      error = status_error(pgb_trx_rollback_to(m_trx, STATEMENT_SAVEPOINT), "rollback of a statement");
    finish_statement();
    return error;
  }
  int error = 0;
  if (m_state.load() == State::PREPARED) {
    const pgb_slice gid{reinterpret_cast<const uint8_t *>(m_gid.data()), m_gid.size()};
    error = status_error(pgb_rollback_prepared(engine, gid), "rollback of a prepared transaction");
  }
  if (m_begun) pgb_trx_rollback(m_trx);
  finish();
  return error;
}

int Transaction::prepare(THD *thd, bool all) {
  if (!is_end(all) || m_state.load() != State::ACTIVE) return 0;
  if (!m_begun || pgb_trx_writes(m_trx) == 0) return 0;
  int error = write_counters();
  if (error) return error;
  m_gid = xid_to_gid(*thd->get_xid());
  const pgb_slice gid{reinterpret_cast<const uint8_t *>(m_gid.data()), m_gid.size()};
  error = status_error(pgb_trx_prepare(m_trx, gid), "prepare");
  if (error)
    m_gid.clear();
  else
    start_state(State::PREPARED);
  return error;
}

void Transaction::commit_ordered() {
  if (m_state.load() != State::PREPARED) return;
  // The binary log (or tc.log) is synced and repeats the decision after a crash.
  m_commit_error = commit_prepared(PGB_NO_SYNC);
  m_state.store(State::COMMITTED);
}

int Transaction::start_consistent_snapshot(THD *thd) {
  int error = begin_statement(thd, false);
  if (error) return error;
  if (m_isolation < ISO_REPEATABLE_READ) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                        "PERIGEE: WITH CONSISTENT SNAPSHOT was ignored because this phrase can only be used with "
                        "REPEATABLE READ isolation level or above.");
    return 0;
  }
  read_view(&error);
  return error;
}

// ---- savepoints of the user ----

int Transaction::set_savepoint(uint64_t *number) {
  if (!engine_trx()) return HA_ERR_INTERNAL_ERROR;
  *number = m_next_savepoint++;
  return status_error(pgb_trx_savepoint(m_trx, *number), "savepoint");
}

int Transaction::rollback_to_savepoint(uint64_t number) {
  return status_error(pgb_trx_rollback_to(m_trx, number), "rollback to a savepoint");
}

int Transaction::release_savepoint(uint64_t number) {
  return status_error(pgb_trx_release_savepoint(m_trx, number), "release of a savepoint");
}

}  // namespace perigee
