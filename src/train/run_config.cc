#include "train/run_config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/units.h"
#include "optim/state_layout.h"

namespace lazytrain::train {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

// One configuration key. `numeric`: it has a part in the numbers of a run.
struct Key {
  std::string_view name;
  std::string_view meaning;
  bool numeric;
  std::function<void(RunConfig&, const std::string& text)> set;
  std::function<std::string(const RunConfig&)> get;
};

[[noreturn]] void refuse(std::string_view key, const std::string& text, std::string_view expected) {
  throw UsageError("{}: '{}' is not {}", key, shown(text), expected);
}

template <typename T>
T parse_number(std::string_view key, const std::string& text, std::string_view expected) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(key, text, expected);
  return value;
}

int64_t parse_integer(std::string_view key, const std::string& text, int64_t min, int64_t max) {
  const std::string expected = fmt::format("a whole number from {} to {}", min, max);
  const auto value = parse_number<int64_t>(key, text, expected);
  if (value < min || value > max) refuse(key, text, expected);
  return value;
}

double parse_real(std::string_view key, const std::string& text, double min, double max) {
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  const auto value = parse_number<double>(key, text, expected);
  if (!(value >= min && value <= max)) refuse(key, text, expected);
  return value;
}

bool parse_bool(std::string_view key, const std::string& text) {
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  refuse(key, text, "true or false");
}

std::string one_of(std::string_view key, const std::string& text, const std::vector<std::string_view>& choices) {
  std::string list;
  for (const auto choice : choices) {
    if (text == choice) return text;
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  refuse(key, text, "one of " + list);
}

// Shortest text that reads back to the same double.
std::string real(double value) { return fmt::format("{}", value); }
std::string boolean(bool value) { return value ? "true" : "false"; }

// "[0.9, 0.95]" or "0.9,0.95".
std::pair<double, double> parse_betas(const std::string& text) {
  std::string inner = text;
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']') inner = inner.substr(1, inner.size() - 2);
  const auto comma = inner.find(',');
  if (comma == std::string::npos) refuse("optimizer.betas", text, "a pair such as [0.9, 0.999]");
  const auto trim = [](std::string s) {
    s.erase(0, s.find_first_not_of(' '));
    s.erase(s.find_last_not_of(' ') + 1);
    return s;
  };
  return {parse_real("optimizer.betas", trim(inner.substr(0, comma)), 0, 1),
          parse_real("optimizer.betas", trim(inner.substr(comma + 1)), 0, 1)};
}

Key text_key(std::string_view name, std::string_view meaning, bool numeric,
             std::function<std::string&(RunConfig&)> at) {
  return {name, meaning, numeric, [at](RunConfig& c, const std::string& v) { at(c) = v; },
          [at](const RunConfig& c) { return at(const_cast<RunConfig&>(c)); }};
}

Key choice_key(std::string_view name, std::string_view meaning, bool numeric,
               std::initializer_list<std::string_view> choices, std::function<std::string&(RunConfig&)> at) {
  const std::vector<std::string_view> list(choices);
  return {name, meaning, numeric, [=](RunConfig& c, const std::string& v) { at(c) = one_of(name, v, list); },
          [at](const RunConfig& c) { return at(const_cast<RunConfig&>(c)); }};
}

Key path_key(std::string_view name, std::string_view meaning, std::function<std::filesystem::path&(RunConfig&)> at) {
  return {name, meaning, false, [at](RunConfig& c, const std::string& v) { at(c) = v; },
          [at](const RunConfig& c) { return at(const_cast<RunConfig&>(c)).string(); }};
}

Key integer_key(std::string_view name, std::string_view meaning, bool numeric, int64_t min, int64_t max,
                std::function<int64_t&(RunConfig&)> at) {
  return {name, meaning, numeric, [=](RunConfig& c, const std::string& v) { at(c) = parse_integer(name, v, min, max); },
          [at](const RunConfig& c) { return std::to_string(at(const_cast<RunConfig&>(c))); }};
}

