#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "text/byte_level.h"

namespace lazytrain::text {
namespace {

constexpr uint64_t kNoMerge = ~uint64_t{0};
constexpr size_t kShort = 24;  // up to here scanning beats the heap
constexpr int32_t kDead = -1;

bool later(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

// One entry of "merges": "left right" or [left, right].
std::pair<std::string, std::string> parse_merge(const Json& entry, size_t index, const std::string& where) {
  std::pair<std::string, std::string> parts;
  if (entry.is_string()) {
    const auto& text = entry.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      parts = {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
    parts = {entry[0].get<std::string>(), entry[1].get<std::string>()};
  }
  if (parts.first.empty() || parts.second.empty()) {
    throw InputError("{}: merges[{}] is {}, expected \"left right\" or [\"left\", \"right\"] with both parts non-empty",
                     where, index, shown(entry.dump(), 80));
  }
  return parts;
}

}  // namespace

void MergeTable::reserve(int64_t count) {
  const size_t wanted = std::bit_ceil(std::max<size_t>(16, 2 * static_cast<size_t>(count)));
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  mask_ = wanted - 1;
  used_ = 0;
  for (const Slot& entry : old) {
    if (entry.key != kFree) {
      set(static_cast<int32_t>(entry.key >> 32), static_cast<int32_t>(entry.key & 0xFFFFFFFF), entry.merge);
    }
  }
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  if (2 * (used_ + 1) > slots_.size()) reserve(static_cast<int64_t>(slots_.size()));
  const uint64_t key = pack(left, right);
  size_t i = slot(key);
  while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & mask_;
  if (slots_[i].key == kFree) ++used_;
  slots_[i] = {key, merge};
}

Bpe Bpe::from_json(const Json& model, const std::string& where, Vocabulary& vocabulary) {
  const JsonObject object(model, where + ": model");
  if (const std::string type = object.string_or("type", "BPE"); type != "BPE") {
    throw UsageError("{}: the type \"{}\" is not supported, only byte-level BPE is", object.where(), shown(type));
  }
  const JsonObject vocab = object.object("vocab");
  if (vocab.json().empty()) throw InputError("{}: \"vocab\" is empty", object.where());
  vocabulary.reserve(static_cast<int64_t>(vocab.json().size()));
  for (const auto& [token, id] : vocab.json().items()) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX)) {
      throw InputError("{}: the id of the token \"{}\" is {}, expected a whole number from 0 to {}", vocab.where(),
                       shown(token), shown(id.dump(), 80), Vocabulary::kMaxId - 1);
    }
    vocabulary.add(token, id.get<int64_t>(), vocab.where());
  }
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    bpe.byte_ids_[byte] = vocabulary.find(bytes_to_token({std::string(1, static_cast<char>(byte))})).value_or(-1);
  }
  bpe.read_options(object, vocabulary);
  bpe.read_merges(object, vocabulary);
  if (bpe.ignore_merges_) {
    for (const auto& [token, id] : vocab.json().items()) {
      if (auto bytes = token_to_bytes(token)) bpe.whole_.emplace(std::move(*bytes), id.get<int32_t>());
    }
  }
  return bpe;
}

void Bpe::read_options(const JsonObject& model, const Vocabulary& vocabulary) {
  if (model.has("dropout") && model.number("dropout") != 0) {
    throw UsageError("{}: dropout {} makes ids random, which is not supported", model.where(), model.number("dropout"));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) {
      throw UsageError("{}: {} \"{}\" is not supported by byte-level BPE", model.where(), key,
                       shown(model.string(key)));
    }
  }
  const bool all_bytes = std::none_of(std::begin(byte_ids_), std::end(byte_ids_), [](int32_t id) { return id < 0; });
  if (model.boolean_or("byte_fallback", false) && !all_bytes) {
    throw UsageError("{}: byte_fallback is not supported where the vocabulary lacks bytes", model.where());
  }
  if (const std::string name = model.string_or("unk_token", ""); !name.empty()) {
    unknown_ = vocabulary.find(name);
    if (!unknown_ && !all_bytes) {
      throw InputError("{}: the unk_token \"{}\" is not in the vocabulary", model.where(), shown(name));
    }
  }
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  ignore_merges_ = model.boolean_or("ignore_merges", false);
}

