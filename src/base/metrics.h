// Counters, gauges and histograms in Prometheus' text format. prometheus-cpp stays behind metrics.cc.
//
// A MetricRegistry is built by apps and passed down; there is no global one. Handles are cheap to copy, live as long
// as the registry, and may be used from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace baton {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  void add(double by = 1);
  double value() const;

 private:
  friend class MetricRegistry;
  void* handle_ = nullptr;
};

class Gauge {
 public:
  void set(double to);
  void add(double by);
  double value() const;

 private:
  friend class MetricRegistry;
  void* handle_ = nullptr;
};

class Histogram {
 public:
  void observe(double value);

 private:
  friend class MetricRegistry;
  void* handle_ = nullptr;
};

class MetricRegistry {
 public:
  // `base` labels are added to every metric (vLLM: model_name, engine).
  explicit MetricRegistry(Labels base = {});
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  // A counter's name is written as given: end it in _total.
  Counter counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram histogram(const std::string& name, const std::string& help, std::vector<double> buckets,
                      const Labels& labels = {});
  // The same registry, where these labels are added to each metric made through it: several engines of one process.
  std::unique_ptr<MetricRegistry> with_labels(const Labels& labels) const;
  // The whole registry in the text exposition format, version 0.0.4.
  std::string text() const;

 private:
  struct Impl;
  MetricRegistry(std::shared_ptr<Impl> impl, Labels labels) : impl_(std::move(impl)), labels_(std::move(labels)) {}
  Labels all_labels(const Labels& labels) const;

  std::shared_ptr<Impl> impl_;  // shared with what with_labels() gave: handles live as long as any of them
  Labels labels_;
};

}  // namespace baton
