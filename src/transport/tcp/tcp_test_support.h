// Runs coroutines of a test to their end on one io_context, with the in-memory twin of a stream.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "net/stream.h"

namespace baton::transport::testing {

struct Loop {
  boost::asio::io_context io{1};
  template <typename T>
  void spawn(net::Task<T> task, std::optional<T>& into) {
    boost::asio::co_spawn(io, std::move(task), [&into](std::exception_ptr error, T value) {
      ASSERT_FALSE(error);
      into = std::move(value);
    });
  }
  void run() { io.run_for(std::chrono::seconds(10)); }
};

}  // namespace baton::transport::testing
