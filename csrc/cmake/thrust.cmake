# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
#
# Thrust is headers only: the CUDA toolkit's, else those of PyPI's nvidia-cuda-cccl.
file(GLOB toolkit_cccl /usr/local/cuda*/include/cccl $ENV{CUDA_HOME}/include/cccl)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u, pathlib as p; s = u.find_spec('nvidia'); \
print(';'.join(str(d) for b in (s.submodule_search_locations if s else []) \
for d in p.Path(b).glob('cu*/include/cccl')))"
  OUTPUT_VARIABLE pypi_cccl OUTPUT_STRIP_TRAILING_WHITESPACE)
find_path(TRNSIM_THRUST_INCLUDE thrust/version.h PATHS ${toolkit_cccl} ${pypi_cccl}
          NO_DEFAULT_PATH)
if(NOT TRNSIM_THRUST_INCLUDE)
  message(FATAL_ERROR "Thrust was not found: pip install nvidia-cuda-cccl, or install a CUDA toolkit")
endif()
# The thread sanitizer knows nothing of what these hand over: each would be a false alarm.
if(NOT TRNSIM_SANITIZE MATCHES thread)
  find_package(OpenMP)
  find_package(TBB QUIET CONFIG)  # a system of Thrust that only tests and comparisons ask for
endif()
add_library(trnsim_thrust INTERFACE)
target_include_directories(trnsim_thrust SYSTEM INTERFACE ${TRNSIM_THRUST_INCLUDE})
