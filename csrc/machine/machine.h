// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Machine: one kind of cluster, as figures from a data file. Nothing about hardware stands in code.
//
// Every figure keeps its decimal text, unit, source and confidence; the typed structs below are
// read from them once, exactly: rates and ratios as Rationals, times in ps rounded up, bytes and
// counts whole. A file has exactly the keys of its architecture: an unknown or missing key, or a
// wrong unit, is a MachineError that names the nearest match. Only price, power, physical peaks,
// interference and what an axis of one chip would need may be left out. A Machine is immutable
// after load; `with_override` and `scaled` make others, by way of the figures, so that figures,
// structs and hash always agree.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "machine/stack.h"

namespace trnsim::machine {

// given = whoever asks fixes it (--set): taken as exact, whatever it would be worth elsewhere.
enum class Confidence : uint8_t { measured, published, inferred, guessed, given };
const char* confidence_name(Confidence confidence);
Confidence parse_confidence(const std::string& name);  // throws MachineError on another word

struct Figure {
  std::string key;    // dotted path in the file: "chip.hbm.bandwidth"
  std::string value;  // decimal text as written, or a word ("torus"), or a list ("1, 4, 8")
  std::string unit;   // "GB/s", "GHz", "ns", "GiB", "1" (a count or ratio), "word", "list"
  std::string source;
  Confidence confidence = Confidence::guessed;

