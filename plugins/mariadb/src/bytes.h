// A growable byte buffer that keeps its memory between uses.
#ifndef PERIGEE_BYTES_H
#define PERIGEE_BYTES_H

#include "compat.h"
#include "bridge.h"

#include <stdlib.h>
#include <string.h>

namespace perigee {

class Bytes {
 public:
  Bytes() = default;
  ~Bytes() { free(m_data); }
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;

  const uchar *data() const { return m_data; }
  uchar *data() { return m_data; }
  size_t size() const { return m_size; }
  bool empty() const { return m_size == 0; }
  pgb_slice slice() const { return pgb_slice{m_data, m_size}; }
  void clear() { m_size = 0; }
  void resize(size_t size) {
    reserve(size);
    m_size = size;
  }

  // Makes room for `extra` more bytes and returns their address; advance() then adds what was written there.
  uchar *room(size_t extra) {
    reserve(m_size + extra);
    return m_data + m_size;
  }
  void advance(size_t written) { m_size += written; }

  void append(const void *data, size_t size) {
    if (size) memcpy(room(size), data, size);
    m_size += size;
  }
  void append(pgb_slice slice) { append(slice.data, slice.size); }
  void push(uchar byte) {
    *room(1) = byte;
    m_size++;
  }
  void assign(pgb_slice slice) {
    m_size = 0;
    append(slice.data, slice.size);
  }

 private:
  void reserve(size_t size) {
    if (size <= m_capacity) return;
    size_t capacity = m_capacity ? m_capacity * 2 : 64;
    if (capacity < size) capacity = size;
    void *data = realloc(m_data, capacity);
    if (!data) abort();  // as the server does for its own small allocations
    m_data = static_cast<uchar *>(data);
    m_capacity = capacity;
  }

  uchar *m_data = nullptr;
  size_t m_size = 0;
  size_t m_capacity = 0;
};

// Compares like memcmp; a prefix is less than what it is a prefix of.
inline int compare_slices(pgb_slice a, pgb_slice b) {
  size_t n = a.size < b.size ? a.size : b.size;
  int order = n ? memcmp(a.data, b.data, n) : 0;
  if (order) return order;
  return a.size < b.size ? -1 : a.size > b.size ? 1 : 0;
}

inline bool starts_with(pgb_slice key, pgb_slice prefix) {
  return key.size >= prefix.size && memcmp(key.data, prefix.data, prefix.size) == 0;
}

// Unsigned integers in LEB128.
inline void put_varint(Bytes *out, uint64_t value) {
  uchar *to = out->room(10);
  size_t n = 0;
  while (value >= 0x80) {
    to[n++] = static_cast<uchar>(value | 0x80);
    value >>= 7;
  }
  to[n++] = static_cast<uchar>(value);
  out->advance(n);
}

// Reads a varint at *from and moves *from behind it. False if the bytes end before.
inline bool get_varint(const uchar **from, const uchar *end, uint64_t *value) {
  const uchar *p = *from;
  if (likely(p < end && *p < 0x80)) {
    *value = *p;
    *from = p + 1;
    return true;
  }
  uint64_t result = 0;
  for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
    uint64_t byte = *p++;
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      *from = p;
      return true;
    }
  }
  return false;
}

}  // namespace perigee
#endif
