/* histogram.cpp: see histogram.h. */
#include "histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <vector>

#include <boost/histogram.hpp>

namespace bh = boost::histogram;

namespace
{

constexpr double least_ns = 10;
constexpr double most_ns = 1e12;
constexpr double bin_width = 1.005;

using axis_type = bh::axis::regular<double, bh::axis::transform::log>;
/* A plain array of counters: recording allocates nothing. */
using histogram_type = decltype(bh::make_histogram_with(std::vector<uint64_t>(), axis_type()));

unsigned bin_count()
{
    return static_cast<unsigned>(std::ceil(std::log(most_ns / least_ns) / std::log(bin_width)));
}

} // namespace

struct histogram {
    histogram_type counts =
        bh::make_histogram_with(std::vector<uint64_t>(), axis_type(bin_count(), least_ns, most_ns));
    uint64_t count = 0;
    uint64_t max_ns = 0;
    double sum_ns = 0;
};

struct histogram *histogram_create(void)
{
    try {
        return new histogram;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void histogram_destroy(struct histogram *histogram)
{
    delete histogram;
}

void histogram_record(struct histogram *histogram, uint64_t ns)
{
    histogram->counts(static_cast<double>(ns));
    histogram->count++;
    histogram->sum_ns += static_cast<double>(ns);
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
}

void histogram_reset(struct histogram *histogram)
{
    histogram->counts.reset();
    histogram->count = 0;
    histogram->max_ns = 0;
    histogram->sum_ns = 0;
}

void histogram_add(struct histogram *histogram, const struct histogram *more)
{
    histogram->counts += more->counts;
    histogram->count += more->count;
    histogram->sum_ns += more->sum_ns;
    histogram->max_ns = std::max(histogram->max_ns, more->max_ns);
}

uint64_t histogram_count(const struct histogram *histogram)
{
    return histogram->count;
}

uint64_t histogram_max_ns(const struct histogram *histogram)
{
    return histogram->max_ns;
}

double histogram_mean_ns(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum_ns / static_cast<double>(histogram->count) : 0;
}

uint64_t histogram_percentile_ns(const struct histogram *histogram, double percent)
{
    const auto wanted =
        static_cast<uint64_t>(std::ceil(static_cast<double>(histogram->count) * percent / 100));
    uint64_t seen = 0;
    if (histogram->count == 0) {
        return 0;
    }
    for (auto &&bin : bh::indexed(histogram->counts, bh::coverage::all)) {
        seen += *bin;
        if (seen >= wanted) {
            const double edge = bin.bin(0).upper();
            return edge < static_cast<double>(histogram->max_ns) ? static_cast<uint64_t>(edge)
                                                                 : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
