// Per-thread scratch memory, and the ways to distribute work over threads.
#pragma once
#include <cstdlib>
#include <new>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "pages.h"
#include "problem.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Kept between calls if small: fresh pages cost more than the whole attention of a short sequence.
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

// Allocates aligned pieces of a scratch; without memory it only counts bytes.
struct Pieces {
  char* data = nullptr;
  size_t used = 0;
  template <class T> T* take(int64_t count) {
    T* piece = data == nullptr ? nullptr : reinterpret_cast<T*>(data + used);
    used += (size_t(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
};

// Runs `body(memory, number)` in a team of threads with `bytes` of memory each. If one allocation fails, no thread runs
// the body: the others would wait for the failed one in its loops.
template <class Body> void team(int threads, size_t bytes, Body body) {
  bool failed = false;
#pragma omp parallel num_threads(threads)
  {
    static thread_local Scratch kept;
    if (!kept.reserve(bytes)) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp barrier
#ifdef _OPENMP
    const int number = omp_get_thread_num();
#else
    const int number = 0;
#endif
    if (!failed) body(static_cast<char*>(kept.data), number);
    kept.relax();
  }
  if (failed) throw std::bad_alloc();
}

// Work provides: a constructor (problem, own pieces, backward), tasks(), forward(task) and backward(task, sums), where
// sums are the thread's own gradients of the weights.
template <template <class> class Work, class T, class P> void run_layer(const P& p, bool backward) {
  Pieces count;
  const int64_t tasks = Work<T>(p, count, backward).tasks();
  team(p.threads, count.used, [&](char* memory, int thread) {
    Pieces own{memory};
    Work<T> work(p, own, backward);
    T* const sums = backward ? static_cast<T*>(p.sums) + thread * p.sums_size : nullptr;
    // Fixed shares per thread: sums are added in the same order in every run.
#pragma omp for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) backward ? work.backward(task, sums) : work.forward(task);
  });
}

constexpr int stretch = 16;  // blocks packed at a time

// Work provides: a constructor (problem, shared pieces, own pieces); enter(head), which returns true if its span
// differs from the last one's; ready(head, differs), called once per head; prepare(head, from, to); `phases` passes
// phase(n, head, block), whose blocks run in any order once the previous pass is complete; and whole(head). With at
// least as many heads as threads each thread takes whole heads; otherwise all threads share one head at a time.
template <class Work> void run(const Problem& p) {
  const int64_t heads = p.batch * p.heads;
  const bool together = heads < p.threads;
  Pieces shared_count, own_count;
  Work(p, shared_count, own_count);
  Scratch common;
  if (together && !common.reserve(shared_count.used)) throw std::bad_alloc();
  team(p.threads, own_count.used + (together ? 0 : shared_count.used), [&](char* memory, int) {
    Pieces own{memory};
    Pieces shared{together ? static_cast<char*>(common.data) : memory + own_count.used};
    Work work(p, shared, own);
    if (together) {
      for (int64_t head = 0; head < heads; ++head) {
        const bool differs = work.enter(head);
        const int64_t blocks = work.span.blocks;
#pragma omp single
        work.ready(head, differs);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b += stretch)
          work.prepare(head, b, b + stretch < blocks ? b + stretch : blocks);
        for (int n = 0; n < Work::phases; ++n) {
#pragma omp for schedule(dynamic)
          for (int64_t b = 0; b < blocks; ++b) work.phase(n, head, b);
        }
      }
    } else {
#pragma omp for schedule(dynamic)
      for (int64_t head = 0; head < heads; ++head) {
        work.ready(head, work.enter(head));
        work.whole(head);
      }
    }
  });
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
