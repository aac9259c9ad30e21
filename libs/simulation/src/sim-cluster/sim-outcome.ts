import type { Log } from '@cloudless/base';
import type { WorldPlan } from '../faults/fault-plan.js';
import type { InjectedBug } from './injected-bug.js';

/** Options of a world. */
export interface SimClusterOptions {
  readonly seed: number;
  /** Overrides parts of the plan that is drawn from the seed. */
  readonly plan?: Partial<WorldPlan>;
  /** Replaces parts of the processes, to inject a bug. */
  readonly injected?: InjectedBug;
  /** Called for each line of the trace. */
  readonly onLine?: (line: string) => void;
  /** Log of the coordinator and the agents. Default: no log. */
  readonly log?: Log;
}

/** Result of a world. */
export interface SimOutcome {
  readonly seed: number;
  readonly violations: readonly string[];
  readonly trace: readonly string[];
  /** Virtual milliseconds from the end of all faults until convergence. */
  readonly convergedMs: number | undefined;
  /** Number of committed transactions. */
  readonly commits: number;
  /** Number of acknowledged user calls. */
  readonly acknowledged: number;
}
