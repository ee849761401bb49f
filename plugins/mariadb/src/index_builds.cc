#include "index_builds.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace perigee {

namespace {

using Builds = std::unordered_map<uint8_t, uint64_t>;  // epoch by index number

std::atomic<uint64_t> epoch{0};
std::mutex mutex;
std::unordered_map<std::string, Builds> &families() {
  static std::unordered_map<std::string, Builds> map;
  return map;
}

}  // namespace

uint64_t index_build_epoch() { return epoch.load(std::memory_order_acquire); }

void note_index_built(const std::string &family, uint8_t number) {
  std::lock_guard<std::mutex> guard(mutex);
  families()[family][number] = epoch.fetch_add(1, std::memory_order_acq_rel) + 1;
}

uint64_t index_built_at(const std::string &family, uint8_t number) {
  std::lock_guard<std::mutex> guard(mutex);
  auto builds = families().find(family);
  if (builds == families().end()) return 0;
  auto build = builds->second.find(number);
  return build == builds->second.end() ? 0 : build->second;
}

void move_index_builds(const std::string &from, const std::string &to) {
  std::lock_guard<std::mutex> guard(mutex);
  auto builds = families().find(from);
  if (builds == families().end()) return;
  if (!to.empty()) families()[to] = std::move(builds->second);
  families().erase(from);
}

}  // namespace perigee
