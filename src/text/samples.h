// From rows of data to token ids with the mask of what is learnt.
//
// Without a template a sample is encode(prompt) + encode(response) + EOS; response and EOS are learnt, no BOS is added.
//
// With a chat template a sample is put together from pieces, so that what is learnt follows exactly the tokens that
// generation will start from: for each assistant turn
//   prompt  = encode(the messages before it, rendered with the generation prompt)          not learnt
//   target  = encode(the turn as rendered behind that prompt, up to its end-of-turn token) learnt
// The two are encoded apart, since a merge across their border would be one that generation never sees. Templates that
// can think are asked not to (enable_thinking = false), so that the prompt ends with their empty block, unless the turn
// brings reasoning. The end-of-turn token is the control token that the rendered turn ends with, white space aside (the
// newline behind it in ChatML is not learnt); a turn that ends with none gets EOS. A further turn of the same
// conversation continues the sample where its prompt's text begins with the text so far; where the template rewrites
// history (it removes reasoning) the turn becomes a sample of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "text/chat_template.h"
#include "text/dataset.h"
#include "text/encoder.h"

namespace lazytrain::text {

struct Sample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_target;  // 1: this token is learnt (predicted from those before it); the first never is
};

// Samples back to back. Sample i is tokens [offsets[i], offsets[i + 1]).
struct TokenSet {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_target;
  std::vector<int64_t> offsets = {0};

  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t i) const { return offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]; }
  std::span<const int32_t> ids(int64_t i) const {
    return std::span(tokens).subspan(static_cast<size_t>(offsets[static_cast<size_t>(i)]),
                                     static_cast<size_t>(length(i)));
  }
  std::span<const uint8_t> targets(int64_t i) const {
    return std::span(is_target).subspan(static_cast<size_t>(offsets[static_cast<size_t>(i)]),
                                        static_cast<size_t>(length(i)));
  }
  void add(const Sample& sample);
};

struct SampleCounts {
  int64_t rows = 0;       // of the file
  int64_t samples = 0;    // kept
  int64_t truncated = 0;  // kept, and their right end lost
  int64_t dropped = 0;    // nothing to learn was left
  int64_t tokens = 0;
  int64_t targets = 0;
};

struct PreparedData {
  TokenSet samples;
  SampleCounts counts;
};

// The samples of one record before truncation: one, or several for a conversation whose history the template rewrites.
// `where` names the record in errors. `chat` is null for data.template: none. UsageError for messages without a
// template, InputError when the template refuses the conversation or no turn is the assistant's.
std::vector<Sample> make_samples(const Record& record, const Encoder& encoder, const ChatTemplate* chat,
                                 const std::string& where);

// A sample of no text at all: at most the EOS that ends it.
bool is_empty(const Sample& sample);

// Cuts to `seq` tokens. False when no target is left.
bool truncate(Sample& sample, int64_t seq);

// All samples of a data set in file order, tokenised on the pool. InputError naming rows when none has a target.
PreparedData prepare_samples(Dataset& data, const Encoder& encoder, const ChatTemplate* chat, int64_t seq,
                             ThreadPool& pool);

// The text generation starts from, for these messages: the same that training puts before a target.
std::string generation_prompt(const ChatTemplate& chat, const Json& messages);

// The control token with which this template ends an assistant's turn, EOS when it ends with none: generation stops
// here.
int32_t end_of_turn(const ChatTemplate& chat, const Encoder& encoder);

}  // namespace lazytrain::text