Key number_key(std::string_view name, std::string_view meaning, bool numeric, double min, double max,
               std::function<double&(RunConfig&)> at) {
  return {name, meaning, numeric, [=](RunConfig& c, const std::string& v) { at(c) = parse_real(name, v, min, max); },
          [at](const RunConfig& c) { return real(at(const_cast<RunConfig&>(c))); }};
}

Key real_key(std::string_view name, std::string_view meaning, double min, double max,
             std::function<double&(RunConfig&)> at) {
  return number_key(name, meaning, true, min, max, std::move(at));
}

Key plan_key(std::string_view name, std::string_view meaning, double min, double max,
             std::function<double&(RunConfig&)> at) {
  return number_key(name, meaning, false, min, max, std::move(at));
}

Key bool_key(std::string_view name, std::string_view meaning, bool numeric, std::function<bool&(RunConfig&)> at) {
  return {name, meaning, numeric, [=](RunConfig& c, const std::string& v) { at(c) = parse_bool(name, v); },
          [at](const RunConfig& c) { return boolean(at(const_cast<RunConfig&>(c))); }};
}

// "0" or "auto" means no cap of its own.
Key size_key(std::string_view name, std::string_view meaning, std::function<int64_t&(RunConfig&)> at) {
  return {name, meaning, false,
          [=](RunConfig& c, const std::string& v) {
            at(c) = v == "auto" ? 0 : parse_bytes(v, name);
            if (at(c) == 0 && v != "auto") refuse(name, v, "above 0 (or auto)");
          },
          [at](const RunConfig& c) {
            const int64_t bytes = at(const_cast<RunConfig&>(c));
            return bytes == 0 ? std::string("auto") : std::to_string(bytes) + "B";
          }};
}

