// Per-thread scratch memory, and the two ways of spreading heads and blocks over threads.
#pragma once
#include <cstdlib>
#include <new>

#include "pages.h"
#include "problem.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Kept from call to call when small: fresh pages cost more than a short sequence's whole attention.
struct Scratch {
  static constexpr size_t keep = size_t(16) << 20;
  void* data = nullptr;
  size_t size = 0;
  bool reserve(size_t wanted) {
    if (wanted <= size) return true;
    std::free(data);
    size = (wanted + 4095) / 4096 * 4096;
    data = std::aligned_alloc(64, size);
    if (data == nullptr) size = 0;
    ask_for_large_pages(data, size);
    return data != nullptr;
  }
  void relax() {
    if (size <= keep) return;
    std::free(data);
    data = nullptr, size = 0;
  }
  ~Scratch() { std::free(data); }
};

// Hands out aligned pieces of a scratch; with no memory behind it, it only counts.
struct Pieces {
  char* data = nullptr;
  size_t used = 0;
  template <class T> T* take(int64_t count) {
    T* piece = data == nullptr ? nullptr : reinterpret_cast<T*>(data + used);
    used += (size_t(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
};

constexpr int stretch = 16;  // blocks packed in one go

// Work has: a constructor (problem, shared pieces, own pieces), clear(), prepare(head, from, to), `phases` passes
// phase(n, head, block) that may run in any order of blocks once the pass before is complete, and whole(head).
// With at least as many heads as threads each thread takes whole heads; otherwise all threads share one head at a time.
template <class Work> void run(const Problem& p, int64_t blocks) {
  const int64_t heads = p.batch * p.heads;
  const bool together = heads < p.threads;
  Pieces shared_count, own_count;
  Work(p, shared_count, own_count);
  Scratch common;
  bool failed = together && !common.reserve(shared_count.used);
#pragma omp parallel num_threads(p.threads)
  {
    static thread_local Scratch kept;
    if (!kept.reserve(own_count.used + (together ? 0 : shared_count.used))) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp barrier
    if (!failed) {
      Pieces own{static_cast<char*>(kept.data)};
      Pieces shared{together ? static_cast<char*>(common.data) : own.data + own_count.used};
      Work work(p, shared, own);
      if (together) {
#pragma omp single
        work.clear();
        for (int64_t head = 0; head < heads; ++head) {
#pragma omp for schedule(static)
          for (int64_t b = 0; b < blocks; b += stretch) work.prepare(head, b, b + stretch < blocks ? b + stretch : blocks);
          for (int n = 0; n < Work::phases; ++n) {
#pragma omp for schedule(dynamic)
            for (int64_t b = 0; b < blocks; ++b) work.phase(n, head, b);
          }
        }
      } else {
        work.clear();
#pragma omp for schedule(dynamic)
        for (int64_t head = 0; head < heads; ++head) {
          work.whole(head);
        }
      }
    }
    kept.relax();
  }
  if (failed) throw std::bad_alloc();
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
