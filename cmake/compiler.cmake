# Language, warnings, sanitizers and the numeric rules that every translation unit shares.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR
    "g++ ${CMAKE_CXX_COMPILER_VERSION} miscompiles C++20 coroutines: in `co_await f(<temporary>)` it destroys a "
    "capturing lambda or a braced aggregate twice (a double free under load). Configure with clang-19: "
    "cmake --preset release, or -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19.")
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR
    "Baton is built and tested with clang-19; this is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. "
    "Configure with -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 (Debian package clang-19).")
endif()

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(BATON_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, address (with undefined) or thread")

add_library(baton_options INTERFACE)
target_include_directories(baton_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(baton_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -Werror
  # The exactness contract: no contraction behind our back, no fast-math.
  -ffp-contract=off -fno-fast-math)
target_link_options(baton_options INTERFACE -fuse-ld=lld)

if(BATON_SANITIZE STREQUAL "address")
  set(flags -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(BATON_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT BATON_SANITIZE STREQUAL "")
  message(FATAL_ERROR "BATON_SANITIZE=${BATON_SANITIZE}: use address, thread or nothing.")
endif()
# How tests run: a report ends the process with an error, in the processes that a test starts too.
find_program(BATON_SYMBOLIZER NAMES llvm-symbolizer HINTS /usr/lib/llvm-19/bin NO_CACHE)
set(sanitizer_options exitcode=66:allocator_may_return_null=1) # new (nothrow) of too much is null here as elsewhere
if(BATON_SYMBOLIZER)
  string(APPEND sanitizer_options ":external_symbolizer_path=${BATON_SYMBOLIZER}")
endif()
set(BATON_TEST_ENVIRONMENT
  "TSAN_OPTIONS=${sanitizer_options}:halt_on_error=1:second_deadlock_stack=1:suppressions=${CMAKE_SOURCE_DIR}/tools/tsan_suppressions.txt"
  "ASAN_OPTIONS=${sanitizer_options}:detect_leaks=1:check_initialization_order=1:strict_string_checks=1"
  "LSAN_OPTIONS=${sanitizer_options}"
  "UBSAN_OPTIONS=${sanitizer_options}:print_stacktrace=1")
set(BATON_TEST_SLOWDOWN 1)
if(BATON_SANITIZE)
  set(BATON_TEST_SLOWDOWN 4)
  list(APPEND BATON_TEST_ENVIRONMENT BATON_START_SECONDS=240)
  if(NOT BATON_SYMBOLIZER)
    message(WARNING "No llvm-symbolizer (Debian package llvm-19): sanitizers' reports will name no functions, and "
      "tools/tsan_suppressions.txt can't match.")
  endif()
  target_compile_options(baton_options INTERFACE ${flags})
  target_link_options(baton_options INTERFACE ${flags})
  target_compile_definitions(baton_options INTERFACE BATON_SANITIZED=1)
endif()

option(BATON_CHECKS "Compare what arrives with what left; OFF only to measure what that costs, never to serve" ON)

option(BATON_FUZZ "Build the libFuzzer targets (with address sanitizer)" OFF)
if(BATON_FUZZ)
  # Without this in the libraries a fuzzer sees no branch but its own and mutates blindly.
  target_compile_options(baton_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(BATON_CCACHE ccache)
if(BATON_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${BATON_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_CCACHE})
endif()