const std::vector<Key>& keys() {
  using C = RunConfig;
  constexpr int64_t kMany = int64_t{1} << 40;
  static const std::vector<Key> table = {
      path_key(
          "model", "Hugging Face folder with config.json, safetensors and tokenizer.json",
          [](C & c) -> auto& { return c.model; }),
      path_key(
          "output", "run folder: metrics, checkpoints, the trained model", [](C & c) -> auto& { return c.output; }),
      path_key(
          "data.train", "JSON or JSONL file with the training samples", [](C & c) -> auto& { return c.data.train; }),
      path_key(
          "data.eval", "file with held-out samples; their loss is measured",
          [](C & c) -> auto& { return c.data.eval; }),
      path_key(
          "data.cache", "folder for tokenised data (default: OUTPUT/cache)",
          [](C & c) -> auto& { return c.data.cache; }),
      choice_key(
          "data.format", "auto, json (one list) or jsonl", false, {"auto", "json", "jsonl"},
          [](C & c) -> auto& { return c.data.format; }),
      text_key(
          "data.prompt", "key of the prompt, when it has another name", true,
          [](C & c) -> auto& { return c.data.prompt; }),
      text_key(
          "data.response", "key of the response", true, [](C & c) -> auto& { return c.data.response; }),
      choice_key(
          "data.template", "chat: the model's own chat template; none: prompt and response as they are", true,
          {"chat", "none"}, [](C & c) -> auto& { return c.data.chat_template; }),
      bool_key(
          "data.pack", "several samples in a row of seq tokens, without attention across them", true,
          [](C & c) -> auto& { return c.data.pack; }),
      bool_key(
          "data.shuffle", "a new order each epoch, from the seed", true, [](C & c) -> auto& { return c.data.shuffle; }),
      integer_key(
          "seq", "tokens of a row", true, 2, 1 << 20, [](C & c) -> auto& { return c.seq; }),
      integer_key(
          "batch", "rows an optimizer step", true, 1, 1 << 20, [](C & c) -> auto& { return c.batch; }),
      integer_key(
          "micro_batch", "rows computed at once; 0: the whole batch", true, 0, 1 << 20,
          [](C & c) -> auto& { return c.micro_batch; }),
      integer_key(
          "steps", "optimizer steps; 0: epochs decide", true, 0, kMany, [](C & c) -> auto& { return c.steps; }),
      real_key(
          "epochs", "passes over the data when steps is not set", 0, 1e6, [](C & c) -> auto& { return c.epochs; }),
      {"seed", "of shuffling", true,
       [](C& c, const std::string& v) { c.seed = static_cast<uint64_t>(parse_integer("seed", v, 0, INT64_MAX)); },
       [](const C& c) { return std::to_string(c.seed); }},
      {"compute", "bf16, or fp32 for checking", true,
       [](C& c, const std::string& v) {
         c.compute = one_of("compute", v, {"bf16", "fp32"}) == "bf16" ? DType::kBF16 : DType::kF32;
       },
       [](const C& c) { return std::string(c.compute == DType::kBF16 ? "bf16" : "fp32"); }},
      choice_key(
          "device.kind", "cpu", true, {"cpu"}, [](C & c) -> auto& { return c.device.kind; }),
      text_key(
          "device.profile", "machine to emulate, scaled to this one's compute", true,
          [](C & c) -> auto& { return c.device.profile; }),
      text_key(
          "device.like", "CONFIG@PROFILE@BATCHxSEQ: emulate by similarity", true,
          [](C & c) -> auto& { return c.device.like; }),
      size_key(
          "device.memory", "cap on activations and other memory of a step",
          [](C & c) -> auto& { return c.device.memory; }),
      integer_key(
          "device.threads", "compute threads; 0: all cores of the process", true, 0, 1024,
          [](C & c) -> auto& { return c.device.threads; }),
      size_key(
          "host.memory", "cap on all memory of the run", [](C & c) -> auto& { return c.host_memory; }),
      path_key(
          "disk.path", "folder for the disk tier; none without it", [](C & c) -> auto& { return c.disk.path; }),
      size_key(
          "disk.memory", "cap on the disk tier", [](C & c) -> auto& { return c.disk.memory; }),
      bool_key(
          "disk.verify", "checksums of everything that is read back", false,
          [](C & c) -> auto& { return c.disk.verify; }),
      text_key(
          "plan.policy", "auto, a policy's name, or a plan.json", false, [](C & c) -> auto& { return c.plan.policy; }),
      choice_key(
          "plan.solver", "auto, highs, scip or greedy", false, {"auto", "highs", "scip", "greedy"},
          [](C & c) -> auto& { return c.plan.solver; }),
      plan_key(
          "plan.time_limit", "seconds for the solver", 0, 1e6, [](C & c) -> auto& { return c.plan.time_limit_s; }),
      plan_key(
          "plan.gap", "proven distance from the best plan at which the solver stops", 0, 1,
          [](C & c) -> auto& { return c.plan.gap; }),
      bool_key(
          "plan.replan", "plan again between steps when they do not take what was predicted", false,
          [](C & c) -> auto& { return c.plan.replan; }),
      {"optimizer.state", "fp32, 8bit, 8bit:BLOCK or hybrid:FRACTION; +embedding, -head", true,
       [](C& c, const std::string& v) {
         try {
           optim::state_setting_from_name(v);
         } catch (const UsageError& error) {
           throw UsageError("optimizer.state: {}", error.what());
         }
         c.optimizer.state = v;
       },
       [](const C& c) { return c.optimizer.state; }},
      real_key(
          "optimizer.lr", "peak learning rate", 0, 1e3, [](C & c) -> auto& { return c.optimizer.schedule.lr; }),
      {"optimizer.betas", "decay rates of the two moments", true,
       [](C& c, const std::string& v) { std::tie(c.optimizer.adamw.beta1, c.optimizer.adamw.beta2) = parse_betas(v); },
       [](const C& c) { return fmt::format("[{}, {}]", c.optimizer.adamw.beta1, c.optimizer.adamw.beta2); }},
      real_key(
          "optimizer.eps", "added to the root of the second moment", 0, 1,
          [](C & c) -> auto& { return c.optimizer.adamw.eps; }),
      real_key(
          "optimizer.weight_decay", "decoupled, on matrices only", 0, 1e3,
          [](C & c) -> auto& { return c.optimizer.adamw.weight_decay; }),
      real_key(
          "optimizer.clip", "largest global gradient norm; 0: off", 0, 1e30,
          [](C & c) -> auto& { return c.optimizer.clip; }),
      {"optimizer.schedule", "constant, linear or cosine", true,
       [](C& c, const std::string& v) { c.optimizer.schedule.kind = optim::schedule_kind_from_name(v); },
       [](const C& c) { return std::string(optim::name_of(c.optimizer.schedule.kind)); }},
      real_key(
          "optimizer.warmup", "steps; below 1 a share of all steps", 0, 1e12,
          [](C & c) -> auto& { return c.optimizer.schedule.warmup; }),
      integer_key(
          "save.every", "steps between checkpoints; 0: at the end only", false, 0, kMany,
          [](C & c) -> auto& { return c.save_every; }),
      integer_key(
          "save.keep", "checkpoints kept, the newest ones", false, 1, 1 << 20,
          [](C & c) -> auto& { return c.save_keep; }),
      integer_key(
          "eval.every", "steps between evaluations of data.eval; 0: at the end only", false, 0, kMany,
          [](C & c) -> auto& { return c.eval_every; }),
      integer_key(
          "log.every", "steps between progress lines", false, 1, kMany, [](C & c) -> auto& { return c.log_every; }),
      bool_key(
          "log.tensorboard", "write TensorBoard event files too", false, [](C & c) -> auto& { return c.tensorboard; }),
  };
  return table;
}

