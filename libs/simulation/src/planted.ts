import type {
  AgentStore,
  CoordinatorConnection,
  CoordinatorTransport,
} from '@cloudless/agent-core';
import type { Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import type { ContainerRuntime } from '@cloudless/runtime';
import type { StateStore } from '@cloudless/state-store';

/**
 * Replacements of what the processes of a world are given, by name: a historical fault is planted
 * by one of them, without a switch in the product. Each is asked for once per process, and gets
 * what it stands in front of.
 */
export interface Planted {
  /** The coordinator's store. */
  readonly store?: (store: StateStore) => StateStore;
  readonly coordinatorClock?: (clock: Clock) => Clock;
  readonly agentClock?: (clock: Clock, nodeId: string) => Clock;
  /** The coordinator's state, as its controllers or its API see it. */
  readonly state?: (
    state: ClusterState,
    reader: 'controllers' | 'api',
    clock: Clock,
  ) => ClusterState;
  /**
   * The controllers of a coordinator that has just started; they may be changed in place, and
   * others be put beside them.
   */
  readonly controllers?: (
    controllers: Controllers,
    given: { readonly state: ClusterState; readonly clock: Clock },
  ) => Controllers;
  /** How an agent dials. */
  readonly transport?: (transport: CoordinatorTransport, clock: Clock) => CoordinatorTransport;
  /** A connection of an agent to the coordinator. */
  readonly connection?: (connection: CoordinatorConnection) => CoordinatorConnection;
  /** The memory of an agent. */
  readonly agentStore?: (store: AgentStore) => AgentStore;
  readonly runtime?: (runtime: ContainerRuntime) => ContainerRuntime;
}
