#include "lock_reports.h"

namespace perigee {

namespace {

constexpr size_t SHOWN_KEY_BYTES = 64;

void append_hex(pgb_slice key, std::string *text) {
  static const char digits[] = "0123456789ABCDEF";
  *text += "0x";
  for (size_t i = 0; i < key.size && i < SHOWN_KEY_BYTES; i++) {
    *text += digits[key.data[i] >> 4];
    *text += digits[key.data[i] & 15];
  }
  if (key.size > SHOWN_KEY_BYTES) *text += "...";
}

}  // namespace

const char *lock_mode_name(uint32_t mode) {
  switch (mode) {
    case PGB_LOCK_SHARED: return "SHARED";
    case PGB_LOCK_EXCLUSIVE: return "EXCLUSIVE";
    case PGB_LOCK_GAP: return "GAP";
    case PGB_LOCK_INSERT: return "INSERT";
  }
  return "";
}

std::string lock_key_text(const pgb_lock_wait &wait) {
  std::string text;
  append_hex(wait.key, &text);
  if (wait.range_end.data) {
    text += " to ";
    append_hex(wait.range_end, &text);
  }
  return text;
}

void describe_lock(const pgb_lock_wait &wait, std::string *text) {
  *text += lock_mode_name(wait.mode);
  *text += " lock on ";
  text->append(wait.table, wait.table_size);
  // The first byte of a key is the number of its index.
  if (wait.key.size) *text += ", index " + std::to_string(wait.key.data[0]);
  *text += wait.range_end.data ? ", keys " : ", key ";
  *text += lock_key_text(wait);
}

}  // namespace perigee
