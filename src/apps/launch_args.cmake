#The flags of `baton launch`; included by src / apps / CMakeLists.txt.
baton_library(NAME launch_args SOURCES launch_args.cc DEPS baton_launcher CLI11::CLI11)
    baton_test(NAME launch_args_test SOURCES launch_args_test.cc DEPS baton_launch_args)
