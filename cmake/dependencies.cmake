# Everything here is a Debian/Ubuntu package that scripts/setup.sh installs, but for the solvers in third_party/.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(dnnl REQUIRED)
find_package(GTest REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)

# The OpenMP runtime that Debian's oneDNN was built with: only to tell it to stay on the thread that calls it.
execute_process(COMMAND gcc -print-file-name=libgomp.so OUTPUT_VARIABLE GOMP_LIBRARY OUTPUT_STRIP_TRAILING_WHITESPACE)

# HiGHS: what scripts/setup.sh unpacked, else the system's. Only its C interface is used. Without it plans come from the
# greedy rule alone.
find_path(HIGHS_INCLUDE interfaces/highs_c_api.h PATHS ${CMAKE_SOURCE_DIR}/third_party/highs/include/highs NO_DEFAULT_PATH NO_CACHE)
if(HIGHS_INCLUDE)
  add_library(lt_highs SHARED IMPORTED)
  set_target_properties(lt_highs PROPERTIES IMPORTED_LOCATION ${CMAKE_SOURCE_DIR}/third_party/highs/lib/libhighs.so
    INTERFACE_INCLUDE_DIRECTORIES ${HIGHS_INCLUDE})
else()
  find_package(highs QUIET CONFIG)
  if(highs_FOUND)
    add_library(lt_highs INTERFACE IMPORTED)
    target_link_libraries(lt_highs INTERFACE highs::highs)
  else()
    message(STATUS "HiGHS is not there (scripts/setup.sh fetches it): plans will come from the greedy rule alone")
  endif()
endif()
