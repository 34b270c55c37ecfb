#include "train/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace lazytrain::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class RunConfigTest : public testing::Test {
 protected:
  RunConfigTest() {
    folder_ = std::filesystem::temp_directory_path() / ("run_config_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "data.jsonl") << "{}\n";
  }
  ~RunConfigTest() override { std::filesystem::remove_all(folder_); }

  std::string base() const {
    return "model: m\noutput: o\ndata:\n  train: " + (folder_ / "data.jsonl").string() + "\n";
  }
  RunConfig load(const std::string& yaml, const std::vector<std::string>& overrides = {}) const {
    std::ofstream(folder_ / "run.yaml") << yaml;
    return load_run_config(folder_ / "run.yaml", overrides);
  }
  std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) const {
    try {
      load(yaml, overrides);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

TEST_F(RunConfigTest, ReadsNestedAndDottedKeysAndOverrides) {
  const RunConfig config = load(base() + "optimizer: {lr: 3e-4, betas: [0.8, 0.95]}\nsave.every: 7\n",
                                {"optimizer.lr=5e-4", "host.memory=20GiB", "optimizer.betas=0.9,0.99"});
  EXPECT_EQ(config.optimizer.schedule.lr, 5e-4);
  EXPECT_EQ(config.optimizer.adamw.beta1, 0.9);
  EXPECT_EQ(config.optimizer.adamw.beta2, 0.99);
  EXPECT_EQ(config.save_every, 7);
  EXPECT_EQ(config.host_memory, int64_t{20} << 30);
  EXPECT_EQ(config.micro_batch, config.batch);
}

TEST_F(RunConfigTest, ResolvedYamlReadsBackToTheSameConfiguration) {
  const RunConfig config = load(base() +
                                "compute: fp32\nseq: 77\nbatch: 6\nmicro_batch: 2\ndata.pack: false\n"
                                "device.memory: 3GB\noptimizer: {schedule: linear, warmup: 5, lr: 1.25e-5}\n");
  const std::string yaml = to_yaml(config);
  const RunConfig again = load(yaml);
  EXPECT_EQ(to_yaml(again), yaml);
  EXPECT_EQ(numeric_fingerprint(again), numeric_fingerprint(config));
}

TEST_F(RunConfigTest, TheFingerprintFollowsNumbersOnly) {
  const std::string before = numeric_fingerprint(load(base()));
  EXPECT_EQ(numeric_fingerprint(load(base(), {"save.every=3", "log.every=9", "plan.policy=megatrain"})), before);
  EXPECT_NE(numeric_fingerprint(load(base(), {"optimizer.lr=1e-3"})), before);
  EXPECT_NE(numeric_fingerprint(load(base(), {"device.threads=1"})), before);
}

TEST_F(RunConfigTest, ErrorsNameFileLineAndKey) {
  EXPECT_THAT(error_of(base() + "optimizer:\n  learning_rte: 1\n"),
              HasSubstr("line 6: unknown key 'optimizer.learning_rte'"));
  EXPECT_THAT(error_of(base() + "opitmizer.lr: 1\n"), HasSubstr("did you mean 'optimizer.lr'?"));
  EXPECT_THAT(error_of(base() + "stpes:\n"), HasSubstr("unknown key 'stpes', did you mean 'steps'?"));
  EXPECT_THAT(error_of(base() + "batch: 0\n"), HasSubstr("batch: '0' is not a whole number from 1"));
  EXPECT_THAT(error_of(base() + "seq: 12x\n"), HasSubstr("'12x'"));
  EXPECT_THAT(error_of(base() + "batch: 2\nmicro_batch: 3\n"), HasSubstr("micro_batch: 3 is more than batch, 2"));
  EXPECT_THAT(error_of(base() + "batch: 2\nbatch: 3\n"), HasSubstr("twice"));
  EXPECT_THAT(error_of(base() + "compute: fp16\n"), HasSubstr("one of bf16, fp32"));
  EXPECT_THAT(error_of(base() + "device.memory: -1GB\n"), HasSubstr("device.memory"));
  EXPECT_THAT(error_of(base() + "disk.memory: 1GB\n"), HasSubstr("disk.path is not"));
  EXPECT_THAT(error_of(base() + "device.profile: a\ndevice.like: b\n"), HasSubstr("set one of them"));
  EXPECT_THAT(error_of(base() + "plan.solver: gurobi\n"), HasSubstr("one of auto, highs"));
  EXPECT_THAT(error_of("a: [\n"), HasSubstr("not valid YAML"));
  // Lists that have no end.
  EXPECT_THAT(error_of(base() + "a: &x [*x]\n"), HasSubstr("something else than plain values"));
  EXPECT_THAT(error_of(base() + "optimizer: {betas: &x [*x, 0.9]}\n"), HasSubstr("something else than plain values"));
  EXPECT_THAT(error_of(base() + "optimizer: &x {betas: *x}\n"), HasSubstr("betas"));
  EXPECT_THAT(error_of("output: o\n"), HasSubstr("model is not set"));
  EXPECT_THAT(error_of(base(), {"steps"}), HasSubstr("key=value"));
  EXPECT_THAT(error_of("model: m\noutput: o\ndata.train: nowhere.jsonl\n"),
              HasSubstr("there is no file nowhere.jsonl"));
}

TEST_F(RunConfigTest, OneDocumentAFile) {
  EXPECT_EQ(load("---\n" + base() + "steps: 3\n---\n").steps, 3);
  EXPECT_THAT(error_of(base() + "---\nsteps: 3\n"), AllOf(HasSubstr("line 6"), HasSubstr("second YAML document")));
}

TEST_F(RunConfigTest, EvaluatingNothingIsRefused) {
  EXPECT_THAT(error_of(base(), {"eval.every=5"}), AllOf(HasSubstr("eval.every: 5"), HasSubstr("data.eval")));
  EXPECT_EQ(load(base(), {"eval.every=5", "data.eval=" + (folder_ / "data.jsonl").string()}).eval_every, 5);
}

TEST_F(RunConfigTest, SectionsAreKnownAsSuch) {
  EXPECT_EQ(load(base() + "optimizer:\nsave: {}\nsteps: 3\n").steps, 3);
  EXPECT_THAT(error_of(base() + "optimiser:\n"), HasSubstr("unknown key 'optimiser'"));
  EXPECT_THAT(error_of(base() + "optimizer: adamw\n"),
              AllOf(HasSubstr("'optimizer' is a section: its keys are optimizer.state, optimizer.lr")));
  EXPECT_THAT(error_of(base(), {"device=cpu"}), HasSubstr("'device' is a section: its keys are device.kind"));
  EXPECT_THAT(error_of(base() + "save: [1]\n"), HasSubstr("'save' is a section"));
  EXPECT_THAT(error_of(base() + "seq: {length: 5}\n"), HasSubstr("'seq' takes a plain value"));
}

TEST_F(RunConfigTest, KeysOfOtherTrainersLeadToOurs) {
  const auto suggested = [&](const std::string& name) { return error_of(base(), {name + "=1"}); };
  for (const auto& [theirs, ours] : {std::pair{"learning_rate", "optimizer.lr"},
                                     {"lr", "optimizer.lr"},
                                     {"training.learning-rate", "optimizer.lr"},
                                     {"train.seed", "seed"},
                                     {"num_train_epochs", "epochs"},
                                     {"max_steps", "steps"},
                                     {"batch_size", "batch"},
                                     {"warmup_ratio", "optimizer.warmup"},
                                     {"save_steps", "save.every"},
                                     {"output_dir", "output"}}) {
    EXPECT_THAT(suggested(theirs), HasSubstr(std::string("did you mean '") + ours + "'?")) << theirs;
  }
  EXPECT_THAT(suggested("frobnicate_everything"), Not(HasSubstr("did you mean")));
}

TEST_F(RunConfigTest, LongTextOfAFileIsCutInMessages) {
  const std::string word(5000, 'k');
  EXPECT_LT(error_of(base() + word + ": 1\n").size(), 400u);
  EXPECT_LT(error_of(base() + "seq: " + word + "\n").size(), 400u);
  EXPECT_LT(error_of(base(), {word}).size(), 400u);
}

TEST_F(RunConfigTest, DataMustBeAFile) {
  EXPECT_THAT(error_of("model: m\noutput: o\ndata.train: " + folder_.string() + "\n"), HasSubstr("is a folder"));
}

TEST_F(RunConfigTest, ChangedKeysHaveBothValues) {
  const RunConfig before = load(base(), {"batch=2", "optimizer.lr=1e-3"});
  EXPECT_THAT(changed_keys(before, load(base(), {"batch=2", "optimizer.lr=1e-3", "save.every=7"})), testing::IsEmpty());
  EXPECT_THAT(changed_keys(before, load(base(), {"batch=4", "optimizer.lr=1e-4"})),
              testing::ElementsAre("batch: 2 -> 4", "micro_batch: 2 -> 4", "optimizer.lr: 0.001 -> 0.0001"));
}

}  // namespace
}  // namespace lazytrain::train
