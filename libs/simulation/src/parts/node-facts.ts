import type { Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import type { Taint } from '@cloudless/api';
import type { ReadySince } from '../checks/ready-since.js';

/** The facts about nodes that a coordinator had when it decided a transaction; sets of node ids. */
export interface NodeFacts {
  readonly alive: ReadonlySet<string>;
  readonly draining: ReadonlySet<string>;
  readonly cordoned: ReadonlySet<string>;
  /** Taints by node. Absent: none. */
  readonly taints?: ReadonlyMap<string, readonly Taint[]>;
  /** Epoch of the leadership of the coordinator; absent on a follower and with one coordinator. */
  readonly epoch?: bigint;
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

/** Returns the facts about nodes that a coordinator has at this moment. */
export function collectNodeFacts(
  clock: Clock,
  { state, controllers }: { readonly state?: ClusterState; readonly controllers?: Controllers },
  readySince: ReadySince | undefined,
): NodeFacts {
  const nodeFacts = {
    alive: new Set<string>(),
    draining: new Set<string>(),
    cordoned: new Set<string>(),
    wallMs: clock.wallTime(),
    readyForMs: readySince?.durationsMs(clock.now()) ?? new Map<string, number>(),
  };
  if (state === undefined) return nodeFacts;
  for (const { value } of state.view().nodes()) {
    if (controllers?.nodes.isAlive(value.id) === true) nodeFacts.alive.add(value.id);
    if (value.draining) nodeFacts.draining.add(value.id);
    if (value.cordoned) nodeFacts.cordoned.add(value.id);
  }
  return nodeFacts;
}
