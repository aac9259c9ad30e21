import type {
  AgentStore,
  CoordinatorConnection,
  CoordinatorTransport,
} from '@cloudless/agent-core';
import type { NetworkUpdate } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import type { ContainerRuntime } from '@cloudless/runtime';
import type { StateStore } from '@cloudless/state-store';

/**
 * Replacements of the parts of a world's processes, to inject a known bug without a switch in the
 * product. Each function is called once per process and receives the original part.
 */
export interface InjectedBug {
  /** Replaces the coordinator's store. */
  readonly store?: (store: StateStore) => StateStore;
  /** Replaces the clock of the coordinator. */
  readonly coordinatorClock?: (clock: Clock) => Clock;
  /** Replaces the clock of an agent. */
  readonly agentClock?: (clock: Clock, nodeId: string) => Clock;
  /** Replaces the coordinator's state, for its controllers or its API. */
  readonly state?: (
    state: ClusterState,
    reader: 'controllers' | 'api',
    clock: Clock,
  ) => ClusterState;
  /**
   * Changes the controllers of a coordinator that has just started, in place or by subscribing to
   * the state.
   */
  readonly controllers?: (
    controllers: Controllers,
    sources: { readonly state: ClusterState; readonly clock: Clock },
  ) => Controllers;
  /**
   * Replaces the state of one leadership, in worlds with several coordinators.
   * @param store - The store as the coordinator reaches it.
   */
  readonly term?: (state: ClusterState, store: StateStore) => ClusterState;
  /**
   * True: a coordinator does not notice the end of its leadership; its controllers and sessions go
   * on. For worlds with several coordinators.
   */
  readonly keepsLeading?: boolean;
  /**
   * Replaces what the network proxy of a node receives. Undefined: the update is lost, and confirmed
   * nevertheless.
   */
  readonly proxyUpdate?: (nodeId: string) => (update: NetworkUpdate) => NetworkUpdate | undefined;
  /** Replaces an agent's transport. */
  readonly transport?: (transport: CoordinatorTransport, clock: Clock) => CoordinatorTransport;
  /** Replaces an agent's connection to the coordinator. */
  readonly connection?: (connection: CoordinatorConnection) => CoordinatorConnection;
  /** Replaces the storage of an agent. */
  readonly agentStore?: (store: AgentStore) => AgentStore;
  /** Replaces the container runtime of an agent. */
  readonly runtime?: (runtime: ContainerRuntime) => ContainerRuntime;
}
