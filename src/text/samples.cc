#include "text/samples.h"

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace lazytrain::text {
namespace {

constexpr int64_t kBatchRows = 4096;  // parsed and tokenised at once
constexpr int64_t kRowsNamed = 5;     // in an error

void append(Sample& sample, std::span<const int32_t> ids, bool is_target) {
  sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
  sample.is_target.insert(sample.is_target.end(), ids.size(), is_target ? 1 : 0);
}

Sample plain_sample(const Record& record, const Encoder& encoder) {
  Sample sample;
  append(sample, encoder.encode(record.prompt), false);
  append(sample, encoder.encode(record.response), true);
  append(sample, std::span(&encoder.eos, 1), true);
  return sample;
}

std::string render(const ChatTemplate& chat, const Json& messages, bool generation, bool thinking) {
  return chat.render({{"messages", messages}, {"add_generation_prompt", generation}, {"enable_thinking", thinking}});
}

std::string content_of(const Json& message) {
  const auto it = message.find("content");
  return it != message.end() && it->is_string() ? it->get<std::string>() : "";
}

bool has_reasoning(const Json& message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    if (const auto it = message.find(key);
        it != message.end() && it->is_string() && !it->get_ref<const std::string&>().empty()) {
      return true;
    }
  }
  return content_of(message).find("</think>") != std::string::npos;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// What the whole rendering has behind the prompt. Where it does not begin with the prompt (a template that opens a
// thought only for generation) the turn is found by its content.
std::string turn_text(const std::string& whole, const std::string& prompt, const Json& message,
                      const std::string& where) {
  if (whole.starts_with(prompt)) return whole.substr(prompt.size());
  const auto shared = static_cast<size_t>(
      std::mismatch(whole.begin(), whole.end(), prompt.begin(), prompt.end()).first - whole.begin());
  const std::string content = trimmed(content_of(message));
  const size_t at = content.empty() ? shared : whole.rfind(content);
  if (at == std::string::npos || at < shared) {
    throw InputError("{}: the chat template does not render the content of an assistant's turn behind its prompt",
                     where);
  }
  return whole.substr(at);
}

struct Target {
  std::vector<int32_t> ids;
  size_t text_bytes;  // of the turn's text that the ids stand for
};

// A turn up to the control token it ends with, white space behind it left out; EOS is added where it ends with none.
Target target_of(const std::string& turn, const Encoder& encoder) {
  const size_t bytes = turn.find_last_not_of(" \t\r\n") + 1;  // 0 when there is only white space
  std::vector<int32_t> ids = encoder.encode(std::string_view(turn).substr(0, bytes));
  if (!ids.empty() && (ids.back() == encoder.eos || encoder.is_special(ids.back()))) return {std::move(ids), bytes};
  ids = encoder.encode(turn);
  ids.push_back(encoder.eos);
  return {std::move(ids), turn.size()};
}

std::vector<Sample> chat_samples(const Json& messages, const Encoder& encoder, const ChatTemplate& chat,
                                 const std::string& where) {
  std::vector<Sample> samples;
  std::string text;  // what the last sample stands for
  Json before = Json::array();
  for (const Json& message : messages) {
    const auto role = message.find("role");
    if (role == message.end() || *role != "assistant") {
      before.push_back(message);
      continue;
    }
    const bool thinking = has_reasoning(message);
    const std::string prompt = render(chat, before, true, thinking);
    before.push_back(message);
    const std::string turn = turn_text(render(chat, before, false, thinking), prompt, message, where);
    const Target target = target_of(turn, encoder);
    if (samples.empty() || !prompt.starts_with(text)) {
      samples.emplace_back();
      text.clear();
    }
    append(samples.back(), encoder.encode(std::string_view(prompt).substr(text.size())), false);
    append(samples.back(), target.ids, true);
    text = prompt + turn.substr(0, target.text_bytes);
  }
  return samples;
}

// The outcome of one row, made on any thread and taken in file order.
struct RowResult {
  std::vector<Sample> samples;
  std::exception_ptr error;
};

class Collector {
 public:
  Collector(PreparedData& out, int64_t seq) : out_(out), seq_(seq) {}

  void add(RowResult& result, int64_t line) {
    if (result.error) std::rethrow_exception(result.error);
    ++out_.counts.rows;
    for (Sample& sample : result.samples) {
      const bool longer = static_cast<int64_t>(sample.ids.size()) > seq_;
      all_empty_ = all_empty_ && is_empty(sample);
      if (!truncate(sample, seq_)) {
        ++out_.counts.dropped;
        if (static_cast<int64_t>(dropped_.size()) < kRowsNamed) dropped_.push_back(line);
        continue;
      }
      ++out_.counts.samples;
      out_.counts.truncated += longer ? 1 : 0;
      out_.counts.tokens += static_cast<int64_t>(sample.ids.size());
      out_.counts.targets += std::count(sample.is_target.begin(), sample.is_target.end(), 1);
      out_.samples.add(sample);
    }
  }
  bool all_empty() const { return all_empty_; }
  std::string dropped_lines() const {
    std::string lines;
    for (const int64_t line : dropped_) lines += (lines.empty() ? "" : ", ") + std::to_string(line);
    return out_.counts.dropped > kRowsNamed ? lines + ", ..." : lines;
  }

 private:
  PreparedData& out_;
  int64_t seq_;
  std::vector<int64_t> dropped_;
  bool all_empty_ = true;
};

}  // namespace

void TokenSet::add(const Sample& sample) {
  tokens.insert(tokens.end(), sample.ids.begin(), sample.ids.end());
  is_target.insert(is_target.end(), sample.is_target.begin(), sample.is_target.end());
  offsets.push_back(static_cast<int64_t>(tokens.size()));
}

std::vector<Sample> make_samples(const Record& record, const Encoder& encoder, const ChatTemplate* chat,
                                 const std::string& where) {
  if (chat == nullptr) {
    if (!record.messages.is_null()) {
      throw UsageError("{}: messages need a chat template: set data.template to chat, with a model that has one",
                       where);
    }
    return {plain_sample(record, encoder)};
  }
  Json messages = record.messages;
  if (messages.is_null()) {
    messages = {{{"role", "user"}, {"content", record.prompt}}, {{"role", "assistant"}, {"content", record.response}}};
  }
  try {
    std::vector<Sample> samples = chat_samples(messages, encoder, *chat, where);
    if (samples.empty()) throw InputError("{}: no message is the assistant's, so there is nothing to learn", where);
    return samples;
  } catch (const RaisedError& e) {
    throw InputError("{}: the chat template of {} refuses this conversation: {}", where, chat->where(), e.what());
  } catch (const RunError& e) {
    throw InputError("{}: the chat template refuses this conversation: {}", where, e.what());
  }
}

bool is_empty(const Sample& sample) { return sample.ids.size() <= 1; }

bool truncate(Sample& sample, int64_t seq) {
  const auto kept = std::min(sample.ids.size(), static_cast<size_t>(std::max<int64_t>(seq, 0)));
  sample.ids.resize(kept);
  sample.is_target.resize(kept);
  if (!sample.is_target.empty()) sample.is_target[0] = 0;  // nothing stands before it to predict it from
  return std::find(sample.is_target.begin(), sample.is_target.end(), 1) != sample.is_target.end();
}

PreparedData prepare_samples(Dataset& data, const Encoder& encoder, const ChatTemplate* chat, int64_t seq,
                             ThreadPool& pool) {
  PreparedData out;
  Collector collector(out, seq);
  std::vector<RawRow> rows;
  for (bool more = true; more;) {
    rows.clear();
    for (RawRow row; static_cast<int64_t>(rows.size()) < kBatchRows && (more = data.next_raw(row));)
      rows.push_back(row);
    std::vector<RowResult> results(rows.size());
    pool.run(static_cast<int64_t>(rows.size()), [&](int64_t i) {
      RowResult& result = results[static_cast<size_t>(i)];
      const RawRow& row = rows[static_cast<size_t>(i)];
      try {
        result.samples =
            make_samples(data.parse(row), encoder, chat, fmt::format("{}: line {}", data.path(), row.line));
      } catch (...) {
        result.error = std::current_exception();  // rethrown in file order, so that the first bad row is the one named
      }
    });
    for (size_t i = 0; i < rows.size(); ++i) collector.add(results[i], rows[i].line);
  }
  if (out.counts.samples == 0) {
    const std::string lines = collector.dropped_lines();
    if (collector.all_empty()) {
      throw InputError(
          "{}: the rows are empty (lines {}): prompt and response hold no text, so there is nothing to learn",
          data.path(), lines);
    }
    throw InputError("{}: no sample has a token to learn within seq = {} (lines {}): prompts fill the rows; raise seq",
                     data.path(), seq, lines);
  }
  return out;
}

std::string generation_prompt(const ChatTemplate& chat, const Json& messages) {
  return render(chat, messages, true, false);
}

int32_t end_of_turn(const ChatTemplate& chat, const Encoder& encoder) {
  const Record record = {"x", "y", Json(), 0};
  const std::vector<Sample> samples = make_samples(record, encoder, &chat, chat.where());
  return samples.back().ids.back();
}

}  // namespace lazytrain::text