// What other trainers call these keys, where spelling alone does not lead to ours.
const std::map<std::string, std::string, std::less<>>& synonyms() {
  static const std::map<std::string, std::string, std::less<>> table = {
      {"learning_rate", "optimizer.lr"},
      {"max_learning_rate", "optimizer.lr"},
      {"adam_epsilon", "optimizer.eps"},
      {"epsilon", "optimizer.eps"},
      {"max_grad_norm", "optimizer.clip"},
      {"grad_clip", "optimizer.clip"},
      {"gradient_clipping", "optimizer.clip"},
      {"lr_scheduler_type", "optimizer.schedule"},
      {"scheduler", "optimizer.schedule"},
      {"warmup_steps", "optimizer.warmup"},
      {"warmup_ratio", "optimizer.warmup"},
      {"batch_size", "batch"},
      {"train_batch_size", "batch"},
      {"per_device_train_batch_size", "micro_batch"},
      {"micro_batch_size", "micro_batch"},
      {"num_epochs", "epochs"},
      {"num_train_epochs", "epochs"},
      {"max_steps", "steps"},
      {"num_steps", "steps"},
      {"iterations", "steps"},
      {"seq_len", "seq"},
      {"seq_length", "seq"},
      {"max_length", "seq"},
      {"max_seq_length", "seq"},
      {"context_length", "seq"},
      {"dtype", "compute"},
      {"precision", "compute"},
      {"bf16", "compute"},
      {"packing", "data.pack"},
      {"train_file", "data.train"},
      {"dataset", "data.train"},
      {"eval_file", "data.eval"},
      {"validation_file", "data.eval"},
      {"chat_template", "data.template"},
      {"model_name_or_path", "model"},
      {"output_dir", "output"},
      {"save_steps", "save.every"},
      {"save_total_limit", "save.keep"},
      {"eval_steps", "eval.every"},
      {"logging_steps", "log.every"},
      {"num_threads", "device.threads"},
  };
  return table;
}

std::string leaf_of(std::string_view name) {
  std::string leaf(name.substr(name.rfind('.') + 1));
  for (char& c : leaf) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return leaf;
}

