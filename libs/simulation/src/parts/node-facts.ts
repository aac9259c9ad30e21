import type { Taint } from '@cloudless/api';

/** The facts about nodes that a coordinator had when it decided a transaction; sets of node ids. */
export interface NodeFacts {
  readonly alive: ReadonlySet<string>;
  readonly draining: ReadonlySet<string>;
  readonly cordoned: ReadonlySet<string>;
  /** Taints by node. Absent: none. */
  readonly taints?: ReadonlyMap<string, readonly Taint[]>;
  /** Wall clock of the coordinator, milliseconds. */
  readonly wallMs?: number;
  /**
   * How long the coordinator has known each ready replica to be ready, milliseconds. Absent: longer
   * than any min_ready_duration.
   */
  readonly readyForMs?: ReadonlyMap<string, number>;
  /**
   * By how much `readyForMs` may exceed the value at the decision, milliseconds, because the commit
   * took that long. Default 0.
   */
  readonly readyForMaxErrorMs?: number;
}
