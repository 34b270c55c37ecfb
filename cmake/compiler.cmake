# Warnings, sanitizers and ccache for every target.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow)
if(LAZYTRAIN_WERROR)
  add_compile_options(-Werror)
endif()
# Fused multiply-add only where the code asks for it: the same bits from g++ and clang.
add_compile_options(-ffp-contract=off)

if(LAZYTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${LAZYTRAIN_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LAZYTRAIN_SANITIZE})
endif()