// The key that was probably meant: one near in spelling, the only one with this last part, or what others call so.
std::string meant(const std::string& name) {
  std::vector<std::string> known;
  std::vector<std::string> same_leaf;
  for (const Key& key : keys()) {
    known.emplace_back(key.name);
    if (leaf_of(key.name) == leaf_of(name)) same_leaf.emplace_back(key.name);
  }
  if (same_leaf.size() == 1) return same_leaf.front();
  if (const auto it = synonyms().find(leaf_of(name)); it != synonyms().end()) return it->second;
  return nearest(name, known);
}

std::vector<std::string> keys_of_section(std::string_view section) {
  std::vector<std::string> found;
  for (const Key& key : keys()) {
    if (key.name.starts_with(section) && key.name.substr(section.size()).starts_with('.')) found.emplace_back(key.name);
  }
  return found;
}

const Key& find_key(const std::string& name, const std::string& where) {
  for (const Key& key : keys()) {
    if (key.name == name) return key;
  }
  if (const auto inner = keys_of_section(name); !inner.empty()) {
    throw UsageError("{}: '{}' is a section: its keys are {}", where, name, fmt::join(inner, ", "));
  }
  const std::string near = meant(name);
  throw UsageError("{}: unknown key '{}'{}", where, shown(name),
                   near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
}

void set_key(RunConfig& config, const std::string& name, const std::string& text, const std::string& where) {
  const Key& key = find_key(name, where);
  try {
    key.set(config, text);
  } catch (const UsageError& error) {
    throw UsageError("{}: {}", where, error.what());
  }
}

bool has_key(std::string_view name) {
  return std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return key.name == name; });
}

std::string scalar_text(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  std::string text = "[";
  for (const auto& item : node) text += (text.size() > 1 ? ", " : "") + scalar_text(item);
  return text + "]";
}

void read_node(RunConfig& config, const YAML::Node& node, const std::string& prefix, const std::string& file,
               int depth) {
  std::map<std::string, int> seen;
  for (const auto& entry : node) {
    const std::string where = fmt::format("{}: line {}", file, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) throw UsageError("{}: a key must be a plain word", where);
    const std::string name = prefix + entry.first.Scalar();
    if (seen[name]++ > 0) throw UsageError("{}: the key '{}' stands twice", where, shown(name));
    if (entry.second.IsMap() && keys_of_section(name).empty() && has_key(name)) {
      throw UsageError("{}: '{}' takes a plain value, not a section", where, name);
    }
    if (entry.second.IsMap() && depth < 8) {
      read_node(config, entry.second, name + ".", file, depth + 1);
    } else if (entry.second.IsScalar() || entry.second.IsSequence()) {
      set_key(config, name, scalar_text(entry.second), where);
    } else if (entry.second.IsNull()) {
      // A key without a value keeps its default and a section may be empty, but it must be one.
      if (keys_of_section(name).empty()) find_key(name, where);
    } else {
      throw UsageError("{}: '{}' has no plain value", where, shown(name));
    }
  }
}

void check(const RunConfig& config) {
  const auto need = [](const std::filesystem::path& path, std::string_view key, std::string_view what) {
    if (path.empty()) throw UsageError("{} is not set: {}", key, what);
  };
  need(config.model, "model", "name the Hugging Face folder to train");
  need(config.output, "output", "name the folder for the run");
  need(config.data.train, "data.train", "name the JSONL file to train on");
  for (const auto& [path, key] : {std::pair{config.data.train, "data.train"}, {config.data.eval, "data.eval"}}) {
    if (path.empty()) continue;
    if (!std::filesystem::exists(path)) throw UsageError("{}: there is no file {}", key, path.string());
    if (!std::filesystem::is_regular_file(path)) {
      throw UsageError("{}: {} is {}, expected a JSON or JSONL file", key, path.string(),
                       std::filesystem::is_directory(path) ? "a folder" : "no regular file");
    }
  }
  if (config.micro_batch > config.batch) {
    throw UsageError("micro_batch: {} is more than batch, {}", config.micro_batch, config.batch);
  }
  if (config.eval_every > 0 && config.data.eval.empty()) {
    throw UsageError("eval.every: {} is set, data.eval is not: name the file to evaluate, or remove eval.every",
                     config.eval_every);
  }
  if (!config.device.profile.empty() && !config.device.like.empty()) {
    throw UsageError("device.profile and device.like are both set: set one of them");
  }
  if (config.disk.path.empty() && (config.disk.memory > 0 || config.disk.verify)) {
    throw UsageError("{} is set, disk.path is not: name the folder for the disk tier",
                     config.disk.verify ? "disk.verify" : "disk.memory");
  }
  if (config.steps > 0 && config.epochs > 0) throw UsageError("steps and epochs are both set: set one of them");
  optim::check(config.optimizer.adamw);
  optim::check(config.optimizer.schedule);
}

}  // namespace

