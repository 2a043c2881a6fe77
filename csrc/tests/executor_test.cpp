// The executor without Python, for the sanitizers: plans of every instruction, run for several
// sizes and on several threads, compared with plain loops. Ends with 0 where all is right.

#include "../cpu/executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace shapescript;

int g_failures = 0;

void Expect(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++g_failures;
}

bool Near(float x, float y) { return std::fabs(x - y) <= 1e-4f * (1.0f + std::fabs(y)); }

std::int32_t KernelNumber(const KernelTable& table, const char* name) {
  for (std::int32_t i = 0; i < table.tile_count; ++i) {
    if (std::strcmp(table.tiles[i].name, name) == 0) return i;
  }
  std::printf("there is no kernel %s\n", name);
  std::exit(2);
}

// Sizes of the table: 0 and 1 are themselves; then rows, columns, their product, others.
enum : Ref { kZero, kOne, kRows, kColumns, kAll, kOthers, kProductSize };

std::vector<std::int64_t> Sizes(std::int64_t rows, std::int64_t columns, std::int64_t others) {
  return {0, 1, rows, columns, rows * columns, others, rows * others};
}

// softmax(gelu(x + bias)) with the sums of its rows and columns, then a product, a lookup and its
// converse.
std::shared_ptr<Plan> MakePlan(const KernelTable& kernels) {
  auto plan = std::make_shared<Plan>();
  const auto buffer = [&](Element element, Place place, Ref length) {
    plan->buffers.push_back({element, place, length});
    return static_cast<std::int32_t>(plan->buffers.size()) - 1;
  };
  const auto x = buffer(Element::kF32, Place::kInput, kAll),
             bias = buffer(Element::kF32, Place::kInput, kColumns);
  const auto w = buffer(Element::kF32, Place::kInput, kAll),
             index = buffer(Element::kI64, Place::kInput, kRows);
  const auto y = buffer(Element::kF32, Place::kOutput, kAll),
             sums = buffer(Element::kF32, Place::kOutput, kRows);
  const auto columns = buffer(Element::kF32, Place::kOutput, kColumns);
  const auto product = buffer(Element::kF32, Place::kOutput, kProductSize);
  const auto picked = buffer(Element::kF32, Place::kOutput, kAll),
             added = buffer(Element::kF32, Place::kOutput, kAll);
  const auto turned = buffer(Element::kF32, Place::kRun, kAll),
             drawn = buffer(Element::kF32, Place::kRun, kAll);
  const auto call = buffer(Element::kI64, Place::kInput, kOne),
             filled = buffer(Element::kF32, Place::kFixed, kAll);
  const auto noise = buffer(Element::kF32, Place::kOutput, kAll);
  plan->inputs = {x, bias, w, index};
  plan->outputs = {y, sums, columns, product, picked, added, noise};
  plan->call = call;

  Elementwise tiles;
  tiles.outer = {kRows};
  tiles.inner = {kColumns};
  tiles.whole = true;
  tiles.registers = {{Element::kF32, Extent::kFull},  {Element::kF32, Extent::kColumn},
                     {Element::kF32, Extent::kFull},  {Element::kF32, Extent::kFull},
                     {Element::kF32, Extent::kFull},  {Element::kF32, Extent::kRow},
                     {Element::kF32, Extent::kColumn}};
  tiles.inputs = {{0, {x, kZero, {kColumns, kOne}}}, {1, {bias, kZero, {kZero, kOne}}}};
  tiles.ops = {{KernelNumber(kernels, "add.f32"), {2}, {0, 1}},
               {KernelNumber(kernels, "gelu.f32"), {3}, {2}},
               {KernelNumber(kernels, "softmax.f32"), {4}, {3}},
               {KernelNumber(kernels, "sum.f32"), {5}, {4}},
               {KernelNumber(kernels, "column_sum.f32"), {6}, {4}}};
  tiles.outputs = {{4, y, true}, {5, sums, false}, {6, columns, false}};
  const auto put = [&](Work work, bool fixed = false) {
    plan->instructions.push_back(
        {static_cast<std::int32_t>(plan->instructions.size()), fixed, std::move(work)});
  };
  const std::int64_t half = 0x3f000000;  // 0.5f
  put(Fill{filled, -1, half}, true);
  put(std::move(tiles));
  put(Move{{kColumns, kRows}, {w, kZero, {kOne, kColumns}}, {turned, kZero, {kRows, kOne}}});
  put(Product{Element::kF32,
              {},
              kRows,
              kOthers,
              kColumns,
              {y, kZero, {kColumns, kOne}},
              {turned, kZero, {kRows, kOne}},
              product});
  put(Check{CheckKind::kRange, {kRows}, {index, kZero, {kOne}}, kRows});
  put(Gather{{kRows, kColumns},
             {w, kZero, {kZero, kOne}},
             {index, kZero, {kOne, kZero}},
             kColumns,
             kRows,
             picked});
  put(Scatter{{kRows, kColumns},
              {w, kZero, {kColumns, kOne}},
              {index, kZero, {kOne, kZero}},
              {added, kZero, {kZero, kOne}},
              kColumns,
              kRows});
  put(Random{Draw::kUniform, drawn, call, 3, kRows, kColumns, -1});
  Elementwise last;
  last.inner = {kAll};
  last.whole = false;
  last.registers = {{Element::kF32, Extent::kFull},
                    {Element::kF32, Extent::kFull},
                    {Element::kF32, Extent::kFull}};
  last.inputs = {{0, {drawn, kZero, {kOne}}}, {1, {filled, kZero, {kOne}}}};
  last.ops = {{KernelNumber(kernels, "multiply.f32"), {2}, {0, 1}}};
  last.outputs = {{2, noise, false}};
  put(std::move(last));
  put(Check{CheckKind::kFinite, {kAll}, {noise, kZero, {kOne}}, kOne});
  return plan;
}

