// One more position of every path through a whole decoder: projection, blocks, last norm, head. Paths are laid out
// across the lanes: a tile of 64 paths, channel-first, passes through all layers before the next tile starts. No path
// reads another's numbers, so tiles run independently and the result of a path does not depend on its neighbours.
#pragma once
#include <algorithm>

#include "norm.h"
#include "packed.h"
#include "product.h"
#include "scratch.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <class T> struct Advance {
  static constexpr int w = lanes<T>, together = 4;  // vectors of paths per loaded number of the history
  static constexpr T never = T(-1e4);  // _MASKED in model/network.py
  const AdvanceProblem& p;
  const int64_t channels, step;
  int64_t first = 0, count = 0, columns = 0;  // rows of the tile, and their number rounded up to whole vectors
  int64_t number = 0;
  T *inputs, *x, *normed, *q, *gathered, *hidden, *other, *scores;

  Advance(const AdvanceProblem& problem, Pieces& own) : p(problem), channels(p.heads * p.head_width), step(p.step) {
    int64_t cells = p.anchors;
    for (int64_t b = 0; b < p.block_count; ++b) cells = std::max(cells, p.blocks[b].old_count + p.blocks[b].new_count);
    inputs = own.take<T>(p.inputs * tile), x = own.take<T>(p.width * tile), normed = own.take<T>(p.width * tile);
    q = own.take<T>(channels * tile), gathered = own.take<T>(channels * tile), hidden = own.take<T>(p.wide * tile);
    other = own.take<T>(std::max(p.width, p.parameters + p.anchors) * tile);
    scores = own.take<T>(cells * together * w);
  }

  static const T* at(const void* data) { return static_cast<const T*>(data); }

  template <class Each> void each(int64_t rows, Each each) {
    for (int64_t c = 0; c < rows; ++c)
      for (int64_t i = c * tile; i < c * tile + columns; i += w) each(i);
  }

  // out = bias + weight (rows, terms) . terms. A pair of vectors at a time, so that its terms stay in the L1 cache.
  void apply(T* out, int64_t rows, const void* weight, const void* bias, const T* terms, int64_t count) {
    for (int64_t i = 0; i < columns; i += pair<T>)
      multiply(out + i, tile, rows, std::min<int64_t>(columns - i, pair<T>), Factors<T>{at(weight), 1, count},
               Terms<T>{terms + i, count, tile, 1}, at(bias));
  }

  void norm(const T* from, T* out, const void* gain, const void* shift) {
    for (int64_t i = 0; i < columns; i += w) {
      const ColumnNorm<T> normal(from + i, tile, p.width, p.epsilon);
      for (int64_t c = 0; c < p.width; ++c)
        store(out + c * tile + i, normal(load(from + c * tile + i), at(gain)[c], at(shift)[c]));
    }
  }

  void run(int64_t task) {
    number = task, first = task * tile;
    count = std::min<int64_t>(tile, p.series * p.paths - first), columns = (count + w - 1) / w * w;
    const T* const rows = at(p.x) + first * p.inputs;
    for (int64_t c = 0; c < p.inputs; ++c)
      for (int64_t i = 0; i < columns; ++i) inputs[c * tile + i] = i < count ? rows[i * p.inputs + c] : T(0);
    if (p.project != nullptr)
      apply(x, p.width, p.project, p.project_bias, inputs, p.inputs);
    else
      each(p.width, [&](int64_t i) { store(x + i, load(inputs + i)); });
    for (int64_t b = 0; b < p.block_count; ++b) block(p.blocks[b]);
    if (p.pre) norm(x, x, p.gain, p.shift);
    head();
  }

  void block(const AdvanceBlock& b) {
    const int64_t seen_steps = p.kernel - 1 + p.step_room, cell = channels * tile, row = p.width * tile;
    T* const window = static_cast<T*>(b.seen) + (number * seen_steps + step) * row;
    T* const now = window + (p.kernel - 1) * row;
    if (p.pre)
      norm(x, now, b.attention_gain, b.attention_shift);
    else
      each(p.width, [&](int64_t i) { store(now + i, load(x + i)); });
    // Inputs of consecutive steps are contiguous: the convolution is one product.
    const int64_t terms = p.kernel * p.width, own = (number * p.step_room + step) * cell;
    apply(q, channels, b.query, b.query_bias, window, terms);
    apply(static_cast<T*>(b.steps_k) + own, channels, b.key, b.key_bias, window, terms);
    apply(static_cast<T*>(b.steps_v) + own, channels, b.value, b.value_bias, now, p.width);
    attend(b);
    apply(other, p.width, b.merge, b.merge_bias, gathered, channels);
    each(p.width, [&](int64_t i) { store(x + i, load(x + i) + load(other + i)); });
    norm(x, normed, p.pre ? b.feed_gain : b.attention_gain, p.pre ? b.feed_shift : b.attention_shift);
    apply(hidden, p.wide, b.widen, b.widen_bias, normed, p.width);
    each(p.wide, [&](int64_t i) { store(hidden + i, larger<T>(load(hidden + i), Vec<T>{})); });
    apply(other, p.width, b.narrow, b.narrow_bias, hidden, p.wide);
    const T* const stream = p.pre ? x : normed;
    each(p.width, [&](int64_t i) { store(x + i, load(stream + i) + load(other + i)); });
    if (!p.pre) norm(x, x, b.feed_gain, b.feed_shift);
  }

  // Paths of one series are contiguous within the tile and share its history.
  void attend(const AdvanceBlock& b) {
    for (int64_t from = 0, to; from < count; from = to) {
      const int64_t series = (first + from) / p.paths;
      to = std::min(count, (series + 1) * p.paths - first);
      const int64_t* const end = b.old_cells + b.old_count;
      const int64_t* const begin =
          p.starts == nullptr ? b.old_cells : std::lower_bound(b.old_cells, end, p.starts[series]);
      for (int64_t i = from; i < to; i += together * w)
        for (int64_t h = 0; h < p.heads; ++h) switch ((std::min<int64_t>(to - i, together * w) + w - 1) / w) {
            case 1: paths<1>(b, series, h, i, to, begin, end); break;
            case 2: paths<2>(b, series, h, i, to, begin, end); break;
            case 3: paths<3>(b, series, h, i, to, begin, end); break;
            default: paths<4>(b, series, h, i, to, begin, end);
          }
    }
  }

  // One head of the paths [from, to) of a tile, at most V vectors of them.
  template <int V>
  void paths(const AdvanceBlock& b, int64_t series, int64_t h, int64_t from, int64_t to, const int64_t* begin,
             const int64_t* end) {
    const int64_t width = p.head_width, skip = h * width, old = end - begin, cells = old + b.new_count;
    const T scale = T(1.4426950408889634074 / __builtin_sqrt(double(width)));
    // A vector that would reach beyond the tile starts earlier; its lanes of other series are not stored.
    int64_t base[V];
    for (int v = 0; v < V; ++v) base[v] = std::min<int64_t>(from + v * w, tile - w);
    const T* const history_k = at(b.history_k) + series * p.history * channels + skip;
    const T* const history_v = at(b.history_v) + series * p.history * channels + skip;
    const T* const own_k = at(b.steps_k) + (number * p.step_room * channels + skip) * tile;
    const T* const own_v = at(b.steps_v) + (number * p.step_room * channels + skip) * tile;
    const T* const query = q + skip * tile;
    Vec<T> top[V], total[V] = {};
    for (int v = 0; v < V; ++v) top[v] = all<T>(T(-1e30));
    const auto keep = [&](int64_t m, const Vec<T>(&sum)[V]) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const Vec<T> score = sum[v] * scale;
        store(scores + (m * V + v) * w, score), top[v] = larger<T>(score, top[v]);
      }
    };
    for (int64_t m = 0; m < old; ++m) {
      const T* const key = history_k + begin[m] * channels;
      Vec<T> sum[V] = {};
      for (int64_t d = 0; d < width; ++d) {
        const Vec<T> x = all<T>(key[d]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[v] += x * load(query + d * tile + base[v]);
      }
      keep(m, sum);
    }
    for (int64_t m = 0; m < b.new_count; ++m) {
      const T* const key = own_k + b.new_cells[m] * channels * tile;
      Vec<T> sum[V] = {};
      for (int64_t d = 0; d < width; ++d)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[v] += load(key + d * tile + base[v]) * load(query + d * tile + base[v]);
      keep(old + m, sum);
    }
    for (int64_t m = 0; m < cells; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        T* const score = scores + (m * V + v) * w;
        const Vec<T> weight = exp2<T>(load(score) - top[v]);
        store(score, weight), total[v] += weight;
      }
    for (int v = 0; v < V; ++v) total[v] = T(1) / total[v];
    for (int64_t e = 0; e < width; ++e) {
      Vec<T> sum[V] = {};
      for (int64_t m = 0; m < old; ++m) {
        const Vec<T> x = all<T>(history_v[begin[m] * channels + e]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[v] += x * load(scores + (m * V + v) * w);
      }
      for (int64_t m = 0; m < b.new_count; ++m) {
        const T* const value = own_v + (b.new_cells[m] * channels + e) * tile;
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[v] += load(value + base[v]) * load(scores + ((old + m) * V + v) * w);
      }
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        T* const out = gathered + (skip + e) * tile + base[v];
        const Vec<T> lane = iota<T>(T(base[v]));
        store(out, (lane >= T(from + v * w)) & (lane < T(to)) ? sum[v] * total[v] : load(out));
      }
    }
  }

  // Raw parameters; the first may be a correction to a softmax-weighted mean of the observed lags and profiles.
  void head() {
    apply(other, p.parameters, p.output, p.output_bias, x, p.width);
    if (p.anchors > 0) {
      T* const mix = other + p.parameters * tile;
      apply(mix, p.anchors, p.mix, p.mix_bias, x, p.width);
      for (int64_t i = 0; i < columns; i += w) lean(mix + i, i);
    }
    T* const out = static_cast<T*>(p.out) + first * p.parameters;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < p.parameters; ++c) out[i * p.parameters + c] = other[c * tile + i];
  }

  void lean(const T* mix, int64_t i) {
    constexpr T to_base_2 = T(1.4426950408889634074);
    const auto seen = [&](int64_t a) {
      return p.seen_from < 0 ? all<T>(T(1)) : load(inputs + (p.seen_from + a) * tile + i);
    };
    Vec<T> top = all<T>(T(-1e30)), total{}, sum{};
    for (int64_t a = 0; a < p.anchors; ++a) {
      const Vec<T> score = (load(mix + a * tile) + never * (T(1) - seen(a))) * to_base_2;
      store(scores + a * w, score), top = larger<T>(score, top);
    }
    for (int64_t a = 0; a < p.anchors; ++a) {
      const Vec<T> weight = exp2<T>(load(scores + a * w) - top);
      total += weight, sum += weight * load(inputs + a * tile + i);
    }
    store(other + i, load(other + i) + sum / total);
  }
};

template <class T> void run_advance(const AdvanceProblem& p) {
  Pieces count;
  Advance<T>(p, count);
  const int64_t tiles = (p.series * p.paths + tile - 1) / tile;
  team(p.threads, count.used, [&](char* memory, int) {
    Pieces own{memory};
    Advance<T> work(p, own);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tiles; ++task) work.run(task);
  });
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