void Bpe::read_merges(const JsonObject& model, const Vocabulary& vocabulary) {
  const auto list = model.json().find("merges");
  if (list == model.json().end() || !list->is_array()) throw InputError("{}: \"merges\" must be a list", model.where());
  merges_.reserve(static_cast<int64_t>(list->size()));
  std::string canonical;
  uint32_t rank = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (entry.is_string() && entry.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto parts = parse_merge(entry, i, model.where());
    const std::string &left = parts.first, &right = parts.second;
    const auto id = [&](const std::string& token) {
      const auto found = vocabulary.find(token);
      if (!found) {
        throw InputError("{}: merges[{}] joins \"{}\" and \"{}\", but the vocabulary has no \"{}\"", model.where(), i,
                         shown(left), shown(right), shown(token));
      }
      return *found;
    };
    const int32_t ids[2] = {id(left), id(right)};
    merges_.set(ids[0], ids[1], {rank++, id(left + right)});
    canonical.append(reinterpret_cast<const char*>(ids), sizeof(ids));
  }
  merges_hash_ = hash_hex(canonical);
}

void Bpe::fill_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  symbols.clear();
  bool after_unknown = false;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unknown_ && !(fuse_unknown_ && after_unknown)) {
      symbols.push_back(*unknown_);
    }
    after_unknown = id < 0;
  }
}

void Bpe::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& ranks = scratch.ranks;  // of the pair that begins at each symbol: rank, product
  const auto rank_at = [&](size_t i) {
    const auto* merge = i + 1 < symbols.size() ? merges_.find(symbols[i], symbols[i + 1]) : nullptr;
    return merge == nullptr ? kNoMerge : uint64_t{merge->rank} << 32 | static_cast<uint32_t>(merge->product);
  };
  ranks.resize(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoMerge) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    symbols[i] = static_cast<int32_t>(*best & 0xFFFFFFFF);
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

void Bpe::push(Scratch& scratch, int32_t left, int32_t right) const {
  const int32_t a = scratch.symbols[static_cast<size_t>(left)], b = scratch.symbols[static_cast<size_t>(right)];
  if (const auto* merge = merges_.find(a, b)) {
    scratch.heap.push_back({merge->rank, static_cast<uint32_t>(left), a, b, merge->product});
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  }
}

// A linked list of symbols and a heap of candidates; a candidate is stale when its symbols are no longer there.
void Bpe::merge_long(Scratch& scratch) const {
  auto& [symbols, next, previous, ranks, heap] = scratch;
  const auto count = static_cast<int32_t>(symbols.size());
  next.resize(symbols.size());
  previous.resize(symbols.size());
  std::iota(next.begin(), next.end(), 1);
  std::iota(previous.begin(), previous.end(), -1);
  heap.clear();
  for (int32_t i = 0; i + 1 < count; ++i) push(scratch, i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate candidate = heap.back();
    heap.pop_back();
    const size_t at = candidate.position;
    const int32_t right = next[at];
    if (symbols[at] != candidate.left || right >= count || symbols[static_cast<size_t>(right)] != candidate.right) {
      continue;
    }
    symbols[at] = candidate.product;
    symbols[static_cast<size_t>(right)] = kDead;
    next[at] = next[static_cast<size_t>(right)];
    if (next[at] < count) {
      previous[static_cast<size_t>(next[at])] = static_cast<int32_t>(at);
      push(scratch, static_cast<int32_t>(at), next[at]);
    }
    if (previous[at] >= 0) push(scratch, previous[at], static_cast<int32_t>(at));
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kDead), symbols.end());
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto it = whole_.find(std::string(piece)); it != whole_.end()) {
      ids.push_back(it->second);
      return;
    }
  }
  fill_symbols(piece, scratch.symbols);
  if (scratch.symbols.size() <= kShort) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

std::string Bpe::describe() const {
  return fmt::format("merges {};unknown {} {};whole {};", merges_hash_, unknown_.value_or(-1), fuse_unknown_,
                     ignore_merges_);
}

}  // namespace lazytrain::text
