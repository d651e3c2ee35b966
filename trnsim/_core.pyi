"""
The simulator's core: machines, workloads, lowering, simulation, projection.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions
__all__: list[str] = ['Advice', 'AtPercentile', 'Backend', 'BlastRadius', 'Breakdown', 'CallSpan', 'ChakraGraph', 'ChakraNode', 'CheckpointChoice', 'Cohorts', 'CollectiveRun', 'Communicator', 'DOINGS', 'Disturbance', 'Disturbances', 'Disturbed', 'Draw', 'Engine', 'Fallback', 'Figure', 'FigureEffect', 'GoodputEstimate', 'JobGroups', 'Link', 'LinkInfo', 'LinkUse', 'Machine', 'MemoryPeak', 'MemoryPicture', 'ModuleShare', 'MovedInput', 'OpShare', 'Outcome', 'Placement', 'PodLinks', 'Program', 'Progress', 'ProjectProgress', 'Projection', 'Rank', 'RoleFigures', 'RoleRow', 'RuleRow', 'Run', 'Step', 'StepPicture', 'System', 'TierRow', 'TimeShares', 'Timeline', 'Topology', 'Variable', 'Workload', 'blast_radius', 'bus_factor', 'chakra_graph', 'check_scenario', 'collective_name', 'compose', 'cost_rules', 'disturb_step', 'estimate_goodput', 'estimate_profile_bytes', 'estimate_trace_bytes', 'figure_effects', 'find_violation', 'fold_system', 'input_group_of', 'input_groups', 'job_groups', 'lower_step', 'make_cohorts', 'make_job_system', 'make_machine', 'make_placement', 'make_system', 'make_topology', 'moved', 'normal_factor', 'parse_disturbance', 'pattern_of_ranks', 'picture_memory', 'picture_step', 'project_step', 'ranks_of_pattern', 'run_collective', 'simulate_seeds', 'simulate_shard', 'simulate_step', 'solve_max_min', 'step_times', 'with_jitter', 'workload_enum_names', 'write_profiles', 'write_trace']
class Figure:
    def __init__(self, key: str, value: str, unit: str, source: str, confidence: str) -> None:
        ...
    @property
    def confidence(self) -> str:
        ...
    @property
    def key(self) -> str:
        ...
    @property
    def source(self) -> str:
        ...
    @property
    def unit(self) -> str:
        ...
    @property
    def value(self) -> str:
        ...
class Machine:
    def __eq__(self, arg0: Machine) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def engine_name(self, engine: str) -> str:
        ...
    def rank_memory_bytes(self, ranks_per_chip: typing.SupportsInt | typing.SupportsIndex = 0) -> int:
        ...
    def scaled(self, what: str, factor: str) -> Machine:
        ...
    def with_override(self, assignment: str) -> Machine:
        ...
    @property
    def architecture(self) -> str:
        ...
    @property
    def chip_name(self) -> str:
        ...
    @property
    def description(self) -> str:
        ...
    @property
    def figures(self) -> list[Figure]:
        ...
    @property
    def grid_kg_per_kwh(self) -> float | None:
        ...
    @property
    def hash(self) -> str:
        ...
    @property
    def hbm_bytes_per_s(self) -> float:
        """
        Of one chip, as published.
        """
    @property
    def host_link_bytes_per_s(self) -> float:
        """
        Between the host's memory and one chip, one direction.
        """
    @property
    def host_memory_bytes(self) -> int | None:
        """
        Of one server's host; None where the file does not say.
        """
    @property
    def legal_chip_counts(self) -> list[int]:
        ...
    @property
    def max_chips(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def network_power_per_chip_w(self) -> float | None:
        """
        A chip's part, by ports, of the power of the switches between pods.
        """
    @property
    def pod_chips(self) -> int:
        ...
    @property
    def power_package_w(self) -> float | None:
        ...
    @property
    def power_per_chip_w(self) -> float | None:
        ...
    @property
    def price_usd_per_chip_hour(self) -> float | None:
        ...
    @property
    def published_flops(self) -> dict[str, float]:
        ...
    @property
    def pue(self) -> float | None:
        ...
    @property
    def ranks_per_chip_allowed(self) -> list[int]:
        ...
    @property
    def scalable(self) -> list[str]:
        ...
    @property
    def server_chips(self) -> int:
        ...
    @property
    def transport_shares(self) -> dict[str, float] | None:
        """
        What the fabric's transport leaves of its links, by cause, and the window in packets;
        None where the machine states none.
        """
class BlastRadius:
    @property
    def box(self) -> int:
        ...
    @property
    def boxes(self) -> int:
        ...
    @property
    def chips_cut(self) -> int:
        ...
    @property
    def chips_slowed(self) -> int:
        ...
    @property
    def left_ecmp(self) -> float:
        ...
    @property
    def left_sprayed(self) -> float:
        ...
    @property
    def pod_nics_left(self) -> float:
        ...
    @property
    def pods_hit(self) -> int:
        ...
    @property
    def switches(self) -> int:
        ...
    @property
    def tier(self) -> str:
        ...
class Link:
    @property
    def from_node(self) -> int:
        ...
    @property
    def healthy_rate(self) -> int:
        ...
    @property
    def rate(self) -> int:
        ...
    @property
    def tier(self) -> str:
        ...
    @property
    def to_node(self) -> int:
        ...
class Topology:
    def link(self, id: typing.SupportsInt | typing.SupportsIndex) -> Link:
        ...
    def link_name(self, id: typing.SupportsInt | typing.SupportsIndex) -> str:
        ...
    def route(self, from_chip: typing.SupportsInt | typing.SupportsIndex, to_chip: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
        ...
    @property
    def can_multicast(self) -> bool:
        ...
    @property
    def chip_count(self) -> int:
        ...
    @property
    def link_count(self) -> int:
        ...
    @property
    def links(self) -> list[Link]:
        ...
    @property
    def pod_chips(self) -> int:
        ...
    @property
    def pod_count(self) -> int:
        ...
    @property
    def tiers(self) -> list[str]:
        ...
class Placement:
    def chip_of(self, rank: typing.SupportsInt | typing.SupportsIndex) -> int:
        ...
    @property
    def chips(self) -> int:
        ...
    @property
    def ranks(self) -> int:
        ...
    @property
    def ranks_per_chip(self) -> int:
        ...
    @property
    def ranks_per_server(self) -> int:
        ...
class Step:
    """
    One training step: records [begin, end) of a Workload.
    """
    @property
    def begin(self) -> int:
        ...
    @property
    def creates_state(self) -> bool:
        ...
    @property
    def end(self) -> int:
        ...
    @property
    def optimizer_count(self) -> int:
        ...
    @property
    def sets_up(self) -> bool:
        ...
    @property
    def whole(self) -> bool:
        ...
class MemoryPeak:
    """
    Peak of the caching allocator, in bytes.
    """
    @property
    def allocated_bytes(self) -> int:
        ...
    @property
    def at_record(self) -> int:
        ...
    @property
    def by_kind(self) -> dict:
        ...
    @property
    def requested_bytes(self) -> int:
        ...
    @property
    def reserved_bytes(self) -> int:
        ...
class Workload:
    """
    What a script asked of the device: ops, tensors, collectives, streams; no hardware in it.
    """
    mode: str
    role: str
    @staticmethod
    def from_capsule(capsule: typing_extensions.CapsuleType) -> Workload:
        ...
    @staticmethod
    def from_columns(tables: dict) -> Workload:
        ...
    def __len__(self) -> int:
        ...
    def add_scalars(self, index: typing.SupportsInt | typing.SupportsIndex, scalars: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | bool | str | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]]]) -> None:
        ...
    def all_as_one_step(self) -> Step:
        """
        All records, wherever steps end in them.
        """
    def check(self) -> None:
        """
        Raises WorkloadError where a table does not fit another.
        """
    def choose_step(self, asked: typing.SupportsInt | typing.SupportsIndex = -1) -> Step:
        """
        The measured step, or whole step number `asked` from 0.
        """
    def classify_storages(self) -> None:
        ...
    def compare(self, other: Workload, limit: typing.SupportsInt | typing.SupportsIndex = 20) -> list[str]:
        """
        One line a difference, at most `limit`; empty when equal.
        """
    def compare_step(self, step: Step, other: Workload, other_step: Step, limit: typing.SupportsInt | typing.SupportsIndex = 20) -> list[str]:
        """
        The same of two ranks' steps, but for where the ranks are.
        """
    def find_steps(self) -> list[Step]:
        ...
    def index_among_whole(self, step: Step) -> int:
        """
        The number of a step among the whole ones; -1 when it is none of them.
        """
    def outside_step(self, step: Step) -> numpy.typing.NDArray[numpy.uint8]:
        ...
    def peers_in_step(self, step: Step) -> list[tuple[int, int]]:
        """
        (group, rank) of everybody that it exchanges messages with.
        """
    def print_record(self, record: typing.SupportsInt | typing.SupportsIndex) -> str:
        ...
    def print_records(self, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt | typing.SupportsIndex) -> list[str]:
        ...
    def replay_allocations(self) -> MemoryPeak:
        ...
    def signature_parts(self, index: typing.SupportsInt | typing.SupportsIndex) -> dict:
        """
        op, inputs and outputs as (name, index, dtype, sizes, strides), scalars by name.
        """
    def to_columns(self) -> dict:
        ...
    @property
    def call_count(self) -> int:
        ...
    @property
    def groups(self) -> list[tuple[str, str]]:
        ...
    @property
    def hash(self) -> str:
        ...
    @property
    def modules(self) -> list[str]:
        ...
    @property
    def notes(self) -> list[str]:
        ...
    @notes.setter
    def notes(self, arg0: collections.abc.Sequence[str]) -> None:
        ...
    @property
    def parameter_count(self) -> int:
        ...
    @parameter_count.setter
    def parameter_count(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def played_by(self) -> str | None:
        """
        The ranks that play the role, as groups are written; None: every rank of the world.
        """
    @played_by.setter
    def played_by(self, arg1: str | None) -> None:
        ...
    @property
    def rank(self) -> int:
        ...
    @rank.setter
    def rank(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def ranks_per_server(self) -> int:
        ...
    @ranks_per_server.setter
    def ranks_per_server(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def seed(self) -> int:
        ...
    @seed.setter
    def seed(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def signature_count(self) -> int:
        ...
    @property
    def unknown_reads(self) -> int:
        ...
    @unknown_reads.setter
    def unknown_reads(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def whole_step_count(self) -> int:
        ...
    @property
    def world_size(self) -> int:
        ...
    @world_size.setter
    def world_size(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class Program:
    """
    One step of one role as engine tasks and transfers, for one machine.
    """
    def __len__(self) -> int:
        ...
    def __str__(self) -> str:
        ...
    def check(self) -> None:
        ...
    def coverage(self) -> list:
        ...
    @property
    def calls(self) -> list:
        ...
    @property
    def guesses(self) -> list:
        ...
    @property
    def hidden_host_ops(self) -> int:
        ...
    @property
    def ops(self) -> list:
        ...
    @property
    def peak_dtype(self) -> str:
        ...
    @property
    def queues(self) -> list:
        ...
    @property
    def role(self) -> str:
        ...
    @property
    def tasks(self) -> dict:
        ...
class LinkUse:
    @property
    def link(self) -> int:
        ...
    @property
    def weight(self) -> int:
        ...
class Variable:
    @property
    def bytes(self) -> int:
        ...
    @property
    def call(self) -> int:
        ...
    @property
    def communicator(self) -> int:
        ...
    @property
    def is_private(self) -> bool:
        ...
    @property
    def latency_ps(self) -> int:
        ...
    @property
    def phase(self) -> int:
        ...
    @property
    def uses(self) -> list[LinkUse]:
        ...
class Communicator:
    @property
    def members(self) -> list[int]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def slot(self) -> int:
        ...
class Rank:
    @property
    def chip(self) -> int:
        ...
    @property
    def communicator_of_slot(self) -> list[int]:
        ...
    @property
    def count(self) -> int:
        ...
    @property
    def factor(self) -> int:
        ...
    @property
    def role(self) -> int:
        ...
    @property
    def start_ps(self) -> int:
        ...
class LinkInfo:
    @property
    def changes(self) -> list[tuple[int, int]]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def rate(self) -> int:
        ...
class System:
    """
    A placed job, ready to be simulated: ranks with their Programs, communicators with their members, and the shares that their transfers have of links. trnsim.fold.place makes one of a Program; that of a projection is trnsim.project(..., fold=False).timeline.system (folded, a rank stands for `count` alike). It is never changed: `with_rank` and the like return another.
    """
    def __repr__(self) -> str:
        ...
    def with_factor_changes(self, rank: typing.SupportsInt | typing.SupportsIndex, changes: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> System:
        ...
    def with_link_changes(self, link: typing.SupportsInt | typing.SupportsIndex, changes: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> System:
        ...
    def with_rank(self, rank: typing.SupportsInt | typing.SupportsIndex, factor: typing.SupportsInt | typing.SupportsIndex, start_ps: typing.SupportsInt | typing.SupportsIndex) -> System:
        ...
    @property
    def communicators(self) -> list[Communicator]:
        ...
    @property
    def links(self) -> list[LinkInfo]:
        ...
    @property
    def ranks(self) -> list[Rank]:
        ...
    @property
    def variables(self) -> list[Variable]:
        ...
class Cohorts:
    def __repr__(self) -> str:
        ...
    @property
    def class_of_communicator(self) -> list[int]:
        ...
    @property
    def class_of_link(self) -> list[int]:
        ...
    @property
    def class_of_rank(self) -> list[int]:
        ...
    @property
    def system(self) -> System:
        ...
class CallSpan:
    @property
    def call(self) -> int:
        ...
    @property
    def communicator(self) -> int:
        ...
    @property
    def end_ps(self) -> int:
        ...
    @property
    def entry_ps(self) -> list[int]:
        ...
    @property
    def first_arrival_ps(self) -> int:
        ...
    @property
    def phase_end_ps(self) -> list[int]:
        ...
    @property
    def sequence(self) -> int:
        ...
    @property
    def start_ps(self) -> int:
        ...
class Timeline:
    """
    When every task and every call of a System starts and ends.
    """
    def __repr__(self) -> str:
        ...
    def rank_ends_ps(self, rank: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int64]:
        ...
    def rank_starts_ps(self, rank: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int64]:
        ...
    @property
    def calls(self) -> list[CallSpan]:
        """
        CallSpans of collectives and messages, by their end.
        """
    @property
    def ends_ps(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        As starts_ps.
        """
    @property
    def engine(self) -> str:
        """
        What simulated it, and why.
        """
    @property
    def event_count(self) -> int:
        """
        Entries and ends of flows in the network.
        """
    @property
    def first_task(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Where the tasks of each rank begin in starts_ps and ends_ps.
        """
    @property
    def hash(self) -> str:
        """
        Of the ends of all tasks, in hexadecimal: the same on any number of threads and devices.
        """
    @property
    def makespan_ps(self) -> int:
        """
        From all engines idle to the end of the last task.
        """
    @property
    def solve_count(self) -> int:
        """
        How often bandwidth was shared out anew.
        """
    @property
    def starts_ps(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Of the tasks of all ranks, one rank after the other; empty without kept times.
        """
    @property
    def system(self) -> System:
        """
        What was simulated.
        """
class Progress:
    def __init__(self) -> None:
        ...
    @property
    def tasks_ended(self) -> int:
        ...
    @property
    def tasks_total(self) -> int:
        ...
class Engine:
    """
    Members:
    
      reference
    
      bulk
    """
    __members__: typing.ClassVar[dict[str, Engine]]
    bulk: typing.ClassVar[Engine]
    reference: typing.ClassVar[Engine]
    @typing.overload
    def __eq__(self, other: Engine) -> bool:
        ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __getstate__(self) -> int:
        ...
    def __hash__(self) -> int:
        ...
    def __index__(self) -> int:
        ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __int__(self) -> int:
        ...
    @typing.overload
    def __ne__(self, other: Engine) -> bool:
        ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __str__(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def value(self) -> int:
        ...
class Backend:
    """
    Members:
    
      automatic
    
      cpp
    
      omp
    
      tbb
    
      cuda
    """
    __members__: typing.ClassVar[dict[str, Backend]]
    automatic: typing.ClassVar[Backend]
    cpp: typing.ClassVar[Backend]
    cuda: typing.ClassVar[Backend]
    omp: typing.ClassVar[Backend]
    tbb: typing.ClassVar[Backend]
    @typing.overload
    def __eq__(self, other: Backend) -> bool:
        ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __getstate__(self) -> int:
        ...
    def __hash__(self) -> int:
        ...
    def __index__(self) -> int:
        ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __int__(self) -> int:
        ...
    @typing.overload
    def __ne__(self, other: Backend) -> bool:
        ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __str__(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def value(self) -> int:
        ...
class ProjectProgress:
    def __init__(self) -> None:
        ...
    @property
    def done(self) -> int:
        ...
    @property
    def tasks_ended(self) -> int:
        ...
    @property
    def tasks_total(self) -> int:
        ...
    @property
    def total(self) -> int:
        ...
class Breakdown:
    @property
    def bubble_ps(self) -> int:
        ...
    @property
    def compute_ps(self) -> int:
        ...
    @property
    def exposed_communication_ps(self) -> int:
        ...
    @property
    def host_ps(self) -> int:
        ...
    @property
    def stall_ps(self) -> int:
        ...
class OpShare:
    @property
    def bound(self) -> str:
        ...
    @property
    def count(self) -> int:
        ...
    @property
    def flops(self) -> float:
        ...
    @property
    def module(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def phase(self) -> str:
        ...
    @property
    def read_bytes(self) -> int:
        ...
    @property
    def roofline_fraction(self) -> float:
        ...
    @property
    def rule_class(self) -> str:
        ...
    @property
    def time_ps(self) -> int:
        ...
    @property
    def write_bytes(self) -> int:
        ...
class ModuleShare:
    @property
    def count(self) -> int:
        ...
    @property
    def flops(self) -> float:
        ...
    @property
    def module(self) -> str:
        ...
    @property
    def read_bytes(self) -> int:
        ...
    @property
    def time_ps(self) -> int:
        ...
    @property
    def write_bytes(self) -> int:
        ...
class Advice:
    @property
    def change(self) -> str:
        ...
    @property
    def gain(self) -> float:
        ...
    @property
    def relieves(self) -> str:
        ...
    @property
    def step_ps(self) -> int:
        ...
class Fallback:
    @property
    def count(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def share(self) -> float:
        ...
class RoleFigures:
    """
    Ranks that run the same thing.
    """
    @property
    def memory_peak_bytes(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def rank_count(self) -> int:
        ...
    @property
    def ranks(self) -> str:
        ...
class Projection:
    @property
    def advice(self) -> list[Advice]:
        ...
    @property
    def bottleneck(self) -> str:
        ...
    @property
    def bottleneck_kind(self) -> str:
        ...
    @property
    def bottleneck_share(self) -> float:
        ...
    @property
    def breakdown(self) -> Breakdown:
        ...
    @property
    def carbon_kg_per_step(self) -> float | None:
        ...
    @property
    def chips(self) -> int:
        ...
    @property
    def chips_used(self) -> int:
        ...
    @property
    def cost_usd_per_step(self) -> float | None:
        ...
    @property
    def energy_j_per_step(self) -> float | None:
        ...
    @property
    def energy_network_j_per_step(self) -> float | None:
        ...
    @property
    def energy_site_j_per_step(self) -> float | None:
        ...
    @property
    def engine_busy(self) -> dict[str, float]:
        ...
    @property
    def exposed_by_group_ps(self) -> dict[str, int]:
        ...
    @property
    def fallback_ops(self) -> list[Fallback]:
        ...
    @property
    def faults(self) -> list[str]:
        ...
    @property
    def fits(self) -> bool:
        ...
    @property
    def guesses(self) -> list[typing.Annotated[list[str], "FixedSize(3)"]]:
        """
        (name, value, effect) of each.
        """
    @property
    def healthy_breakdown(self) -> Breakdown | None:
        ...
    @property
    def healthy_step_ps(self) -> int | None:
        ...
    @property
    def idle_overrides(self) -> list[str]:
        ...
    @property
    def inputs(self) -> list[tuple[str, int, int]]:
        """
        (kind of figures, step_ps at their better bounds, at their worse).
        """
    @property
    def instance_chips(self) -> int:
        ...
    @property
    def interval_basis(self) -> str:
        ...
    @property
    def interval_high_ps(self) -> int:
        ...
    @property
    def interval_low_ps(self) -> int:
        ...
    @property
    def machine(self) -> str:
        ...
    @property
    def memory_by_kind(self) -> dict[str, int]:
        ...
    @property
    def memory_capacity_bytes(self) -> int:
        ...
    @property
    def memory_is_upper_bound(self) -> bool:
        ...
    @property
    def memory_peak_bytes(self) -> int:
        ...
    @property
    def memory_reserved_bytes(self) -> int:
        ...
    @property
    def memory_role(self) -> str:
        ...
    @property
    def mfu(self) -> float | None:
        ...
    @property
    def mfu_causal(self) -> float | None:
        ...
    @property
    def mode(self) -> str:
        ...
    @property
    def model_flops(self) -> float:
        ...
    @property
    def outside_step_ps(self) -> int:
        ...
    @property
    def overrides(self) -> list[str]:
        ...
    @property
    def own_error(self) -> float:
        ...
    @property
    def parameters(self) -> int:
        ...
    @property
    def peak_dtype(self) -> str:
        ...
    @property
    def peak_flops(self) -> float:
        ...
    @property
    def price_usd_per_chip_hour(self) -> float | None:
        ...
    @property
    def ranks(self) -> int:
        ...
    @property
    def ranks_per_chip(self) -> int:
        ...
    @property
    def roles(self) -> list[RoleFigures]:
        ...
    @property
    def samples_per_s(self) -> float | None:
        ...
    @property
    def seed(self) -> int:
        ...
    @property
    def step_ps(self) -> int:
        ...
    @property
    def timeline_hash(self) -> str:
        ...
    @property
    def tokens_per_s(self) -> float | None:
        ...
    @property
    def top_modules(self) -> list[ModuleShare]:
        ...
    @property
    def top_ops(self) -> list[OpShare]:
        ...
    @property
    def workload_hash(self) -> str:
        ...
class Run:
    def task_columns(self, ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> dict:
        ...
    @property
    def cohorts(self) -> Cohorts:
        ...
    @property
    def machine(self) -> Machine:
        ...
    @property
    def programs(self) -> list[Program]:
        """
        One a role, in the order of the Workloads.
        """
    @property
    def projection(self) -> Projection:
        ...
    @property
    def timeline(self) -> Timeline:
        ...
    @property
    def workloads(self) -> list[Workload]:
        ...
class Draw:
    """
    What one seed makes of a disturbance.
    """
    @property
    def faults(self) -> list[str]:
        ...
    @property
    def pods_out(self) -> list[int]:
        ...
    @property
    def sigma(self) -> int:
        ...
    @property
    def slow_chips(self) -> list[str]:
        ...
    @property
    def what(self) -> list[str]:
        ...
class Outcome:
    @property
    def drawn(self) -> Draw:
        ...
    @property
    def high_ps(self) -> int:
        ...
    @property
    def job(self) -> int:
        ...
    @property
    def low_ps(self) -> int:
        ...
    @property
    def seed(self) -> int:
        ...
    @property
    def stops(self) -> str:
        ...
class AtPercentile:
    @property
    def breakdown(self) -> Breakdown | None:
        ...
    @property
    def outcome(self) -> int:
        ...
    @property
    def percentile(self) -> float:
        ...
class Disturbed:
    @property
    def affected(self) -> int:
        ...
    @property
    def at(self) -> list[AtPercentile]:
        ...
    @property
    def outcomes(self) -> list[Outcome]:
        ...
    @property
    def simulated(self) -> int:
        ...
    @property
    def stopped(self) -> int:
        ...
    @property
    def text(self) -> str:
        ...
class Disturbances:
    @property
    def breakdown(self) -> Breakdown:
        ...
    @property
    def rows(self) -> list[Disturbed]:
        ...
    @property
    def smaller_ps(self) -> list[int]:
        ...
    @property
    def step_ps(self) -> int:
        ...
class Disturbance:
    """
    One part of a text, as it is written there.
    """
    @property
    def box(self) -> int:
        """
        Switches in a row that die together.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def tier(self) -> str:
        ...
class RoleRow:
    """
    What the captured rank of a role does over the step.
    """
    @property
    def doing(self) -> list[int]:
        """
        By bin, an index into DOINGS: what most of the bin is.
        """
    @property
    def has_messages(self) -> bool:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def rank(self) -> int:
        ...
    @property
    def rank_count(self) -> int:
        ...
    @property
    def total_ps(self) -> typing.Annotated[list[int], "FixedSize(9)"]:
        """
        By DOINGS; sums to the step.
        """
class TierRow:
    """
    All links of a tier of the network.
    """
    @property
    def bytes(self) -> float:
        """
        Of all of them over the step.
        """
    @property
    def link_count(self) -> int:
        ...
    @property
    def mean(self) -> float:
        """
        Load over the step, mean over all of them.
        """
    @property
    def mean_over_time(self) -> list[float]:
        ...
    @property
    def most_over_time(self) -> list[float]:
        ...
    @property
    def percentiles(self) -> list[float]:
        """
        Of the links' loads over the step: 0, 5, ... 100 %.
        """
    @property
    def rate_Bps(self) -> float:
        ...
    @property
    def tier(self) -> str:
        ...
    @property
    def used_count(self) -> int:
        ...
class PodLinks:
    """
    Loads over the step of the links that leave a chip.
    """
    @property
    def chip_count(self) -> int:
        ...
    @property
    def directions(self) -> list[str]:
        ...
    @property
    def first_chip(self) -> int:
        ...
    @property
    def loads(self) -> list[list[float]]:
        """
        [direction][chip]; -1: no such link.
        """
    @property
    def pod(self) -> int:
        ...
class RuleRow:
    """
    Ops of a cost rule on the critical rank.
    """
    @property
    def op_count(self) -> int:
        ...
    @property
    def rule(self) -> str:
        ...
    @property
    def rule_class(self) -> str:
        ...
    @property
    def time_ps(self) -> int:
        ...
class StepPicture:
    """
    A step in equal bins of time.
    """
    @property
    def doing(self) -> list[list[float]]:
        """
        [DOINGS][bin]: shares, mean over ranks.
        """
    @property
    def engines(self) -> dict[str, list[float]]:
        ...
    @property
    def pod(self) -> PodLinks | None:
        ...
    @property
    def roles(self) -> list[RoleRow]:
        ...
    @property
    def rules(self) -> list[RuleRow]:
        ...
    @property
    def tiers(self) -> list[TierRow]:
        ...
class MemoryPicture:
    """
    Memory of a role's rank over the step.
    """
    @property
    def by_kind(self) -> list[list[int]]:
        """
        [kind][bin]
        """
    @property
    def kinds(self) -> list[str]:
        ...
    @property
    def peak_by_kind(self) -> list[int]:
        ...
    @property
    def peak_bytes(self) -> int:
        ...
    @property
    def peak_ps(self) -> int:
        ...
class FigureEffect:
    """
    The step with one figure at its bounds.
    """
    @property
    def faster_ps(self) -> int:
        ...
    @property
    def input(self) -> str:
        ...
    @property
    def key(self) -> str:
        ...
    @property
    def percent(self) -> int:
        ...
    @property
    def slower_ps(self) -> int:
        ...
class ChakraNode:
    """
    What is computed, sent or waited for.
    """
    @property
    def call(self) -> int:
        """
        Index in the Workload's calls, or -1.
        """
    @property
    def ctrl_deps(self) -> list[int]:
        ...
    @property
    def data_deps(self) -> list[int]:
        ...
    @property
    def dtype(self) -> str:
        ...
    @property
    def end_ps(self) -> int:
        ...
    @property
    def flops(self) -> int:
        ...
    @property
    def kind(self) -> str:
        """
        comp, call or host_read.
        """
    @property
    def module(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def output_bytes(self) -> int:
        ...
    @property
    def phase(self) -> str:
        ...
    @property
    def read_bytes(self) -> int:
        ...
    @property
    def region(self) -> int:
        ...
    @property
    def start_ps(self) -> int:
        ...
    @property
    def stream(self) -> int:
        ...
    @property
    def waits_for_all(self) -> bool:
        ...
    @property
    def write_bytes(self) -> int:
        ...
class ChakraGraph:
    """
    A step of a role's captured rank.
    """
    @property
    def nodes(self) -> list[ChakraNode]:
        ...
    @property
    def ops_of_cycles(self) -> int:
        ...
class JobGroups:
    """
    The process groups of all ranks of a job.
    """
    @property
    def members(self) -> list[list[int]]:
        ...
    @property
    def names(self) -> list[str]:
        ...
    @property
    def of_slot(self) -> list[list[int]]:
        """
        [rank][slot], an index in members or -1.
        """
class CollectiveRun:
    @property
    def algorithm(self) -> str:
        ...
    @property
    def bytes(self) -> int:
        ...
    @property
    def engine(self) -> str:
        ...
    @property
    def high_ps(self) -> int:
        ...
    @property
    def in_steps(self) -> bool:
        ...
    @property
    def low_ps(self) -> int:
        ...
    @property
    def reliefs(self) -> list[tuple[str, int, str]]:
        ...
    @property
    def time_ps(self) -> int:
        ...
    @property
    def uncontended_ps(self) -> int:
        ...
class TimeShares:
    @property
    def checkpoints(self) -> float:
        ...
    @property
    def kept(self) -> float:
        ...
    @property
    def redone(self) -> float:
        ...
    @property
    def restarts(self) -> float:
        ...
    @property
    def waiting(self) -> float:
        ...
class CheckpointChoice:
    @property
    def every(self) -> int:
        ...
    @property
    def goodput(self) -> float:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def work_s(self) -> float:
        ...
class MovedInput:
    @property
    def goodput_high(self) -> float:
        ...
    @property
    def goodput_low(self) -> float:
        ...
    @property
    def input(self) -> str:
        ...
    @property
    def wall_high_s(self) -> float:
        ...
    @property
    def wall_low_s(self) -> float:
        ...
class GoodputEstimate:
    @property
    def choices(self) -> list[CheckpointChoice]:
        ...
    @property
    def drawn_mean_s(self) -> float:
        ...
    @property
    def drawn_s(self) -> typing.Annotated[list[float], "FixedSize(3)"]:
        ...
    @property
    def every(self) -> int:
        ...
    @property
    def failures(self) -> float:
        ...
    @property
    def goodput(self) -> typing.Annotated[list[float], "FixedSize(3)"]:
        ...
    @property
    def moved(self) -> list[MovedInput]:
        ...
    @property
    def shares(self) -> TimeShares:
        ...
    @property
    def standard_error_s(self) -> float:
        ...
    @property
    def wall_s(self) -> typing.Annotated[list[float], "FixedSize(3)"]:
        ...
def blast_radius(machine: Machine, chips: typing.SupportsInt | typing.SupportsIndex, box: typing.SupportsInt | typing.SupportsIndex = 1) -> list[BlastRadius]:
    """
    What dies with a box of so many switches, one row a tier, of the worst box.
    
    Raises MachineError where the chips use no fabric, and for a box of none.
    """
def bus_factor(name: str, ranks: typing.SupportsInt | typing.SupportsIndex) -> tuple[int, int]:
    ...
def chakra_graph(run: Run, role: typing.SupportsInt | typing.SupportsIndex) -> ChakraGraph:
    ...
def check_scenario(slow_chips: collections.abc.Sequence[str], faults: collections.abc.Sequence[str], machine: Machine, placement: Placement) -> None:
    ...
def collective_name(arg0: str) -> str:
    ...
def compose(captured: Workload, segments: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]], schedule: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> Workload:
    """
    A step of more micro-batches: segments are (first record, first allocation event, end of both, micro-batch), the schedule (segment, micro-batch).
    """
def cost_rules() -> list:
    ...
def disturb_step(workloads: collections.abc.Sequence[Workload], machine: Machine, placement: Placement, step: typing.SupportsInt | typing.SupportsIndex, fold: bool, step_mode: bool, disturbances: collections.abc.Sequence[str], first_seed: typing.SupportsInt | typing.SupportsIndex, seeds: typing.SupportsInt | typing.SupportsIndex, spare_pods: typing.SupportsInt | typing.SupportsIndex, smaller: collections.abc.Sequence[tuple[collections.abc.Sequence[Workload], Placement, typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]], exact_tasks: typing.SupportsInt | typing.SupportsIndex, most_tasks: typing.SupportsInt | typing.SupportsIndex, one_by_one: bool, progress: ProjectProgress) -> Disturbances:
    ...
def estimate_goodput(step_s: typing.Annotated[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], "FixedSize(3)"], failures_per_s: typing.Annotated[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], "FixedSize(3)"], restart_s: typing.Annotated[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], "FixedSize(3)"], blocking_s: typing.Annotated[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], "FixedSize(3)"], upload_s: typing.Annotated[collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], "FixedSize(3)"], every: typing.SupportsInt | typing.SupportsIndex, steps: typing.SupportsInt | typing.SupportsIndex, spares: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex] | None, runs: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex) -> GoodputEstimate:
    """
    Inputs as (value, low, high); spares as (count, repair_s, share of failures that take one).
    """
def estimate_profile_bytes(run: Run, ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> int:
    ...
def estimate_trace_bytes(run: Run, ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> int:
    ...
def figure_effects(run: Run, progress: ProjectProgress) -> list[FigureEffect]:
    ...
def find_violation(capacities: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], flows: collections.abc.Sequence[collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]], rates: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> str:
    ...
def fold_system(system: System) -> Cohorts:
    ...
def input_group_of(key: str) -> str:
    ...
def input_groups(machine: Machine) -> dict[str, tuple[Machine, Machine]]:
    ...
def job_groups(run: Run) -> JobGroups:
    ...
def lower_step(workload: Workload, step: Step, machine: Machine, placement: Placement, stack: str = '', algorithm: str = '', step_mode: bool = False) -> Program:
    ...
def make_cohorts(roles: collections.abc.Sequence[tuple[Program, str]], machine: Machine, topology: Topology, placement: Placement, odd_ranks: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> ...:
    ...
def make_job_system(roles: collections.abc.Sequence[tuple[Program, str]], machine: Machine, topology: Topology, placement: Placement, odd_ranks: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> ...:
    ...
def make_machine(name: str, description: str, figures: collections.abc.Sequence[Figure]) -> Machine:
    ...
def make_placement(machine: Machine, chips: typing.SupportsInt | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex, ranks_per_chip: typing.SupportsInt | typing.SupportsIndex) -> Placement:
    ...
def make_system(program: Program, machine: Machine, topology: Topology, placement: Placement, used_ranks: typing.SupportsInt | typing.SupportsIndex) -> System:
    ...
def make_topology(machine: Machine, chips: typing.SupportsInt | typing.SupportsIndex, faults: collections.abc.Sequence[tuple[str, str]] = [], seed: typing.SupportsInt | typing.SupportsIndex = 0) -> Topology:
    ...
def moved(workload: Workload, by: typing.SupportsInt | typing.SupportsIndex) -> Workload:
    """
    The same as the rank that is `by` further on.
    """
def normal_factor(seed: typing.SupportsInt | typing.SupportsIndex, chip: typing.SupportsInt | typing.SupportsIndex, sigma: typing.SupportsInt | typing.SupportsIndex) -> int:
    ...
def parse_disturbance(text: str) -> list[Disturbance]:
    ...
def pattern_of_ranks(ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> str:
    ...
def picture_memory(run: Run, role: typing.SupportsInt | typing.SupportsIndex, bins: typing.SupportsInt | typing.SupportsIndex) -> MemoryPicture:
    ...
def picture_step(run: Run, bins: typing.SupportsInt | typing.SupportsIndex) -> StepPicture:
    ...
def project_step(workloads: collections.abc.Sequence[Workload], machine: Machine, placement: Placement, step: typing.SupportsInt | typing.SupportsIndex, tokens_per_step: typing.SupportsInt | typing.SupportsIndex, samples_per_step: typing.SupportsInt | typing.SupportsIndex, top: typing.SupportsInt | typing.SupportsIndex, advise: bool, interval: bool, fold: bool, step_mode: bool, slow_chips: collections.abc.Sequence[str], faults: collections.abc.Sequence[str], progress: ProjectProgress, all_gather: collections.abc.Callable[[numpy.typing.NDArray[numpy.int64]], collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]], process: typing.SupportsInt | typing.SupportsIndex, processes: typing.SupportsInt | typing.SupportsIndex) -> Run:
    ...
def ranks_of_pattern(pattern: str) -> list[int]:
    ...
def run_collective(name: str, sizes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], machine: Machine, placement: Placement, algorithm: str, shares: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], faults: collections.abc.Sequence[str], step_mode: bool, interval: bool, progress: ProjectProgress) -> list[CollectiveRun]:
    ...
def simulate_seeds(system: System, seeds: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], spread: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    ...
def simulate_shard(system: System, first_rank: typing.SupportsInt | typing.SupportsIndex, end_rank: typing.SupportsInt | typing.SupportsIndex, all_gather: collections.abc.Callable[[numpy.typing.NDArray[numpy.int64]], collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]], keep_times: bool) -> Timeline:
    ...
def simulate_step(system: System, engine: Engine, backend: Backend, certify: bool, use_private: bool, keep_times: bool, progress: Progress) -> Timeline:
    ...
def solve_max_min(capacities: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], flows: collections.abc.Sequence[collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]], solver: str) -> list[int]:
    ...
def step_times(workloads: collections.abc.Sequence[Workload], machines: collections.abc.Sequence[Machine], placement: Placement) -> list[int]:
    ...
def with_jitter(system: System, seed: typing.SupportsInt | typing.SupportsIndex, spread: typing.SupportsInt | typing.SupportsIndex) -> System:
    ...
def workload_enum_names() -> dict:
    ...
def write_profiles(run: Run, ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], folder: str) -> int:
    ...
def write_trace(run: Run, ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], path: str) -> int:
    ...
DOINGS: tuple = ('forward', 'recomputation', 'backward', 'optimizer', 'other work', 'communication', 'bubble', 'host', 'stall')