  bool operator==(const Figure&) const = default;
};

enum class Architecture : uint8_t { neuroncore, gpu, tpu };
const char* architecture_name(Architecture architecture);

// Peak rates by PyTorch dtype name ("tf32" beside them), dense, FLOP/s per chip. `published` is
// what MFU divides by; `physical` bounds a kernel (equal to published where nothing else is known,
// for the same dtypes), and is what `scaled(machine, "tensor", ...)` changes.
struct Peaks {
  std::map<std::string, Rational> published_flops, physical_flops;
};

struct Hbm {
  int64_t total_bytes = 0, reserved_bytes = 0;  // per chip
  Rational bandwidth_Bps;                       // per chip
  Rational efficiency;                          // achieved share on long streams, in (0, 1]
};

// Trainium: a chip is `cores` NeuronCores; formulas count cycles per core.
struct NeuronCore {
  int64_t cores = 0, cores_per_logical = 0;
  Rational tensor_clock_Hz, vector_clock_Hz, scalar_clock_Hz, gpsimd_clock_Hz;
  int64_t tensor_rows = 0, tensor_columns = 0;  // contraction x stationary: 128 x 128
  int64_t moving_max = 0;                       // moving columns of a matmul instruction: 512
  int64_t min_cycles = 0;                       // of any instruction: 64
  int64_t tensor_fp32_factor = 0;               // fp32 matmul costs this many times bf16: 4
  int64_t tensor_fp8_speedup = 1;   // rows of fp8 that a pass contracts, over those of bf16: 2
  int64_t narrow_copy_speedup = 1;  // of tensor_copy and tensor_scalar on 16-bit data: 4
  int64_t narrow_activation_speedup = 1;                // of activation on 16-bit data
  int64_t gpsimd_start_cycles = 0, dynamic_cycles = 0;  // 150, 600
  int64_t sbuf_partition_bytes = 0;                     // usable per partition
  int64_t psum_partition_bytes = 0;
  int64_t partitions = 0;                        // 128
  int64_t dma_engines = 0;                       // per core
  int64_t dma_descriptor_ps = 0;                 // fixed cost of a descriptor
  Rational dma_engine_peak_Bps, dma_engine_Bps;  // theory (27.2e9), practice (23e9)
  Rational dma_sbuf_to_sbuf_Bps;                 // per core: 217.6e9
  int64_t dge_ps = 0;                            // per DMA instruction of a descriptor generator
  int64_t dge_count = 0;                         // generators per core
  int64_t fill_ps = 0, drain_ps = 0;             // P0, Q0
  Rational vector_tt16_speedup, vector_tt32_speedup;         // tuning knobs, 1 in golden tests
  Rational tensor_efficiency, tensor_small_tile_efficiency;  // pe_eff, and tiles under 128
  Rational sbuf_resident_fraction;  // of SBUF that an intermediate may take to stay
  int64_t launch_ps = 0;            // one executable (graph) launch
  int64_t collective_streams = 0;   // per rank
};

// Fused attention over S keys runs at flops_inf * S / (S + half_length).
struct AttentionRate {
  int64_t head_size = 0;
  bool causal = false, backward = false;
  Rational flops_inf;
  int64_t half_length = 0;
};
// By name, "flash2"; a file may have several, and names the one that is used.
struct AttentionKernels {
  std::map<std::string, std::vector<AttentionRate>> rates;
  std::string used;
};

// NVIDIA: roofline with tile and wave quantisation.
struct Gpu {
  int64_t multiprocessors = 0;
  int64_t tile_rows = 0, tile_columns = 0;          // of a GEMM tile: 128 x 256
  std::map<std::string, Rational> gemm_efficiency;  // by dtype, of the physical peak
  Rational vector_flops;                            // fp32 non-tensor peak
  AttentionKernels attention;
  int64_t kernel_ps = 0;           // shortest kernel on the device
  int64_t host_launch_ps = 0;      // host side, per eager op
  int64_t collective_streams = 0;  // per rank; 0 = one per process group
};

// Google: roofline with operands padded to the matrix unit; a compiled graph, as on Trainium.
struct Tpu {
  int64_t cores = 0;                                // TensorCores, the most ranks of a chip
  int64_t mxu = 0;                                  // contraction and columns are padded to it: 128
  int64_t sublanes = 0;                             // rows are padded to it: 8
  int64_t vmem_bytes = 0;                           // of the chip
  Rational vmem_resident_fraction;                  // that an intermediate may take to stay
  std::map<std::string, Rational> gemm_efficiency;  // by dtype, of the physical peak
  AttentionKernels attention;
  int64_t fusion_ps = 0;  // shortest fusion on the device
  int64_t launch_ps = 0;  // one executable (graph) launch
  int64_t collective_streams = 0;
};

// The collective library's constants. A step's latency, in ps, contains the hop to a neighbour.
// Efficiencies are shares of a link's bandwidth. "neuron" has all but base_ps and those of
// multicast; "nccl" has these, ring_step_ps and link_efficiency; "tpu" has the latter two, and
// in_chip_copy_Bps where ranks share a chip.
struct Collectives {
  std::string library;  // "neuron", "nccl" or "tpu"
  int64_t mesh_step_ps = 0, rdh_step_ps = 0, kanga_step_ps = 0, ring_step_ps = 0;
  Rational mesh_efficiency, rdh_efficiency, link_efficiency;
  Rational in_chip_copy_Bps;  // per logical core
  int64_t base_ps = 0;        // of one call; 0 with "neuron" but for a stack sheet
  int64_t multicast_ps = 0;   // of an all-reduce in the switch (nccl), where it multicasts
  Rational multicast_efficiency;
  Rational tree_efficiency{1, 1};  // of a tree across pods beside a ring (nccl)
  // A ring in a pod by the protocol for small messages (nccl), and its rate beside that of large
  // ones; a rate of 0: there is none.
  int64_t ll_base_ps = 0, ll_ring_step_ps = 0;
  Rational ll_efficiency{0, 1};
};

// The kinds of engines of a chip, in the order of lower::QueueKind.
inline constexpr std::array<const char*, 5> kEngines = {"tensor", "vector", "scalar", "gpsimd",
                                                        "dma"};
// What is left of the speed of each, in 2^-16.
using EngineSpeeds = std::array<int32_t, kEngines.size()>;
inline constexpr int32_t kFullSpeed = 1 << 16;
inline constexpr EngineSpeeds kFullSpeeds = {kFullSpeed, kFullSpeed, kFullSpeed, kFullSpeed,
                                             kFullSpeed};

struct Chip {
  std::string name;  // "trn2"
  Architecture architecture = Architecture::neuroncore;
  Peaks peaks;
  Hbm hbm;
  NeuronCore neuron;  // when architecture is neuroncore
  Gpu gpu;            // when architecture is gpu
  Tpu tpu;            // when architecture is tpu
  Collectives collectives;
  std::vector<int64_t> ranks_per_chip_allowed;  // ascending, {1, 4, 8}; the first is the default
  // While a collective moves data on the chip; rounded to nearest, at least 1. Full where the file
  // says nothing.
  EngineSpeeds interference = kFullSpeeds;
  // What people call its engines, by our word: {"tensor", "tensor cores"}.
  std::map<std::string, std::string> engine_names;

