#include "graph/menu.h"

#include <algorithm>
#include <numeric>

namespace lazytrain::graph {
namespace {

struct Candidate {
  std::vector<ValueId> values;
  int64_t bytes = 0;
  double seconds = 0;
};

// The outputs of each costly op that backward needs, as one choice.
std::vector<std::vector<ValueId>> choices_of(const Unit& unit, const Dims& dims, const OpSeconds& seconds) {
  std::vector<std::vector<ValueId>> by_op(unit.ops.size());
  for (const ValueId id : costly_to_recompute(unit)) {
    if (id != unit.output) by_op[static_cast<size_t>(unit.producer(id))].push_back(id);
  }
  // A cheap op that merges costly ones (the sum after attention) may stand for them: keeping its output stops the
  // slice.
  const auto needs = backward_needs(unit);
  for (size_t op = 0; op < unit.ops.size(); ++op) {
    if (!unit.ops[op].kind->passes_gradient_through()) continue;
    for (const ValueId id : unit.ops[op].outputs) {
      const bool read = std::any_of(unit.ops.begin(), unit.ops.end(), [&](const Op& other) {
        return std::find(other.inputs.begin(), other.inputs.end(), id) != other.inputs.end();
      });
      if (id != unit.output && read) by_op[op] = {id};
    }
  }
  std::vector<std::vector<ValueId>> choices;
  std::vector<double> worth;
  for (size_t op = 0; op < by_op.size(); ++op) {
    if (by_op[op].empty()) continue;
    int64_t bytes = 0;
    for (const ValueId id : by_op[op]) bytes += value_bytes(unit.values[static_cast<size_t>(id)], dims);
    choices.push_back(by_op[op]);
    worth.push_back(seconds(*unit.ops[op].kind) / static_cast<double>(std::max<int64_t>(1, bytes)));
  }
  while (choices.size() > kMaxMenuOps) {
    const auto least = std::min_element(worth.begin(), worth.end()) - worth.begin();
    choices.erase(choices.begin() + least);
    worth.erase(worth.begin() + least);
  }
  return choices;
}

Candidate evaluate(const Unit& unit, std::vector<ValueId> values, const Dims& dims, const OpSeconds& seconds) {
  Candidate candidate;
  const RetainedSet set = retained_set(unit, std::move(values), dims);
  candidate.values = set.values;
  candidate.bytes = set.bytes;
  for (const int op : recompute_slice(unit, set.values)) {
    candidate.seconds += seconds(*unit.ops[static_cast<size_t>(op)].kind);
  }
  return candidate;
}

// Ascending in bytes, descending in time.
std::vector<Candidate> pareto(std::vector<Candidate> all) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
  });
  std::vector<Candidate> front;
  for (Candidate& c : all) {
    if (front.empty() || c.seconds < front.back().seconds * (1 - 1e-9)) front.push_back(std::move(c));
  }
  return front;
}

// By how much (bytes times seconds) the line between an item's neighbours lies above it; negative inside the hull.
double bulge(const Candidate& before, const Candidate& at, const Candidate& after) {
  const auto bytes = [](const Candidate& c) { return static_cast<double>(c.bytes); };
  const double share = (bytes(at) - bytes(before)) / (bytes(after) - bytes(before));
  const double line = before.seconds + share * (after.seconds - before.seconds);
  return (line - at.seconds) * (bytes(after) - bytes(before));
}

void thin_out(std::vector<Candidate>& front, size_t limit) {
  while (front.size() > std::max<size_t>(2, limit)) {
    size_t least = 1;
    for (size_t i = 2; i + 1 < front.size(); ++i) {
      if (bulge(front[i - 1], front[i], front[i + 1]) < bulge(front[least - 1], front[least], front[least + 1]))
        least = i;
    }
    front.erase(front.begin() + static_cast<std::ptrdiff_t>(least));
  }
}

}  // namespace

std::vector<MenuItem> retained_menu(const Unit& unit, const Dims& dims, const OpSeconds& seconds, int limit) {
  const auto choices = choices_of(unit, dims, seconds);
  std::vector<Candidate> all;
  for (uint32_t subset = 0; subset < (uint32_t{1} << choices.size()); ++subset) {
    std::vector<ValueId> values;
    for (size_t c = 0; c < choices.size(); ++c) {
      if ((subset >> c) & 1) values.insert(values.end(), choices[c].begin(), choices[c].end());
    }
    all.push_back(evaluate(unit, std::move(values), dims, seconds));
  }
  std::vector<Candidate> front = pareto(std::move(all));
  thin_out(front, static_cast<size_t>(limit));
  std::vector<MenuItem> menu;
  for (const Candidate& c : front) {
    MenuItem item{{}, c.bytes, c.seconds, 0};
    for (const ValueId id : c.values) item.retained.push_back(unit.values[static_cast<size_t>(id)].name);
    item.workspace_bytes = backward_pass(unit, retained_set(unit, c.values, dims), dims, false).workspace_bytes;
    menu.push_back(std::move(item));
  }
  return menu;
}

}  // namespace lazytrain::graph
