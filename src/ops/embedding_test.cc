#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using testing::Batch;
using testing::documents;
using testing::Matrix;
using testing::OpRunner;
using testing::random_matrix;
using testing::Rho;

constexpr int64_t kVocabulary = 517;

// Many duplicates, the first and the last id among them.
Batch batch_of(int64_t tokens) {
  Batch batch = documents({tokens});
  const CounterRng rng(5, 6);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto draw = static_cast<int32_t>(std::abs(rng.normal(static_cast<uint64_t>(t))) * 1000);
    batch.ids[static_cast<size_t>(t)] = draw % 3 == 0   ? 0
                                        : draw % 3 == 1 ? static_cast<int32_t>(kVocabulary - 1)
                                                        : draw % 517;
  }
  return batch;
}

TEST(Embedding, GathersRowsExactly) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int64_t tokens : {1, 3, 257}) {
      const Embedding op(kVocabulary, 72);
      const Batch batch = batch_of(tokens);
      const Matrix w = random_matrix(kVocabulary, 72, 1, type);
      OpRunner runner(op, type, batch, {.threads = 2, .row_gap = 3});
      const Matrix out = runner.forward({}, {w})[0];
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = 0; c < 72; ++c) ASSERT_EQ(out.at(t, c), w.at(batch.ids[static_cast<size_t>(t)], c));
      }
    }
  }
}

TEST(Embedding, AddsDuplicatesAndZeroesTheRest) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int64_t tokens : {1, 3, 257}) {
      for (const bool add : {false, true}) {
        const Embedding op(kVocabulary, 72);
        const Batch batch = batch_of(tokens);
        const Matrix w = random_matrix(kVocabulary, 72, 1, type), dy = random_matrix(tokens, 72, 2, type);
        const Matrix start = random_matrix(kVocabulary, 72, 3, DType::kF32);
        Matrix expected = add ? start : Matrix(kVocabulary, 72);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t c = 0; c < 72; ++c) expected.at(batch.ids[static_cast<size_t>(t)], c) += dy.at(t, c);
        }
        testing::Accumulate accumulate;
        if (add) accumulate.param = {{0, start}};
        OpRunner runner(op, type, batch, {.threads = 3});
        const Matrix got = runner.backward({}, {w}, {}, {dy}, accumulate).param[0];
        EXPECT_THAT(got.v, Rho(expected.v, testing::kFp32Op));
        // Rows nobody asked for are exact: zero, or what stood there.
        for (int64_t id = 1; id + 1 < kVocabulary; ++id) {
          if (std::find(batch.ids.begin(), batch.ids.end(), static_cast<int32_t>(id)) != batch.ids.end()) continue;
          for (int64_t c = 0; c < 72; ++c) ASSERT_EQ(got.at(id, c), expected.at(id, c));
        }
      }
    }
  }
}

// One thread adds all rows of an id, in token order: the thread count is not seen.
TEST(Embedding, SameBitsForAnyThreadCount) {
  const Embedding op(kVocabulary, 72);
  const Batch batch = batch_of(257);
  const Matrix w = random_matrix(kVocabulary, 72, 1, DType::kBF16), dy = random_matrix(257, 72, 2, DType::kBF16);
  OpRunner one(op, DType::kBF16, batch, {.threads = 1});
  const Matrix expected = one.backward({}, {w}, {}, {dy}).param[0];
  for (const int threads : {2, 3, 8}) {
    OpRunner runner(op, DType::kBF16, batch, {.threads = threads});
    EXPECT_EQ(runner.backward({}, {w}, {}, {dy}).param[0].v, expected.v) << threads;
  }
}

TEST(Embedding, OneIdForAllTokens) {
  const Embedding op(4, 16);
  Batch batch = documents({100});
  std::fill(batch.ids.begin(), batch.ids.end(), 2);
  OpRunner runner(op, DType::kF32, batch, {.threads = 4});
  const Matrix got = runner.backward({}, {Matrix(4, 16)}, {}, {Matrix(100, 16, 1.0)}).param[0];
  for (int64_t id = 0; id < 4; ++id) {
    for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(got.at(id, c), id == 2 ? 100 : 0);
  }
}

}  // namespace
}  // namespace lazytrain::ops
