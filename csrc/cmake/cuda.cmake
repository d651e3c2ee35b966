# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
#
# CUDA is compiled when a toolkit is there, and never required.
set(TRNSIM_WITH_CUDA OFF)
if(NOT TRNSIM_CUDA STREQUAL "off")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${TRNSIM_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    set(TRNSIM_WITH_CUDA ON)
  elseif(TRNSIM_CUDA STREQUAL "on")
    message(FATAL_ERROR "TRNSIM_CUDA=on, but no CUDA toolkit was found: put nvcc on the PATH")
  endif()
endif()
message(STATUS "trnsim: CUDA ${TRNSIM_WITH_CUDA}, Thrust ${TRNSIM_THRUST_INCLUDE}")