template <class T>
std::byte* Bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<float> RunOnce(const KernelTable& kernels, std::int64_t rows, std::int64_t columns,
                           int thread_count) {
  const std::int64_t others = std::min<std::int64_t>(rows, 60);
  const std::shared_ptr<Plan> plan = MakePlan(kernels);
  Threads threads(thread_count);
  Bound bound(plan, Sizes(rows, columns, others), kernels, thread_count);
  const std::function<bool(int)> no_call = [](int) { return false; };
  Interrupts never;
  Expect(bound.Prepare(threads, no_call, never) == -1, "what follows from the sizes is done");
  const auto all = static_cast<std::size_t>(rows * columns);
  std::vector<float> x(all), bias(columns), w(all), y(all), sums(rows), sums_down(columns),
      picked(all), added(all), noise(all), product(static_cast<std::size_t>(rows * others));
  std::vector<std::int64_t> index(rows);
  for (std::size_t i = 0; i < all; ++i) {
    x[i] = std::sin(static_cast<float>(i));
    w[i] = std::cos(static_cast<float>(i));
  }
  for (std::int64_t j = 0; j < columns; ++j) bias[j] = 0.01f * static_cast<float>(j);
  for (std::int64_t i = 0; i < rows; ++i) index[i] = (i * 7) % rows;
  const std::vector<std::byte*> inputs = {Bytes(x), Bytes(bias), Bytes(w), Bytes(index)};
  const std::vector<std::byte*> outputs = {Bytes(y),       Bytes(sums),   Bytes(sums_down),
                                           Bytes(product), Bytes(picked), Bytes(added),
                                           Bytes(noise)};
  for (int round = 0; round < 3; ++round) {
    Interrupts none;
    Expect(bound.Run(inputs, outputs, {1, round, 0}, threads, no_call, none) == -1,
           "the run ends well");
  }
  std::vector<float> down(columns, 0.0f);
  for (std::int64_t i = 0; i < rows; ++i) {
    float total = 0.0f;
    std::vector<float> row(columns);
    for (std::int64_t j = 0; j < columns; ++j) {
      const float at = x[i * columns + j] + bias[j];
      row[j] = std::exp(at * 0.5f * (1.0f + std::erf(at * 0.70710678f)));
      total += row[j];
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      Expect(Near(y[i * columns + j], row[j] / total), "softmax of gelu");
      down[j] += row[j] / total;
      Expect(picked[i * columns + j] == w[index[i] * columns + j], "a lookup");
      Expect(noise[i * columns + j] >= 0.0f && noise[i * columns + j] < 0.5f, "a draw");
    }
    Expect(Near(sums[i], 1.0f), "the sum of a row");
    for (std::int64_t k = 0; k < others; ++k) {
      float dot = 0.0f;
      for (std::int64_t j = 0; j < columns; ++j) dot += y[i * columns + j] * w[k * columns + j];
      Expect(Near(product[i * others + k], dot), "a product");
    }
  }
  for (std::int64_t j = 0; j < columns; ++j)
    Expect(Near(sums_down[j], down[j]), "the sum of a column");
  std::vector<float> wanted(all, 0.0f);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) wanted[index[i] * columns + j] += w[i * columns + j];
  }
  for (std::size_t i = 0; i < all; ++i)
    Expect(Near(added[i], wanted[i]), "the converse of a lookup");
  index[0] = rows;
  Interrupts none;
  Expect(bound.Run(inputs, outputs, {}, threads, no_call, none) == 4,
         "an index out of range is found");
  return y;
}

}  // namespace

int main() {
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    const KernelTable* kernels = KernelsNamed(name);
    if (kernels == nullptr) continue;
    for (const auto& [rows, columns] :
         {std::pair{1, 1}, {3, 5}, {64, 10}, {17, 300}, {300, 257}, {2, 3000}}) {
      const std::vector<float> alone = RunOnce(*kernels, rows, columns, 1);
      Expect(alone == RunOnce(*kernels, rows, columns, 3), "threads change nothing");
      Expect(alone == RunOnce(BaselineKernels(), rows, columns, 1),
             "every instruction set has the same bits");
    }
  }
  if (g_failures == 0) std::printf("all right\n");
  return g_failures == 0 ? 0 : 1;
}
