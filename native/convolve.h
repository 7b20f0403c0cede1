// x -> channel-first results of causal convolutions, and their gradients. No window is copied: channel-first, the
// windows of neighbouring positions are one row read at shifted offsets; row-major, the window of one position is
// contiguous.
//
// Work is divided into spans of positions, each of which packs its own part of x, normalized if there is a norm, and
// depends on no other. A task takes several spans through one block of channels after the other, so that weights and
// their gradients, which exceed the L2 cache, are loaded once for all of them. Gradients of weights are summed per
// thread, in a fixed order.
#pragma once
#include <algorithm>
#include <cstring>

#include "norm.h"
#include "product.h"
#include "scratch.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

constexpr int64_t span_most = 192;     // positions: packed x stays in the L1 cache
constexpr int64_t spans_of_task = 4;
constexpr int64_t channel_block = 48;

template <class T> struct Convolve {
  // Positions [from, from + columns) of a batch row, packed.
  struct Span {
    int64_t batch, from, columns, start;  // start: first position of the batch row after its padding
    T* rows;   // x as (channel, position), starting `before` positions earlier
    T* steps;  // x as (position, channel)
    T* sum;    // gradient of x, channel-first
    T* raw;    // x before its norm, as rows
    T *mean, *scale;  // of each position of raw
  };
  const ConvolveProblem& p;
  const int64_t before;  // positions before a span that its windows include
  int64_t per_span, spans_of_row, room;
  Span spans[spans_of_task];
  T* block = nullptr;  // results of the columns after the last pair of vectors; or gradients of a block of channels

  static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  Convolve(const ConvolveProblem& problem, Pieces& own, bool backward) : p(problem), before(p.kernel - 1) {
    const int64_t count = (p.length + span_most - 1) / span_most;
    per_span = round_up((p.length + count - 1) / count, pair<T>);
    spans_of_row = (p.length + per_span - 1) / per_span;
    room = round_up(per_span + before, pair<T>) + pair<T>;
    for (Span& span : spans) {
      span.rows = own.take<T>(p.width * room);
      // Columns that pad the last pair of vectors are read and discarded.
      span.steps = backward ? own.take<T>((per_span + before) * p.width + pair<T>) : nullptr;
      span.sum = backward ? own.take<T>(p.width * per_span) : nullptr;
      const bool norms = p.gain != nullptr;
      span.raw = norms && backward ? own.take<T>(p.width * room) : nullptr;
      span.mean = norms ? own.take<T>(room) : nullptr, span.scale = norms ? own.take<T>(room) : nullptr;
    }
    block = own.take<T>(channel_block * (backward ? room : pair<T>));
  }

  int64_t tasks() const { return (p.batch * spans_of_row + spans_of_task - 1) / spans_of_task; }

  // Packs the spans of a task and returns their number.
  int64_t pack(int64_t task) {
    const int64_t first = task * spans_of_task, count = std::min(spans_of_task, p.batch * spans_of_row - first);
    for (int64_t n = 0; n < count; ++n) {
      Span& span = spans[n];
      span.batch = (first + n) / spans_of_row, span.from = (first + n) % spans_of_row * per_span;
      span.columns = std::min(per_span, p.length - span.from);
      span.start = p.starts == nullptr ? 0 : std::max<int64_t>(p.starts[span.batch], 0);
      pack(span);
    }
    return count;
  }

  // Packs one span, with zeros before `start`, where the padding of its batch row ends, and after its last position.
  void pack(const Span& span) {
    const T* const x = static_cast<const T*>(p.x.data) + span.batch * p.x.batch;
    const int64_t count = span.columns + before, origin = span.from - before;
    const int64_t first = std::min(std::max<int64_t>(span.start - origin, 0), count);
    if (p.x.channel == 1)
      turn(x + (origin + first) * p.x.row, p.x.row, span.rows + first, room, count - first, p.width);
    for (int64_t c = 0; c < p.width; ++c) {
      T* const row = span.rows + c * room;
      for (int64_t i = 0; i < first; ++i) row[i] = 0;
      if (p.x.channel != 1)
        for (int64_t i = first; i < count; ++i) row[i] = x[(origin + i) * p.x.row + c * p.x.channel];
      for (int64_t i = count; i < room; ++i) row[i] = 0;
    }
    if (p.gain != nullptr) norm(span, first, count);
    if (span.steps == nullptr) return;
    turn(span.rows, room, span.steps, p.width, p.width, count);
    std::memset(span.sum, 0, p.width * per_span * sizeof(T));
  }

  // Normalizes positions [first, count) of the packed rows over channels; the others stay zeros.
  void norm(const Span& span, int64_t first, int64_t count) {
    const T *const gain = static_cast<const T*>(p.gain), *const shift = static_cast<const T*>(p.shift);
    if (span.raw != nullptr) std::memcpy(span.raw, span.rows, p.width * room * sizeof(T));
    for (int64_t i = 0; i < room; i += lanes<T>) {
      const ColumnNorm<T> normal(span.rows + i, room, p.width, p.epsilon);
      store(span.mean + i, normal.mean), store(span.scale + i, normal.scale);
      const Vec<T> place = iota<T>(T(i));
      const Mask<T> real = (place >= all<T>(T(first))) & (place < all<T>(T(count)));
      for (int64_t c = 0; c < p.width; ++c) {
        T* const at = span.rows + c * room + i;
        store(at, real ? normal(load(at), gain[c], shift[c]) : Vec<T>{});
      }
    }
  }

  // Turns the gradient of the normalized x, in `sum`, into that of x; adds those of gain and shift to their sums.
  void norm_backward(const Span& span, T* gain_sums, T* shift_sums) {
    const T* const gain = static_cast<const T*>(p.gain);
    const int64_t padded = std::min(std::max<int64_t>(span.start - span.from, 0), span.columns);
    for (int64_t c = 0; c < p.width; ++c) {
      std::memset(span.sum + c * per_span, 0, padded * sizeof(T));
      for (int64_t l = span.columns; l < per_span; ++l) span.sum[c * per_span + l] = 0;
      Vec<T> gains{}, shifts{};
      for (int64_t l = 0; l < span.columns; l += lanes<T>) {
        const Vec<T> g = load(span.sum + c * per_span + l), unit = unit_of(span, c, l);
        gains += g * unit, shifts += g;
      }
      for (int lane = 0; lane < lanes<T>; ++lane) gain_sums[c] += gains[lane], shift_sums[c] += shifts[lane];
    }
    for (int64_t l = 0; l < span.columns; l += lanes<T>) {
      Vec<T> sum{}, along{};
      for (int64_t c = 0; c < p.width; ++c) {
        const Vec<T> g = load(span.sum + c * per_span + l) * gain[c];
        sum += g, along += g * unit_of(span, c, l);
      }
      sum /= T(p.width), along /= T(p.width);
      for (int64_t c = 0; c < p.width; ++c) {
        T* const at = span.sum + c * per_span + l;
        store(at, load(span.scale + before + l) * (load(at) * gain[c] - sum - unit_of(span, c, l) * along));
      }
    }
  }

  // Normalized x, before gain and shift, at the positions of the span from l on.
  LOGSPARSE_INLINE Vec<T> unit_of(const Span& span, int64_t c, int64_t l) const {
    return (load(span.raw + c * room + before + l) - load(span.mean + before + l)) * load(span.scale + before + l);
  }

  void forward(int64_t task) {
    const int64_t count = pack(task);
    for (int64_t i = 0; i < p.part_count; ++i)
      for (int64_t e = 0; e < p.parts[i].channels; e += channel_block)
        for (int64_t n = 0; n < count; ++n) forward(p.parts[i], e, spans[n]);
  }

  void forward(const ConvolvePart& part, int64_t e, const Span& span) {
    const int64_t channels = std::min(channel_block, part.channels - e), whole = span.columns / pair<T> * pair<T>;
    T* const out = static_cast<T*>(part.out) + (span.batch * part.channels + e) * p.length + span.from;
    const T* const bias = static_cast<const T*>(part.bias) + e;
    const Factors<T> weight{static_cast<const T*>(part.weight) + e * p.width * part.taps, 1, p.width * part.taps};
    const T* const first = span.rows + p.kernel - part.taps;
    multiply(out, p.length, channels, whole, weight, Terms<T>{first, p.width, room, part.taps}, bias);
    if (whole == span.columns) return;
    multiply(block, pair<T>, channels, span.columns - whole, weight, Terms<T>{first + whole, p.width, room, part.taps},
             bias);
    for (int64_t r = 0; r < channels; ++r)
      for (int64_t l = whole; l < span.columns; ++l) out[r * p.length + l] = block[r * pair<T> + l - whole];
  }

  // `sums`: gradients of weights and biases of this thread, laid out as in ConvolveProblem.
  void backward(int64_t task, T* sums) {
    const int64_t count = pack(task);
    for (int64_t i = 0; i < p.part_count; ++i) {
      const ConvolvePart& part = p.parts[i];
      T* const biases = sums + part.channels * round_up(part.taps * p.width, sums_align);
      for (int64_t e = 0; e < part.channels; e += channel_block)
        for (int64_t n = 0; n < count; ++n) backward(part, e, spans[n], sums, biases);
      sums = biases + round_up(part.channels, sums_align);
    }
    for (int64_t n = 0; n < count; ++n) {
      const Span& span = spans[n];
      if (p.gain != nullptr) norm_backward(span, sums, sums + round_up(p.width, sums_align));
      T* const grad_x = static_cast<T*>(p.grad_x) + (span.batch * p.length + span.from) * p.width;
      turn(span.sum, per_span, grad_x, p.width, p.width, span.columns);
      const int64_t padded = std::min(std::max<int64_t>(span.start - span.from, 0), span.columns);
      std::memset(grad_x, 0, padded * p.width * sizeof(T));
    }
  }

  void backward(const ConvolvePart& part, int64_t e, const Span& span, T* weights, T* biases) {
    const int64_t channels = std::min(channel_block, part.channels - e), wide = part.taps * p.width;
    pack_gradient(part, e, channels, span);
    // Position l is read by the windows that end at l, l + 1, ...: a convolution with reversed taps.
    multiply(span.sum, per_span, p.width, span.columns,
             Factors<T>{static_cast<const T*>(part.turned) + e * part.taps, 1, part.channels * part.taps},
             Terms<T>{block, channels, room, part.taps});
    const T* const window = span.steps + (p.kernel - part.taps) * p.width;
    multiply(weights + e * round_up(wide, sums_align), round_up(wide, sums_align), channels, wide,
             Factors<T>{block, 1, room}, Terms<T>{window, span.columns, p.width, 1});
    for (int64_t r = 0; r < channels; ++r) {
      Vec<T> total{};
      int64_t l = 0;
      for (; l + lanes<T> <= span.columns; l += lanes<T>) total += load(block + r * room + l);
      for (; l < span.columns; ++l) biases[e + r] += block[r * room + l];
      for (int lane = 0; lane < lanes<T>; ++lane) biases[e + r] += total[lane];
    }
  }

  // Positions from the first of the span to a window beyond its last; zeros after the end of the batch row.
  void pack_gradient(const ConvolvePart& part, int64_t e, int64_t channels, const Span& span) {
    const int64_t count = std::min(room, p.length - span.from);
    const View& grad = part.grad;
    const T* const source = static_cast<const T*>(grad.data) + span.batch * grad.batch + span.from * grad.row;
    for (int64_t r = 0; r < channels; ++r) {
      const T* const in = source + (e + r) * grad.channel;
      T* const row = block + r * room;
      if (grad.row == 1)
        std::memcpy(row, in, count * sizeof(T));
      else
        for (int64_t l = 0; l < count; ++l) row[l] = in[l * grad.row];
      std::memset(row + count, 0, (room - count) * sizeof(T));
    }
  }
};

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
