#include "model/decoder_ends.h"

#include "ops/embedding.h"
#include "ops/lm_head_loss.h"

namespace lazytrain::model {
namespace {

using graph::Unit;
using graph::UnitBuilder;
using graph::UnitKind;

Unit embedding(const ModelConfig& c, const std::string& prefix) {
  UnitBuilder u("embedding", UnitKind::kEmbedding, prefix);
  const auto out = u.add(std::make_shared<ops::Embedding>(c.vocabulary, c.hidden), {}, "embed_tokens");
  return u.finish(out.front());
}

Unit head(const ModelConfig& c, const std::string& prefix, const std::shared_ptr<const graph::OpKind>& norm) {
  UnitBuilder u("head", UnitKind::kHead, "");
  const graph::ValueId x = u.boundary(c.hidden);
  const graph::ValueId n = u.add(norm, {x}, prefix + "norm").front();
  const auto loss = std::make_shared<ops::LmHeadLoss>(c.hidden, c.vocabulary);
  if (c.tied) {
    u.add_tied(loss, {n}, prefix + "embed_tokens.weight");
  } else {
    u.add(loss, {n}, "lm_head");
  }
  return u.finish(-1);
}

}  // namespace

graph::Graph build_decoder(const ModelConfig& config, const std::string& family, const std::string& prefix,
                           const std::shared_ptr<const graph::OpKind>& norm,
                           const std::function<graph::Unit(int64_t)>& layer) {
  graph::Graph graph;
  graph.family = family;
  graph.fingerprint = fingerprint(config);
  graph.hidden = config.hidden;
  graph.vocabulary = config.vocabulary;
  graph.max_positions = config.max_positions;
  graph.initializer_range = config.initializer_range;
  graph.tied = config.tied;
  graph.units.push_back(embedding(config, prefix));
  for (int64_t i = 0; i < config.layers; ++i) graph.units.push_back(layer(i));
  graph.units.push_back(head(config, prefix, norm));
  return graph;
}

}  // namespace lazytrain::model
