// x -> channel-first results of causal convolutions, and their gradients: no window is copied, a product reads them where
// they lie. Channel-first, the windows of neighbouring positions are one row read from a later place; row-major, the
// window of one position is one piece of memory.
//
// Work is cut into spans of positions. A span packs its own part of x, so that spans need nothing of each other; gradients
// of weights are summed per thread, in a fixed order.
#pragma once
#include <algorithm>
#include <cstring>

#include "product.h"
#include "scratch.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int64_t span_most = 128;  // positions: x, packed, stays in the first cache

template <class T> struct Convolve {
  const ConvolveProblem& p;
  const int64_t before;  // positions before a span that its windows look back at
  int64_t per_span, spans;
  int64_t room;          // numbers of a packed row
  T *rows = nullptr;     // x channel-first: channel, position
  T *steps = nullptr;    // x row-major: position, channel
  T *grads = nullptr;    // gradients of all parts, channel-first, zeros after the end
  T *tail = nullptr;     // results of columns that are no whole pair of vectors; the gradient of x

  static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  Convolve(const ConvolveProblem& problem, Pieces& own, bool backward) : p(problem), before(p.kernel - 1) {
    const int64_t count = (p.length + span_most - 1) / span_most;
    per_span = round_up((p.length + count - 1) / count, pair<T>);
    spans = (p.length + per_span - 1) / per_span;
    room = round_up(per_span + before, pair<T>) + pair<T>;
    int64_t channels = 0, most = 0;
    for (int64_t i = 0; i < p.part_count; ++i) channels += p.parts[i].channels, most = std::max(most, p.parts[i].channels);
    rows = own.take<T>(p.width * room);
    if (backward) {
      // Columns that fill a pair of vectors are read too, and thrown away.
      steps = own.take<T>((per_span + before) * p.width + pair<T>);
      grads = own.take<T>(channels * room);
      tail = own.take<T>(p.width * per_span);
    } else {
      tail = own.take<T>(most * pair<T>);
    }
  }

  // Positions [from - before, to) of a batch row; those before its start are zeros.
  void pack(int64_t batch, int64_t from, int64_t to) {
    const int64_t start = p.starts == nullptr ? 0 : std::max<int64_t>(p.starts[batch], 0);
    const T* const x = static_cast<const T*>(p.x.data) + batch * p.x.batch;
    for (int64_t c = 0; c < p.width; ++c)
      for (int64_t i = 0; i < room; ++i) {
        const int64_t l = from - before + i;
        rows[c * room + i] = l >= start && l < to ? x[l * p.x.row + c * p.x.channel] : T(0);
      }
    if (steps == nullptr) return;
    const int64_t count = to - from + before;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < p.width; ++c) steps[i * p.width + c] = rows[c * room + i];
  }

  void forward(int64_t task) {
    const int64_t batch = task / spans, from = task % spans * per_span;
    const int64_t columns = std::min(per_span, p.length - from), whole = columns / pair<T> * pair<T>;
    pack(batch, from, from + columns);
    for (int64_t i = 0; i < p.part_count; ++i) {
      const ConvolvePart& part = p.parts[i];
      T* const out = static_cast<T*>(part.out) + batch * part.channels * p.length + from;
      const T* const bias = static_cast<const T*>(part.bias);
      for (int64_t e = 0; e < part.channels; ++e) {
        for (int64_t l = 0; l < columns; ++l) out[e * p.length + l] = bias[e];
        for (int64_t l = 0; l < pair<T>; ++l) tail[e * pair<T> + l] = bias[e];
      }
      const Factors<T> weight{static_cast<const T*>(part.weight), 1, p.width * part.taps};
      const T* const first = rows + p.kernel - part.taps;
      multiply(out, p.length, part.channels, whole, weight, Terms<T>{first, p.width, room, part.taps});
      if (whole == columns) continue;
      multiply(tail, pair<T>, part.channels, columns - whole, weight, Terms<T>{first + whole, p.width, room, part.taps});
      for (int64_t e = 0; e < part.channels; ++e)
        for (int64_t l = whole; l < columns; ++l) out[e * p.length + l] = tail[e * pair<T> + l - whole];
    }
  }

  // `sums`: gradients of weights and biases of this thread; a part has channels x steps of its windows, then channels.
  void backward(int64_t task, T* sums) {
    const int64_t batch = task / spans, from = task % spans * per_span;
    const int64_t columns = std::min(per_span, p.length - from);
    const int64_t start = p.starts == nullptr ? 0 : std::max<int64_t>(p.starts[batch], 0);
    pack(batch, from, from + columns);
    std::memset(tail, 0, p.width * per_span * sizeof(T));
    T* own = grads;
    for (int64_t i = 0; i < p.part_count; ++i) {
      const ConvolvePart& part = p.parts[i];
      const int64_t wide = part.taps * p.width, wide_room = round_up(wide, sums_align);
      pack_gradient(part, batch, from, own);
      // Position l is read by the windows that end at l, l + 1, ...: the convolution backwards, with taps in turn.
      multiply(tail, per_span, p.width, columns, Factors<T>{static_cast<const T*>(part.turned), 1, part.channels * part.taps},
               Terms<T>{own, part.channels, room, part.taps});
      const T* const window = steps + (p.kernel - part.taps) * p.width;
      multiply(sums, wide_room, part.channels, wide, Factors<T>{own, 1, room}, Terms<T>{window, columns, p.width, 1});
      sums += part.channels * wide_room;
      for (int64_t e = 0; e < part.channels; ++e) {
        Vec<T> total{};
        int64_t l = 0;
        for (; l + lanes<T> <= columns; l += lanes<T>) total += load(own + e * room + l);
        for (; l < columns; ++l) sums[e] += own[e * room + l];
        for (int lane = 0; lane < lanes<T>; ++lane) sums[e] += total[lane];
      }
      sums += round_up(part.channels, sums_align);
      own += part.channels * room;
    }
    T* const grad_x = static_cast<T*>(p.grad_x) + (batch * p.length + from) * p.width;
    for (int64_t l = 0; l < columns; ++l)
      for (int64_t c = 0; c < p.width; ++c) grad_x[l * p.width + c] = from + l < start ? T(0) : tail[c * per_span + l];
  }

  // Positions from `from` on, a window beyond the span too; zeros after the end.
  void pack_gradient(const ConvolvePart& part, int64_t batch, int64_t from, T* into) {
    const int64_t count = std::min(room, p.length - from);
    const T* const source = static_cast<const T*>(part.grad.data) + batch * part.grad.batch + from * part.grad.row;
    for (int64_t e = 0; e < part.channels; ++e) {
      const T* const in = source + e * part.grad.channel;
      T* const row = into + e * room;
      if (part.grad.row == 1)
        std::memcpy(row, in, count * sizeof(T));
      else
        for (int64_t l = 0; l < count; ++l) row[l] = in[l * part.grad.row];
      std::memset(row + count, 0, (room - count) * sizeof(T));
    }
  }
};

template <class T> void run_convolve(const ConvolveProblem& p, bool backward) {
  Pieces count;
  const int64_t tasks = p.batch * Convolve<T>(p, count, backward).spans;
  team(p.threads, count.used, [&](char* memory, int thread) {
    Pieces own{memory};
    Convolve<T> work(p, own, backward);
    T* const sums = backward ? static_cast<T*>(p.sums) + thread * p.sums_size : nullptr;
    // A fixed share for each thread: the same sums in the same order, run after run.
#pragma omp for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) backward ? work.backward(task, sums) : work.forward(task);
  });
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
