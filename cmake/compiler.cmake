# Warnings, sanitizers and ccache for every target.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Options of the C++ compiler; the CUDA plugin has its own (src/plugin/CMakeLists.txt).
function(cxx_options)
  foreach(option ${ARGN})
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:${option}>)
  endforeach()
endfunction()

# What lets ccache look into precompiled headers.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cxx_options(-fpch-preprocess)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  cxx_options("SHELL:-Xclang -fno-pch-timestamp")
endif()

cxx_options(-Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  cxx_options(-Wno-restrict)  # GCC 12 sees overlaps in std::string that are none (GCC bug 105651)
endif()
if(LAZYTRAIN_WERROR)
  cxx_options(-Werror)
endif()
# Fused multiply-add only where the code asks for it: the same bits from g++ and clang.
cxx_options(-ffp-contract=off)

if(LAZYTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${LAZYTRAIN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LAZYTRAIN_SANITIZE})
  # The kernels are one source for all instruction sets; instrumented, two of them (baseline and AVX2) compile in minutes.
  add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3)")
endif()

if(LAZYTRAIN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "LAZYTRAIN_FUZZ needs clang (libFuzzer): cmake --preset asan")
  endif()
  # Only the programs in fuzz/ link the fuzzer's main.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Coverage is counted in the rooms that read files. The others would only be slower; they keep the flag above, without
# which they could not share precompiled headers.
function(without_coverage target)
  if(LAZYTRAIN_FUZZ)
    target_compile_options(${target} PRIVATE
      -fno-sanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table,stack-depth)
  endif()
endfunction()
