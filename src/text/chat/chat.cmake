# Chat templates: sources of the text library, relative to src/text.
list(APPEND text_sources
  chat/chat_template.cc
  chat/formats/chat_format.cc chat/formats/chat_json.cc chat/formats/deepseek_v3.cc chat/formats/deepseek_v32.cc
  chat/formats/jinja_format.cc chat/formats/kimi_k2.cc chat/formats/kimi_k3.cc chat/formats/kimi_k3_messages.cc
  chat/formats/python_json.cc chat/formats/schema_type.cc chat/formats/tool_typescript.cc
  chat/parsers/deepseek_tools.cc chat/parsers/hermes_call.cc chat/parsers/hermes_tools.cc
  chat/parsers/kimi_k2_tools.cc chat/parsers/kimi_k3_parser.cc chat/parsers/kimi_k3_tag.cc
  chat/parsers/marker_lexer.cc chat/parsers/output_format.cc chat/parsers/think_stage.cc
  chat/jinja/attributes.cc chat/jinja/container_methods.cc chat/jinja/filters_layout.cc
  chat/jinja/filters_ordering.cc chat/jinja/filters_selection.cc chat/jinja/filters_sequence.cc
  chat/jinja/filters_text.cc chat/jinja/filters_value.cc chat/jinja/format_spec.cc chat/jinja/globals.cc
  chat/jinja/interpreter.cc chat/jinja/interpreter_call.cc chat/jinja/interpreter_expression.cc
  chat/jinja/interpreter_loop.cc chat/jinja/interpreter_statement.cc chat/jinja/item_access.cc
  chat/jinja/json_value.cc chat/jinja/lexer.cc chat/jinja/native_arguments.cc chat/jinja/operators.cc
  chat/jinja/parser.cc chat/jinja/parser_expression.cc chat/jinja/parser_postfix.cc
  chat/jinja/parser_statement.cc chat/jinja/py_format.cc chat/jinja/py_split.cc chat/jinja/py_string.cc
  chat/jinja/registry.cc chat/jinja/string_literal.cc chat/jinja/string_methods.cc chat/jinja/tests.cc
  chat/jinja/value.cc chat/jinja/value_print.cc)
