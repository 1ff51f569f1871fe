baton_test(NAME chat_template_test SOURCES chat/chat_template_test.cc DEPS baton_text)
baton_fuzz(NAME chat_template_fuzz SOURCES chat/chat_template_fuzz.cc DEPS baton_text)
baton_test(NAME output_parser_test SOURCES chat/parsers/output_parser_test.cc DEPS baton_text)
baton_fuzz(NAME output_parser_fuzz SOURCES chat/parsers/output_parser_fuzz.cc DEPS baton_text)