  // Of the architecture; null on a NeuronCore, where attention has formulas.
  const AttentionKernels* attention() const;
};

// The network inside a pod.
enum class ScaleUp : uint8_t { torus, one_switch, hypercube };

// A part of the torus that a job may have to itself, as a box of its own.
struct Slice {
  std::array<int64_t, 3> extent{1, 1, 1};
  std::array<bool, 3> wraps{};  // which axes close to rings
  int64_t chips() const { return extent[0] * extent[1] * extent[2]; }
};

struct Server {
  int64_t chips = 0;              // chips of one server
  Rational host_link_Bps;         // between the host's memory and one chip, one direction
  int64_t host_memory_bytes = 0;  // of one server; 0 = unknown
};

// The network between pods: a Clos of two tiers of switches (leaf, spine) or three (ToR below
// them). A chip has its share of the server's NICs as one port in each direction.
struct SwitchTier {
  int64_t down_ports = 0, up_ports = 0;  // of one switch; down/up is its oversubscription
  bool is_blocking = true;               // false: its links upward never fill, and are no links
  Rational power_W;                      // of one switch and its optics; 0 = unknown
};
// Which of the paths through a fabric's switches a pair of chips takes: one by the places of both,
// one by a hash, or all of them, evenly.
enum class Paths : uint8_t { d_mod_k, hashed, sprayed };
// What is left of a link's bits for data. A packet is `payload` bytes of data and `header` bytes
// around them, gaps between packets included. A packet in `loss` of all is lost; then it alone is
// sent again (selective), or with it all that was on its way after it (go back N): those of one
// round trip. Without the figures all is left.
struct Transport {
  bool is_known = false;
  bool goes_back = false;
  Rational nic_Bps;  // of a chip, all bits
  Rational payload_bytes, header_bytes, loss{0, 1};
  int64_t round_trip_ps = 0;
  Rational congestion_efficiency{1, 1};  // of links while many senders share them
};
struct Fabric {
  int64_t pods = 0;     // that it joins; 0 = the machine has no fabric
  Rational nic_Bps;     // one chip, one direction
  Rational port_Bps;    // one link between switches, one direction
  int64_t rails = 1;    // edge switches that the chips of one server spread over
  bool has_tor = true;  // three tiers; otherwise the leaf is the edge and `tor` is not used
  SwitchTier tor, leaf;
  int64_t spine_ports = 0;
  Rational spine_power_W;  // 0 = unknown
  Paths paths = Paths::d_mod_k;
  Transport transport;
  int64_t step_ps = 0;  // latency of one step or message between pods, hops included
};

struct Machine {
  std::string name, description;
  std::vector<Figure> figures;  // in file order, overrides applied
  Chip chip;
  Server server;
  ScaleUp scale_up = ScaleUp::torus;
  std::array<int64_t, 3> torus{1, 1, 1};     // chips per axis X, Y, Z
  std::array<Rational, 3> torus_axis_Bps{};  // one link, one direction
  std::vector<Slice> slices;                 // ascending; empty: the first chips of the torus
  int64_t switch_chips = 0;                  // on the switch of a pod; 0 = those of one server
  Rational switch_port_Bps;                  // one chip, one direction
  bool switch_multicasts = false;            // and reduces: a byte goes up and down once a member
  int64_t hypercube_axes = 0;                // 2^axes chips
  Rational hypercube_Bps;                    // one link, one direction
  int64_t hop_ps = 0;                        // of one hop; lower says which phases add it
  Fabric fabric;
  Stack stack;
  int64_t job_chips = 0;             // of each pod, of a job of several pods; 0 = all
  Rational price_per_chip_hour_usd;  // 0 = unknown
  int64_t instance_chips = 0;        // that are rented together; 0 = unknown
  Rational power_per_chip_W;         // all-in (the server's share with it); 0 = unknown
  Rational power_package_W;          // of the chip alone; 0 = unknown
  Rational pue;                      // power of the site over that of what it houses; 0 = unknown
  Rational grid_kg_per_kWh;          // CO2 of the site's energy; 0 = unknown
  uint64_t hash = 0;                 // of every figure's key, value and unit, in any order

