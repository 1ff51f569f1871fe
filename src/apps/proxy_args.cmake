# The flags of `baton proxy`; included by src/apps/CMakeLists.txt.
baton_library(NAME proxy_args SOURCES proxy_args.cc DEPS baton_proxy CLI11::CLI11)
baton_test(NAME proxy_args_test SOURCES proxy_args_test.cc DEPS baton_proxy_args)