RunConfig read_run_config(const std::filesystem::path& file) {
  RunConfig config;
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(read_file(file, kMaxConfigBytes));
    std::erase_if(documents, [](const YAML::Node& document) { return document.IsNull(); });
    if (documents.size() > 1) {
      throw UsageError("{}: line {}: a second YAML document begins, expected one: remove the '---' between them",
                       file.string(), documents[1].Mark().line + 1);
    }
    for (const YAML::Node& root : documents) {
      if (!root.IsMap()) throw UsageError("{}: expected `key: value` lines", file.string());
      read_node(config, root, "", file.string(), 0);
    }
  } catch (const InputError& error) {
    throw UsageError("{}", error.what());
  } catch (const YAML::Exception& error) {
    throw UsageError("{}: line {}: not valid YAML: {}", file.string(), error.mark.line + 1, error.msg);
  }
  return config;
}

RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  RunConfig config = read_run_config(file);
  for (const std::string& override_text : overrides) {
    const auto equals = override_text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError("'{}' is not an override: write key=value, such as optimizer.lr=1e-4", shown(override_text));
    }
    set_key(config, override_text.substr(0, equals), override_text.substr(equals + 1), "command line");
  }
  check(config);
  if (config.micro_batch == 0) config.micro_batch = config.batch;
  if (config.data.cache.empty()) config.data.cache = config.output / "cache";
  return config;
}

std::string to_yaml(const RunConfig& config) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  std::string section;
  for (const Key& key : keys()) {
    const auto dot = key.name.find('.');
    const std::string group(dot == std::string_view::npos ? "" : key.name.substr(0, dot));
    const std::string value = key.get(config);
    if (group != section) {
      if (!section.empty()) out << YAML::EndMap;
      if (!group.empty()) out << YAML::Key << group << YAML::Value << YAML::BeginMap;
      section = group;
    }
    if (value.empty()) continue;
    out << YAML::Key << std::string(key.name.substr(dot == std::string_view::npos ? 0 : dot + 1)) << YAML::Value;
    if (value.front() == '[') {
      const YAML::Node list = YAML::Load(value);
      out << YAML::Flow << list;
    } else {
      out << value;
    }
  }
  if (!section.empty()) out << YAML::EndMap;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string numeric_fingerprint(const RunConfig& config) {
  std::string text;
  for (const Key& key : keys()) {
    if (key.numeric) text += fmt::format("{}={}\n", key.name, key.get(config));
  }
  return hash_hex(text);
}

std::vector<std::string> changed_keys(const RunConfig& before, const RunConfig& now) {
  std::vector<std::string> changes;
  for (const Key& key : keys()) {
    const std::string old_value = key.get(before), new_value = key.get(now);
    if ((key.numeric || key.name == "data.train") && old_value != new_value) {
      changes.push_back(fmt::format("{}: {} -> {}", key.name, old_value.empty() ? "unset" : shown(old_value),
                                    new_value.empty() ? "unset" : shown(new_value)));
    }
  }
  return changes;
}

std::string describe_keys() {
  std::string text;
  const RunConfig defaults;
  for (const Key& key : keys()) text += fmt::format("  {:24} {:14} {}\n", key.name, key.get(defaults), key.meaning);
  return text;
}

}  // namespace lazytrain::train
