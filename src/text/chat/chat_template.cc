// ChatTemplate over the Jinja engine.
#include "text/chat_template.h"

#include "text/chat/jinja/json_value.h"
#include "text/chat/jinja/parser.h"
#include "text/chat/render_options.h"

namespace baton::text {

namespace {

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(jinja::Body body, RenderOptions options) : body_(std::move(body)), options_(options) {}

  Result<std::string> render(const nlohmann::ordered_json& variables) const override {
    if (!variables.is_object()) return fail(Code::kInvalidArgument, "template variables must be a JSON object");
    if (variables.size() > kVariablesMax) {
      return fail(Code::kInvalidArgument, "{} template variables; at most {} are taken", variables.size(),
                  kVariablesMax);
    }
    jinja::Interpreter interpreter(options_.limits, options_.now);
    for (const auto& [name, json] : variables.items()) {
      auto value = jinja::value_from_json(interpreter, json);
      if (!value) return fail(value.error().with_context(fmt::format("template variable {}", name)));
      interpreter.set_variable(name, std::move(*value));
    }
    return interpreter.render(body_);
  }

 private:
  jinja::Body body_;
  RenderOptions options_;
};

constexpr size_t kTemplateBytesMax = size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<ChatTemplate>> parse_chat_template(std::string_view source, const RenderOptions& options) {
  if (source.size() > kTemplateBytesMax) {
    return fail(Code::kInvalidArgument, "a chat template of {} bytes; at most {} are read", source.size(),
                kTemplateBytesMax);
  }
  auto body = jinja::parse(source);
  if (!body) return fail(body.error().with_context("chat template"));
  return std::make_unique<JinjaChatTemplate>(std::move(*body), options);
}

Result<std::unique_ptr<ChatTemplate>> parse_chat_template(std::string_view source) {
  return parse_chat_template(source, RenderOptions{});
}

}  // namespace baton::text
