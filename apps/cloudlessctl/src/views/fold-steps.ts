import type { PlannedStep } from '@cloudless/api';

/** One or more steps of a plan that are shown as one line. */
export interface FoldedSteps {
  readonly text: string;
  /** Minimum of ready replicas after any of the steps. */
  readonly ready: number;
  /** Maximum of live replicas after any of the steps. */
  readonly live: number;
  /** Number of steps. */
  readonly steps: number;
  /** True for a step that cannot happen. */
  readonly blocked: boolean;
}

/** The part of a step that is shown. */
export type ShownStep = Pick<PlannedStep, 'description' | 'ready' | 'live'> & {
  readonly blocked?: boolean;
};

/** A plan with at most this number of lines is short enough to show every round. */
const MAX_UNFOLDED_LINES = 8;
/** Maximum number of lines in a round. The rollout planner produces no longer rounds. */
const MAX_ROUND_LINES = 4;

/**
 * Combines equal consecutive steps: `create 3 of version 2`. In longer plans, repeated rounds are
 * combined too: `… — 12 times`.
 */
export function foldSteps(steps: readonly ShownStep[]): readonly FoldedSteps[] {
  const lines = joinEqual(steps);
  return lines.length <= MAX_UNFOLDED_LINES ? lines : foldRounds(lines);
}

/** Combines equal consecutive steps that create or stop a replica. */
function joinEqual(steps: readonly ShownStep[]): readonly FoldedSteps[] {
  const lines: FoldedSteps[] = [];
  let begin = 0;
  while (begin < steps.length) {
    const first = steps[begin];
    if (first === undefined) break;
    let end = begin + 1;
    while (isCounted(first.description) && steps[end]?.description === first.description) end += 1;
    const run = steps.slice(begin, end);
    lines.push({
      text: first.description.replace(/^(create|stop) 1 /, `$1 ${run.length} `),
      ready: Math.min(...run.map(({ ready }) => ready)),
      live: Math.max(...run.map(({ live }) => live)),
      steps: run.length,
      blocked: first.blocked === true,
    });
    begin = end;
  }
  return lines;
}

/**
 * Returns true for a step that creates or stops one replica. Such steps are combined with a count.
 */
const isCounted = (description: string): boolean => /^(create|stop) 1 /.test(description);

/** Combines consecutive repetitions of the same lines. */
function foldRounds(lines: readonly FoldedSteps[]): readonly FoldedSteps[] {
  const folded: FoldedSteps[] = [];
  let begin = 0;
  while (begin < lines.length) {
    const { length, times } = findLongestRepetition(lines, begin);
    const round = lines.slice(begin, begin + length);
    const all = lines.slice(begin, begin + length * times);
    folded.push({
      text: round.map(({ text }) => text).join(', ') + (times === 1 ? '' : ` — ${times} times`),
      ready: Math.min(...all.map(({ ready }) => ready)),
      live: Math.max(...all.map(({ live }) => live)),
      steps: all.reduce((sum, { steps }) => sum + steps, 0),
      blocked: all.some(({ blocked }) => blocked),
    });
    begin += length * times;
  }
  return folded;
}

/**
 * Returns the repetition that starts at a line and covers most lines; length 1 and times 1 without
 * a repetition.
 */
function findLongestRepetition(
  lines: readonly FoldedSteps[],
  begin: number,
): { readonly length: number; readonly times: number } {
  let best = { length: 1, times: 1 };
  for (let length = 1; length <= MAX_ROUND_LINES; length += 1) {
    let end = begin + length;
    while (end < lines.length && lines[end]?.text === lines[end - length]?.text) end += 1;
    const times = Math.floor((end - begin) / length);
    if (times > 1 && length * times > best.length * best.times) best = { length, times };
  }
  return best;
}
