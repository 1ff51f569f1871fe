// A server over a scripted engine, and a client that reads its chat answers as the OpenAI client does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/test_support.h"
#include "server/openai_server.h"
#include "server/testing/byte_tokenizer.h"
#include "server/testing/scripted_engine.h"
#include "text/chat_format.h"

namespace baton::server::testing {

class ChatServer {
 public:
  struct Options {
    std::string answer;  // what the model writes; special tokens by their spelling
    size_t tokens_per_output = 1;
    std::vector<std::string> special_tokens;
    std::string reasoning_parser, tool_call_parser;
    bool enable_auto_tool_choice = true;
    bool exclude_tools_when_tool_choice_none = false;
    std::string chat_template = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}";
  };
  explicit ChatServer(const Options& options) : tokenizer_(options.special_tokens) {
    auto ids = tokenizer_.encode(options.answer, {.add_special_tokens = false});
    ids.push_back(ByteTokenizer::kEos);
    engine_ = std::make_unique<ScriptedEngine>(ScriptedEngine::Script{
        .answer = ids, .tokens_per_output = options.tokens_per_output, .vocab_size = tokenizer_.vocab_size()});
    format_ = text::make_jinja_chat_format(options.chat_template).value();
    ServerOptions made;
    made.http.listen.host = "127.0.0.1";
    made.http.listen.port = 0;
    made.served_model_names = {"m"};
    made.limits.vocab_size = tokenizer_.vocab_size();
    made.output_format = text::OutputFormat::make(options.reasoning_parser, options.tool_call_parser).value();
    made.enable_auto_tool_choice = options.enable_auto_tool_choice && made.output_format.reads_tools();
    made.exclude_tools_when_tool_choice_none = options.exclude_tools_when_tool_choice_none;
    server_ =
        OpenAiServer::start(
            thread_.executor(),
            {.engine = *engine_, .tokenizer = tokenizer_, .chat_format = format_.get(), .metrics = metrics_}, made)
            .value();
  }
  ~ChatServer() {
    server_->close();
    net::wait_until([&] { return server_->open_connections() == 0; });
  }

  struct Answer {
    int status = 0;
    Json body;                 // of a whole answer
    std::vector<Json> chunks;  // of a stream, without [DONE]
    bool done = false;
  };
  Answer chat(Json request) {
    if (!request.contains("messages")) request["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
    const std::string body = request.dump();
    net::RawClient client(server_->port());
    client.send(
        fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
                    "application/json\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
    const std::string got = client.receive();
    const size_t head = std::min(got.find("\r\n\r\n"), got.size());
    Answer answer;
    answer.status = got.size() > 12 ? std::atoi(got.c_str() + 9) : 0;
    const std::string rest = got.substr(std::min(head + 4, got.size()));
    if (got.substr(0, head).find("event-stream") == std::string::npos) {
      answer.body = Json::parse(rest, nullptr, false);
      return answer;
    }
    const std::string events = without_chunking(rest);
    for (size_t at = events.find("data: "); at != std::string::npos; at = events.find("data: ", at + 6)) {
      const std::string data = events.substr(at + 6, events.find("\n\n", at) - at - 6);
      if (data == "[DONE]") {
        answer.done = true;
      } else {
        answer.chunks.push_back(Json::parse(data));
      }
    }
    return answer;
  }
  // The message of one choice, put together from a stream's deltas.
  static Json assembled(const Answer& answer, int index = 0) {
    Json message{{"content", nullptr}, {"reasoning", nullptr}, {"tool_calls", Json::array()}};
    const auto append = [](Json& to, const Json& more) {
      to = (to.is_null() ? std::string() : to.get<std::string>()) + more.get<std::string>();
    };
    for (const auto& chunk : answer.chunks) {
      for (const auto& choice : chunk["choices"]) {
        if (choice["index"] != index) continue;
        if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
        const Json& delta = choice["delta"];
        for (const char* name : {"content", "reasoning"}) {
          if (delta.contains(name) && delta[name] != "") append(message[name], delta[name]);
        }
        for (const auto& call : delta.value("tool_calls", Json::array())) {
          auto& calls = message["tool_calls"];
          const size_t place = call["index"].get<size_t>();
          if (place == calls.size())
            calls.push_back(
                {{"id", call["id"]}, {"function", {{"name", call["function"]["name"]}, {"arguments", ""}}}});
          append(calls[place]["function"]["arguments"], call["function"]["arguments"]);
        }
      }
    }
    return message;
  }
  // The prompt of the last request, as text.
  std::string last_prompt() const { return text::decode(tokenizer_, engine_->requests().back().prompt_ids, false); }

 private:
  static std::string without_chunking(const std::string& body) {
    std::string text;
    for (size_t at = 0; at < body.size();) {
      const size_t size = std::stoul(body.substr(at), nullptr, 16);
      const size_t begin = body.find("\r\n", at) + 2;
      if (size == 0) break;
      text += body.substr(begin, size);
      at = begin + size + 2;
    }
    return text;
  }

  ByteTokenizer tokenizer_;
  std::unique_ptr<ScriptedEngine> engine_;
  std::unique_ptr<text::ChatFormat> format_;
  MetricRegistry metrics_;
  net::ContextThread thread_;
  std::unique_ptr<OpenAiServer> server_;
};

}  // namespace baton::server::testing