  const Figure* figure(const std::string& key) const;  // or null
  // "tensor engine", or what the file calls it.
  std::string engine_name(const std::string& engine) const;
};

// Builds and checks a Machine from its figures (trnsim/machine reads the TOML and flattens it).
// `name` is the preset's or file's name.
Machine make_machine(const std::string& name, const std::string& description,
                     const std::vector<Figure>& figures);
// "chip.hbm.bandwidth=3.2TB/s", with a unit where the figure has one: the figure becomes
// {source kSetByHand, confidence given}, or of the confidence that follows: "...=3.2TB/s,guessed".
// "chip.interference.dma=0.8" is a figure of every machine, whether its file has it or not.
// Throws MachineError with the nearest key, or the units to choose from.
Machine with_override(const Machine& machine, const std::string& assignment);
inline constexpr const char* kSetByHand = "set by hand";
// The figures set by hand, each as the assignment that sets it.
std::vector<std::string> overrides_of(const Machine& machine);
// For each of them, in order: the machines with half and with twice of it, of those that can be.
std::vector<std::vector<Machine>> override_neighbours(const Machine& machine);
// Every bandwidth (links, HBM) or rate of one kind times `factor`, for advice by re-simulation.
// what: "hbm", "link.x", "link.y", "link.z", "link.switch", "link.cube", "link.nic", "link.fabric",
// "tensor", "vector", "scalar", "gpsimd", "dma", "host_link", "launch", "latency", "fill". Throws
// MachineError on another word. "tensor" leaves the published peaks, which MFU divides by;
// "launch", "latency" (of collectives) and "fill" (of DMA, and drain) divide times.
// A factor that takes a rate past 64 bits (9.2e18 in its base unit) throws MachineError too.
Machine scaled(const Machine& machine, const std::string& what, Rational factor);
// The words of `scaled` that mean something on this machine.
std::vector<std::string> scalable(const Machine& machine);

// Shares of the fabric's rates that a transport leaves for data; their product, rounded down to a
// millionth, is in the rates of its links.
struct TransportShares {
  Rational header{1, 1};      // payload / (payload + header)
  int64_t window = 1;         // packets of a round trip at the rate of a chip's NIC
  Rational retransmit{1, 1};  // 1 - p, or (1 - p) / (1 - p + p window) where it goes back
  Rational congestion{1, 1};
  Rational all{1, 1};
};
TransportShares transport_shares(const Transport& transport);
// A chip's part of the power of all switches that its traffic may use, by ports: full switches,
// whoever else is under them. Nothing where the power of some tier is not known.
std::optional<Rational> network_power_per_chip_W(const Fabric& fabric);

// Equal figures, in any order, and description; the name is only where they were found.
bool operator==(const Machine& a, const Machine& b);

}  // namespace trnsim::machine
