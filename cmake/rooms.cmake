# baton_library(NAME base SOURCES a.cc b.cc DEPS fmt::fmt)    the library of one room, target baton_<NAME>
# baton_test(NAME base_test SOURCES a_test.cc DEPS baton_base [TIMEOUT s] [LABELS slow])
# baton_bench(NAME kernels_bench SOURCES matmul_bench.cc DEPS baton_kernels)
# baton_fuzz(NAME gguf_fuzz SOURCES gguf_fuzz.cc DEPS baton_weights)     only with -DBATON_FUZZ=ON
# A source named *_avx2.cc or *_avx512.cc is compiled for that instruction set; nothing else is, so that one binary
# runs on any x86-64 machine and chooses at run time.

set(BATON_AVX2_FLAGS -march=x86-64-v3)
set(BATON_AVX512_FLAGS -march=x86-64-v4 -mavx512vnni -mavx512bf16 -mavx512vbmi -mavx512vbmi2 -mgfni)

function(_baton_isa_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${BATON_AVX2_FLAGS}")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${BATON_AVX512_FLAGS}")
    endif()
  endforeach()
endfunction()

function(baton_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  _baton_isa_flags(${ARG_SOURCES})
  add_library(baton_${ARG_NAME} STATIC ${ARG_SOURCES})
  target_link_libraries(baton_${ARG_NAME} PUBLIC baton_options ${ARG_DEPS})
endfunction()

# What every test has, however it is made: a time limit in seconds, and the sanitizers' options.
function(baton_test_limits NAME TIMEOUT)
  math(EXPR limit "${TIMEOUT} * ${BATON_TEST_SLOWDOWN}")
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${limit} ENVIRONMENT "${BATON_TEST_ENVIRONMENT}")
endfunction()

function(baton_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE baton_options ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${ARG_NAME} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --gtest_brief=1)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}")
  baton_test_limits(${ARG_NAME} ${ARG_TIMEOUT})
endfunction()

function(baton_bench)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE baton_options ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main)
endfunction()

function(baton_fuzz)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  if(BATON_FUZZ)
    add_executable(${ARG_NAME} ${ARG_SOURCES})
    target_link_libraries(${ARG_NAME} PRIVATE baton_options ${ARG_DEPS})
    target_compile_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()
