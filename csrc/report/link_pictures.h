// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Private to report/: the parts of a picture.
#pragma once

#include "report/bins.h"
#include "report/pictures.h"

namespace trnsim::report {

// Throws ReportError for less than one bin, or a step of no time.
Bins bins_of(const project::Run& run, int64_t count);

// The tiers, and the pod with the busiest link.
void add_links(const project::Run& run, const Bins& bins, StepPicture& picture);

}  // namespace trnsim::report
