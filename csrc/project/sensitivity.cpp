// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/sensitivity.h"

#include <algorithm>
#include <cstdlib>

#include "project/roles.h"

namespace trnsim::project {
namespace {

using Set = std::vector<const InputFigure*>;

// One figure alone, or a half of many.
void split(const Set& set, std::vector<Set>& parts) {
  constexpr size_t kFew = 4;
  if (set.size() <= kFew) {
    for (const InputFigure* figure : set) parts.push_back({figure});
    return;
  }
  const auto middle = set.begin() + int64_t(set.size() / 2);
  parts.emplace_back(set.begin(), middle);
  parts.emplace_back(middle, set.end());
}

bool matters(const Projection& projection, const InputEffect& effect) {
  const auto off = [&](int64_t step_ps) {
    return double(std::abs(step_ps - projection.step_ps)) >=
           kLeastEffect * double(projection.step_ps);
  };
  return projection.step_ps > 0 && (off(effect.faster_ps) || off(effect.slower_ps));
}

}  // namespace

std::vector<FigureEffect> figure_effects(const Run& run, std::shared_ptr<Progress> progress) {
  const std::vector<InputFigure> figures = input_figures(run.machine);
  std::vector<FigureEffect> effects;
  std::vector<Set> sets;
  for (const InputEffect& effect : run.projection.inputs) {
    Set set;
    for (const InputFigure& figure : figures) {
      if (figure.input == effect.input) set.push_back(&figure);
    }
    if (set.size() == 1) {
      effects.push_back({*set[0], effect.faster_ps, effect.slower_ps});
    } else if (!set.empty() && matters(run.projection, effect)) {
      split(set, sets);
    }
  }
  ProjectOptions options = run.options;
  options.process = 0;
  options.processes = 1;
  options.progress = std::move(progress);
  Case of = make_case(run.workloads, options);
  if (!sets.empty()) of.mould = simulate_case(of, run.machine, options.progress.get()).mould;
  const int64_t step_ps = run.projection.step_ps;
  while (!sets.empty()) {
    std::vector<machine::Machine> machines;
    for (const Set& set : sets) {
      machines.push_back(with_figures_moved(run.machine, set, true));
      machines.push_back(with_figures_moved(run.machine, set, false));
    }
    const std::vector<int64_t> steps = simulate_variants(of, machines, options);
    std::vector<Set> next;
    for (size_t i = 0; i < sets.size(); ++i) {
      const int64_t faster = steps[2 * i], slower = steps[2 * i + 1];
      if (sets[i].size() == 1) {
        effects.push_back({*sets[i][0], faster, slower});
      } else if (faster != step_ps || slower != step_ps) {
        split(sets[i], next);
      }
    }
    sets = std::move(next);
  }
  std::erase_if(effects, [&](const FigureEffect& effect) {
    return effect.faster_ps == step_ps && effect.slower_ps == step_ps;
  });
  const auto place = [&](const FigureEffect& effect) {
    const auto found = std::find_if(figures.begin(), figures.end(), [&](const InputFigure& figure) {
      return figure.key == effect.figure.key;
    });
    return found - figures.begin();
  };
  std::sort(effects.begin(), effects.end(),
            [&](const FigureEffect& a, const FigureEffect& b) { return place(a) < place(b); });
  return effects;
}

}  // namespace trnsim::project
