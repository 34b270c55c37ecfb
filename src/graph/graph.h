// A model as a list of units; a unit is a straight list of ops in SSA form over named values (DESIGN: graph).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/op_kind.h"

namespace lazytrain::graph {

using ValueId = int32_t;  // position in Unit::values
using ParamId = int32_t;  // position in Unit::params

struct Parameter {
  std::string name;  // as in the model's files, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  Init init = Init::kNormal;
  int64_t elements = 0;
  int64_t offset = 0;  // of its first element in the unit's block; blocks keep 64-element alignment
  bool tied = false;   // the storage is parameter 0 of unit 0 (the embedding); it has no elements of its own here

  bool decays() const { return shape.size() >= 2; }  // weight decay: matrices only
};

struct Op {
  std::shared_ptr<const OpKind> kind;
  std::vector<ValueId> inputs;
  std::vector<ParamId> params;
  std::vector<ValueId> outputs;
  Reads reads;  // kind->backward_reads()
};

enum class UnitKind : uint8_t { kEmbedding, kLayer, kHead };

struct Unit {
  std::string name;  // "embedding", "layer.0", "head"
  UnitKind kind = UnitKind::kLayer;
  std::vector<ValueSpec> values;
  std::vector<Parameter> params;
  std::vector<Op> ops;
  ValueId input = -1;          // the boundary before the unit; -1: none (embedding)
  ValueId output = -1;         // the boundary behind it; -1: none (head)
  int64_t block_elements = 0;  // elements of the unit's contiguous parameter block, alignment included

  int64_t parameter_count() const;    // without tied ones
  int producer(ValueId value) const;  // the op that writes it, -1 for the input
};

struct Graph {
  std::string family;  // "qwen2", "llama"
  // Beginnings of the names of tensors that lie in the model's files and are no part of what is trained: a vision
  // tower, heads that predict further tokens.
  std::vector<std::string> left_out;
  std::string fingerprint;  // of the configuration: plans and checkpoints of another model are refused by it
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
  double initializer_range = 0.02;
  bool tied = false;
  std::vector<Unit> units;  // embedding, layers, head

  int layers() const { return static_cast<int>(units.size()) - 2; }
  int64_t parameter_count() const;
  // Those that a token is multiplied with: all but an untied embedding and the experts it does not go through (models:
  // 6 N).
  int64_t matmul_parameters() const;
};

// Builds one unit; a model family is a function that calls it (model/).
class UnitBuilder {
 public:
  UnitBuilder(std::string name, UnitKind kind, std::string parameter_prefix);

  // The unit's input boundary [tokens, width].
  ValueId boundary(int64_t width);
  // Appends an op; its parameters are named prefix + `scope` + "." + spec name. Returns its output values.
  std::vector<ValueId> add(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs, const std::string& scope);
  // The same for an op whose parameter 0 is the embedding's matrix.
  std::vector<ValueId> add_tied(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs,
                                const std::string& name);
  Unit finish(ValueId output);  // -1 for the head

 private:
  std::vector<ValueId> append(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs,
                              std::vector<ParamId> params, const std::string& scope);
  Unit unit_;
  std::string prefix_;
};

}  // namespace lazytrain::graph
