// One query per path -> attention at one position: over cells of the history, which all paths of a series share, and
// over the path's own steps. Four paths at a time, so that each loaded number of the history serves four of them.
#pragma once
#include <algorithm>
#include <cstring>

#include "scratch.h"
#include "simd.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct Step {
  static constexpr int wide = lanes<T>, pair = 2 * wide;
  static constexpr T lowest = T(-1e30);  // weight 0 after the softmax
  const StepProblem& p;
  const int64_t new_room, value_room;  // rounded up to whole pairs of vectors
  const T scale;
  const bool neighbours;  // the cells of the history are contiguous and read in place
  const int64_t* old_cells = nullptr;  // those of this series, after its start
  int64_t old_count = 0, old_room = 0;
  const T *k = nullptr, *v = nullptr;
  int64_t k_channel = 0, v_row = 0;
  T *gathered_k = nullptr, *gathered_v = nullptr, *q, *scores, *sum;

  static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  Step(const StepProblem& problem, Pieces& own)
      : p(problem),
        new_room(round_up(p.new_count, pair)),
        value_room(round_up(p.value_width, pair)),
        scale(T(1.4426950408889634074 / __builtin_sqrt(double(p.width)))),
        neighbours(p.old_count == 0 || p.old_cells[p.old_count - 1] - p.old_cells[0] == p.old_count - 1) {
    const int64_t room = round_up(p.old_count, pair);
    if (!neighbours) gathered_k = own.take<T>(p.width * room), gathered_v = own.take<T>(p.old_count * value_room);
    q = own.take<T>(4 * p.width), scores = own.take<T>(4 * (room + new_room)), sum = own.take<T>(4 * value_room);
  }

  void series_head(int64_t series, int64_t head) {
    const int64_t* const end = p.old_cells + p.old_count;
    old_cells = p.starts == nullptr ? p.old_cells : std::lower_bound(p.old_cells, end, p.starts[series]);
    old_count = end - old_cells, old_room = round_up(old_count, pair);
    const T* all_k = static_cast<const T*>(p.history_k) + (series * p.heads + head) * p.width * p.history;
    const T* all_v = static_cast<const T*>(p.history_v) + (series * p.heads + head) * p.history * p.value_width;
    if (neighbours) {
      const int64_t first = old_count ? old_cells[0] : 0;
      k = all_k + first, k_channel = p.history, v = all_v + first * p.value_width, v_row = p.value_width;
    } else {
      gather(all_k, all_v);
    }
    int64_t path = 0;
    for (; path + 4 <= p.paths; path += 4) paths_of<4>(series, head, path);
    for (; path < p.paths; ++path) paths_of<1>(series, head, path);
  }

  // Copies the cells of the history: keys channel by channel, values row by row.
  void gather(const T* all_k, const T* all_v) {
    for (int64_t d = 0; d < p.width; ++d)
      for (int64_t m = 0; m < old_count; ++m) gathered_k[d * old_room + m] = all_k[d * p.history + old_cells[m]];
    for (int64_t m = 0; m < old_count; ++m)
      std::memcpy(&gathered_v[m * value_room], all_v + old_cells[m] * p.value_width, p.value_width * sizeof(T));
    k = gathered_k, k_channel = old_room, v = gathered_v, v_row = value_room;
  }

  template <int G> void paths_of(int64_t series, int64_t head, int64_t path) {
    const int64_t room = old_room + new_room;
    for (int g = 0; g < G; ++g) {
      const T* from = static_cast<const T*>(p.q.data) + series * p.q.batch + (path + g) * p.q.row + head * p.q.head;
      for (int64_t d = 0; d < p.width; ++d) q[g * p.width + d] = from[d * p.q.channel] * scale;
    }
    dots<G>(room);
    T total[G];
    for (int g = 0; g < G; ++g) {
      const int64_t own = (series * p.heads + head) * p.paths + path + g;
      own_scores(static_cast<const T*>(p.steps_k) + own * p.width * p.step_room, g, room);
      total[g] = weigh(&scores[g * room]);
    }
    mix<G>(room);
    for (int g = 0; g < G; ++g) {
      const int64_t own = (series * p.heads + head) * p.paths + path + g;
      const T* rows = static_cast<const T*>(p.steps_v) + own * p.step_room * p.value_width;
      T* into = &sum[g * value_room];
      add_own(rows, &scores[g * room + old_room], into);
      T* out = static_cast<T*>(p.out) + ((series * p.paths + path + g) * p.heads + head) * p.value_width;
      const T share = total[g] == 0 ? T(0) : T(1) / total[g];  // 0: a row of padding, which sees nothing
      for (int64_t e = 0; e < p.value_width; ++e) out[e] = into[e] * share;
    }
  }

  // scores[g][m] = q[g] . keys of cell m, for whole pairs of vectors.
  template <int G> void dots(int64_t room) {
    for (int64_t m = 0; m < old_room; m += pair) {
      Vec<T> low[G] = {}, high[G] = {};
      for (int64_t d = 0; d < p.width; ++d) {
        const T* column = k + d * k_channel + m;
        const Vec<T> a = load(column), b = load(column + wide);
        for (int g = 0; g < G; ++g) {
          const Vec<T> x = all<T>(q[g * p.width + d]);
          low[g] += x * a, high[g] += x * b;
        }
      }
      for (int g = 0; g < G; ++g) store(&scores[g * room + m], low[g]), store(&scores[g * room + m + wide], high[g]);
    }
  }

  void own_scores(const T* steps, int g, int64_t room) {
    T* into = &scores[g * room + old_room];
    const T* query = &q[g * p.width];
    if (p.new_count && p.new_cells[p.new_count - 1] - p.new_cells[0] == p.new_count - 1) {
      for (int64_t m = 0; m < new_room; m += pair) {
        Vec<T> low{}, high{};
        for (int64_t d = 0; d < p.width; ++d) {
          const T* column = steps + d * p.step_room + p.new_cells[0] + m;
          const Vec<T> x = all<T>(query[d]);
          low += x * load(column), high += x * load(column + wide);
        }
        store(into + m, low), store(into + m + wide, high);
      }
    } else {
      for (int64_t m = 0; m < p.new_count; ++m) {
        T score = 0;
        for (int64_t d = 0; d < p.width; ++d) score += query[d] * steps[d * p.step_room + p.new_cells[m]];
        into[m] = score;
      }
    }
    for (int64_t m = old_count; m < old_room; ++m) scores[g * room + m] = lowest;
    for (int64_t m = p.new_count; m < new_room; ++m) into[m] = lowest;
  }

  // Turns scores into weights, not yet divided by their sum, which is returned.
  T weigh(T* row) {
    const int64_t room = old_room + new_room;
    Vec<T> top = all<T>(lowest), other = top;
    for (int64_t m = 0; m < room; m += pair)
      top = larger<T>(load(row + m), top), other = larger<T>(load(row + m + wide), other);
    top = larger<T>(top, other);
    T highest = top[0];
    for (int i = 1; i < wide; ++i) highest = highest > top[i] ? highest : top[i];
    Vec<T> sums{}, others{};
    for (int64_t m = 0; m < room; m += pair) {
      const Vec<T> a = exp2<T>(load(row + m) - highest), b = exp2<T>(load(row + m + wide) - highest);
      sums += a, others += b;
      store(row + m, a), store(row + m + wide, b);
    }
    T total = 0;
    for (int i = 0; i < wide; ++i) total += sums[i] + others[i];
    return total;
  }

  // sum[g] = weights of the history times its values. Two vectors of channels at a time, to hide the latency of
  // the additions.
  template <int G> void mix(int64_t room) {
    for (int64_t e = 0; e < value_room; e += pair) {
      Vec<T> low[G] = {}, high[G] = {};
      for (int64_t m = 0; m < old_count; ++m) {
        const Vec<T> a = load(v + m * v_row + e), b = load(v + m * v_row + e + wide);
        for (int g = 0; g < G; ++g) {
          const Vec<T> weight = all<T>(scores[g * room + m]);
          low[g] += weight * a, high[g] += weight * b;
        }
      }
      for (int g = 0; g < G; ++g)
        store(&sum[g * value_room + e], low[g]), store(&sum[g * value_room + e + wide], high[g]);
    }
  }

  // into += weights of the path's own steps times their values; even and odd steps separately, for the same reason.
  void add_own(const T* rows, const T* weights, T* into) {
    for (int64_t e = 0; e < value_room; e += pair) {
      Vec<T> low[2] = {load(into + e), Vec<T>{}}, high[2] = {load(into + e + wide), Vec<T>{}};
      int64_t m = 0;
      for (; m + 2 <= p.new_count; m += 2)
        for (int odd = 0; odd < 2; ++odd) {
          const T* row = rows + p.new_cells[m + odd] * p.value_width + e;
          low[odd] += all<T>(weights[m + odd]) * load(row), high[odd] += all<T>(weights[m + odd]) * load(row + wide);
        }
      if (m < p.new_count) {
        const T* row = rows + p.new_cells[m] * p.value_width + e;
        low[0] += all<T>(weights[m]) * load(row), high[0] += all<T>(weights[m]) * load(row + wide);
      }
      store(into + e, low[0] + low[1]), store(into + e + wide, high[0] + high[1]);
    }
  }
};

template <class T> void run_step(const StepProblem& p) {
  Pieces count;
  Step<T>(p, count);
  team(p.threads, count.used, [&](char* memory, int) {
    Pieces own{memory};
    Step<T> work(p, own);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < p.series * p.heads; ++task) work.series_head(task / p.heads, task % p.heads);
  });
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
