// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A small machine for tests: made-up round numbers, so that nothing here repeats a data file.
#pragma once

#include <string>
#include <vector>

#include "machine/topology.h"

namespace trnsim::machine {

inline void set(std::vector<Figure>& figures, const std::string& key, const std::string& value,
                const std::string& unit) {
  const Figure figure{key, value, unit, "a test", Confidence::guessed};
  for (Figure& old : figures) {
    if (old.key == key) {
      old = figure;
      return;
    }
  }
  figures.push_back(figure);
}

inline std::vector<Figure> gpu_figures(int chips = 8) {
  std::vector<Figure> f;
  set(f, "chip.name", "toy", "word");
  set(f, "chip.architecture", "gpu", "word");
  set(f, "chip.ranks_per_chip", "1", "list");
  set(f, "chip.peak.published.bfloat16", "100", "TFLOP/s");
  set(f, "chip.peak.published.float32", "10", "TFLOP/s");
  set(f, "chip.hbm.total", "80", "GB");
  set(f, "chip.hbm.reserved", "0", "bytes");
  set(f, "chip.hbm.bandwidth", "2.5", "TB/s");
  set(f, "chip.hbm.efficiency", "0.9", "1");
  set(f, "chip.gpu.multiprocessors", "100", "1");
  set(f, "chip.gpu.tile_rows", "128", "1");
  set(f, "chip.gpu.tile_columns", "128", "1");
  set(f, "chip.gpu.vector_rate", "10", "TFLOP/s");
  set(f, "chip.gpu.kernel_latency", "1.5", "us");
  set(f, "chip.gpu.host_launch_latency", "5", "us");
  set(f, "chip.gpu.collective_streams", "0", "1");
  set(f, "chip.gpu.gemm_efficiency.bfloat16", "0.8", "1");
  set(f, "chip.gpu.gemm_efficiency.float32", "0.7", "1");
  set(f, "chip.gpu.attention_kernel", "quick", "word");
  set(f, "chip.gpu.attention.quick.d128.forward_causal.rate", "60", "TFLOP/s");
  set(f, "chip.gpu.attention.quick.d128.forward_causal.half_length", "100", "1");
  set(f, "collectives.library", "nccl", "word");
  set(f, "collectives.base_latency", "10", "us");
  set(f, "collectives.multicast_latency", "20", "us");
  set(f, "collectives.multicast_efficiency", "0.7", "1");
  set(f, "collectives.ring_step_latency", "2", "us");
  set(f, "collectives.link_efficiency", "37/45", "1");
  set(f, "server.chips", std::to_string(chips), "1");
  set(f, "server.host_link_bandwidth", "50", "GB/s");
  set(f, "scale_up.kind", "switch", "word");
  set(f, "scale_up.port_bandwidth", "400", "GB/s");
  set(f, "scale_up.multicast", "yes", "word");
  set(f, "scale_up.hop_latency", "0", "ns");
  return f;
}

inline void drop_switch(std::vector<Figure>& figures) {
  std::erase_if(figures, [](const Figure& f) {
    return f.key == "scale_up.port_bandwidth" || f.key == "scale_up.multicast";
  });
}

// The same chips on a torus, with servers of `server` chips.
inline std::vector<Figure> torus_figures(int x, int y, int z, int server) {
  std::vector<Figure> figures = gpu_figures(server);
  drop_switch(figures);
  set(figures, "scale_up.kind", "torus", "word");
  const int extents[] = {x, y, z};
  for (int axis = 0; axis < 3; ++axis) {
    const std::string letter(1, "xyz"[axis]);
    set(figures, "scale_up.chips_" + letter, std::to_string(extents[axis]), "1");
    if (extents[axis] > 1) {
      set(figures, "scale_up.bandwidth_" + letter, std::to_string(100 >> axis), "GB/s");
    }
  }
  return figures;
}
inline Machine torus_machine(int x, int y, int z, int server) {
  return make_machine("toy-torus", "", torus_figures(x, y, z, server));
}

// 2^axes chips, one server.
inline Machine hypercube_machine(int axes) {
  std::vector<Figure> figures = gpu_figures(1 << axes);
  drop_switch(figures);
  set(figures, "scale_up.kind", "hypercube", "word");
  set(figures, "scale_up.axes", std::to_string(axes), "1");
  set(figures, "scale_up.bandwidth", "100", "GB/s");
  return make_machine("toy-cube", "", figures);
}

// NICs of 20 GB/s a chip, ports of 10 GB/s between switches; ToRs of 8 + 8 ports, leaves of 4 + 4,
// spines of 8: up to 32 ToRs of 8 chips.
inline void add_fabric(std::vector<Figure>& figures, int pods, int chips_of_server, int rails = 1) {
  set(figures, "fabric.kind", "tor_leaf_spine", "word");
  set(figures, "fabric.pods", std::to_string(pods), "1");
  set(figures, "fabric.nic.count", std::to_string(2 * chips_of_server), "1");
  set(figures, "fabric.nic.bandwidth", "10", "GB/s");
  set(figures, "fabric.port_bandwidth", "10", "GB/s");
  set(figures, "fabric.rails", std::to_string(rails), "1");
  set(figures, "fabric.tor.radix", "16", "1");
  set(figures, "fabric.tor.oversubscription", "1", "1");
  set(figures, "fabric.tor.links", "blocking", "word");
  set(figures, "fabric.leaf.radix", "8", "1");
  set(figures, "fabric.leaf.oversubscription", "1", "1");
  set(figures, "fabric.leaf.links", "blocking", "word");
  set(figures, "fabric.spine.radix", "8", "1");
  set(figures, "fabric.ecmp", "d_mod_k", "word");
  set(figures, "fabric.step_latency", "15", "us");
}

inline Machine switch_machine(int chips = 8) { return make_machine("toy", "", gpu_figures(chips)); }

}  // namespace trnsim::machine
