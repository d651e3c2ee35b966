// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The peer: the same transfers in SimGrid, all started at time 0 over links without latency.
//
//   peer PODS X Y Z PAIRS BYTES BANDWIDTH_BPS ROUTES ENDS
// PODS tori of X x Y x Z; in each, every chip sends to every other (PAIRS 0) or PAIRS random pairs
// do. Writes the links of each transfer to ROUTES, one line a transfer, and its end in seconds to
// ENDS; prints the CPU seconds of the simulation alone.
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

struct Pair {
  sg::Host *from, *to;
};

static double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

static std::vector<std::vector<sg::Host*>> make_pods(unsigned long pods,
                                                     const std::vector<unsigned long>& dimensions,
                                                     double bandwidth_Bps) {
  std::vector<std::vector<sg::Host*>> hosts(pods);
  auto* root = sg::create_full_zone("root");
  for (unsigned long pod = 0; pod < pods; ++pod) {
    const std::string name = "pod" + std::to_string(pod);
    const auto make_host = [&](sg::NetZone* zone, const std::vector<unsigned long>&,
                               unsigned long id) {
      auto* host = zone->create_host(name + "-" + std::to_string(id), 1e9);
      hosts[pod].push_back(host);
      return std::make_pair(host->get_netpoint(),
                            static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
    };
    sg::create_torus_zone(name, root, dimensions, sg::ClusterCallbacks(make_host), bandwidth_Bps, 0,
                          sg::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
  }
  root->seal();
  return hosts;
}

static std::vector<Pair> choose_pairs(const std::vector<std::vector<sg::Host*>>& pods, int count) {
  std::vector<Pair> pairs;
  std::mt19937_64 random(1);
  for (const auto& hosts : pods) {
    for (int i = 0; i < count;) {
      const Pair pair{hosts[random() % hosts.size()], hosts[random() % hosts.size()]};
      if (pair.from == pair.to) continue;
      pairs.push_back(pair);
      ++i;
    }
    if (count > 0) continue;
    for (auto* from : hosts) {
      for (auto* to : hosts) {
        if (from != to) pairs.push_back({from, to});
      }
    }
  }
  return pairs;
}

static void write_routes(const std::vector<Pair>& pairs, const char* path) {
  std::map<const sg::Link*, int> ids;
  std::ofstream file(path);
  for (const Pair& pair : pairs) {
    std::vector<sg::Link*> links;
    double latency_s = 0;
    pair.from->route_to(pair.to, links, &latency_s);
    for (const auto* link : links) {
      const int id = ids.emplace(link, int(ids.size())).first->second;
      file << id << (link == links.back() ? '\n' : ' ');
    }
  }
}

int main(int argc, char** argv) {
  sg::Engine engine(&argc, argv);
  if (argc != 10) {
    std::fprintf(stderr, "usage: peer PODS X Y Z PAIRS BYTES BANDWIDTH_BPS ROUTES ENDS\n");
    return 2;
  }
  const auto number = [&](int i) { return std::strtoul(argv[i], nullptr, 10); };
  const auto pods = make_pods(number(1), {number(2), number(3), number(4)}, std::atof(argv[7]));
  const std::vector<Pair> pairs = choose_pairs(pods, int(number(5)));
  write_routes(pairs, argv[8]);

  std::vector<double> ends(pairs.size(), -1);
  const uint64_t bytes = number(6);
  sg::Actor::create("all", pods[0][0], [&] {
    std::vector<sg::CommPtr> comms;
    std::map<const sg::Comm*, size_t> index;
    for (const Pair& pair : pairs) {
      index[comms.emplace_back(sg::Comm::sendto_async(pair.from, pair.to, bytes)).get()] =
          index.size();
    }
    for (size_t i = 0; i < comms.size(); ++i) comms[i]->wait();
    for (const auto& [comm, i] : index) ends[i] = comm->get_finish_time();
  });
  const double began = cpu_seconds();
  engine.run();
  std::printf("%.6f\n", cpu_seconds() - began);
  std::FILE* file = std::fopen(argv[9], "w");
  for (const double end : ends) std::fprintf(file, "%.17g\n", end);
  std::fclose(file);
  return 0;
}
