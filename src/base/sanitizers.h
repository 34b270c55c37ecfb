// Whether this is sanitized code, which takes several times as long: tests then draw fewer cases.
#pragma once

#ifdef __has_feature  // clang; g++ has macros of its own
#define LAZYTRAIN_HAS_FEATURE(name) __has_feature(name)
#else
#define LAZYTRAIN_HAS_FEATURE(name) 0
#endif

namespace lazytrain {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || LAZYTRAIN_HAS_FEATURE(address_sanitizer) || \
    LAZYTRAIN_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lazytrain

#undef LAZYTRAIN_HAS_FEATURE
