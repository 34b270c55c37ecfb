#include "text/post_processor.h"

#include "base/error.h"
#include "text/vocabulary.h"

namespace lazytrain::text {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxIds = 4096;

const Json& list_of(const JsonObject& object, const char* key) {
  const auto it = object.json().find(key);
  if (it == object.json().end() || !it->is_array()) {
    throw InputError("{}: \"{}\" must be a list", object.where(), key);
  }
  return *it;
}

void append_special(const JsonObject& config, const std::string& name, std::vector<int32_t>& ids) {
  const JsonObject special = config.object("special_tokens").object(name);
  for (const Json& id : list_of(special, "ids")) {
    if (!id.is_number_integer() || id < 0 || id >= Vocabulary::kMaxId) {
      throw InputError("{}: \"ids\" holds {}, expected ids from 0 to {}", special.where(), shown(id.dump(), 80),
                       Vocabulary::kMaxId - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  if (ids.size() > kMaxIds) throw InputError("{}: more than {} ids around a text", config.where(), kMaxIds);
}

// "single": a list of {"SpecialToken": {"id": name}} with one {"Sequence": {"id": "A"}}.
void wrap(const JsonObject& config, PostProcessor& out) {
  PostProcessor around;
  int texts = 0;
  for (const Json& piece : list_of(config, "single")) {
    const JsonObject entry(piece, config.where() + ": single");
    if (entry.has("SpecialToken")) {
      append_special(config, entry.object("SpecialToken").string("id"), texts == 0 ? around.prefix : around.suffix);
    } else if (entry.object("Sequence").string("id") == "A") {
      ++texts;
    } else {
      throw InputError("{}: a Sequence that is not \"A\" in the template for a single text", entry.where());
    }
  }
  if (texts != 1)
    throw UsageError("{}: the template has the text {} times, only once is supported", config.where(), texts);
  out.prefix.insert(out.prefix.begin(), around.prefix.begin(), around.prefix.end());
  out.suffix.insert(out.suffix.end(), around.suffix.begin(), around.suffix.end());
}

void add(const Json& config, const std::string& where, PostProcessor& out, int depth) {
  const JsonObject object(config, where);
  const std::string type = object.string("type");
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") return wrap(object, out);
  if (type != "Sequence" || depth >= kMaxDepth) {
    throw UsageError(
        "{}: the post-processor \"{}\" is not supported; supported are null, ByteLevel, TemplateProcessing and a "
        "Sequence "
        "of these",
        where, shown(type));
  }
  for (const Json& part : list_of(object, "processors")) {
    add(part, where, out, depth + 1);
    if (out.prefix.size() + out.suffix.size() > kMaxIds) {
      throw InputError("{}: more than {} ids around a text", where, kMaxIds);
    }
  }
}

}  // namespace

PostProcessor PostProcessor::from_json(const Json& config, const std::string& where) {
  PostProcessor out;
  if (!config.is_null()) add(config, where + ": post_processor", out, 0);
  return out;
}

}  // namespace lazytrain::text
