#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace baton {

struct MetricRegistry::Impl {
  Labels base;
  prometheus::Registry registry;
};

void Counter::add(double by) {
  if (handle_) static_cast<prometheus::Counter*>(handle_)->Increment(by);
}
double Counter::value() const { return handle_ ? static_cast<prometheus::Counter*>(handle_)->Value() : 0; }
void Gauge::set(double to) {
  if (handle_) static_cast<prometheus::Gauge*>(handle_)->Set(to);
}
void Gauge::add(double by) {
  if (handle_) static_cast<prometheus::Gauge*>(handle_)->Increment(by);
}
double Gauge::value() const { return handle_ ? static_cast<prometheus::Gauge*>(handle_)->Value() : 0; }
void Histogram::observe(double value) {
  if (handle_) static_cast<prometheus::Histogram*>(handle_)->Observe(value);
}

MetricRegistry::MetricRegistry(Labels base) : impl_(std::make_shared<Impl>()) { impl_->base = std::move(base); }
MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::counter(const std::string& name, const std::string& help, const Labels& labels) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Labels(impl_->base).Register(impl_->registry);
  Counter counter;
  counter.handle_ = &family.Add(all_labels(labels));
  return counter;
}

Gauge MetricRegistry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Labels(impl_->base).Register(impl_->registry);
  Gauge gauge;
  gauge.handle_ = &family.Add(all_labels(labels));
  return gauge;
}

Histogram MetricRegistry::histogram(const std::string& name, const std::string& help, std::vector<double> buckets,
                                    const Labels& labels) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Labels(impl_->base).Register(impl_->registry);
  Histogram histogram;
  histogram.handle_ = &family.Add(all_labels(labels), std::move(buckets));
  return histogram;
}

std::unique_ptr<MetricRegistry> MetricRegistry::with_labels(const Labels& labels) const {
  return std::unique_ptr<MetricRegistry>(new MetricRegistry(impl_, all_labels(labels)));
}

Labels MetricRegistry::all_labels(const Labels& labels) const {
  Labels all = labels;
  all.insert(labels_.begin(), labels_.end());
  return all;
}

std::string MetricRegistry::text() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

}  // namespace baton
