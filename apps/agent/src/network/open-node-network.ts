import { isEnded, type Agent, type AgentIdentity, type AgentStore } from '@cloudless/agent-core';
import type { Log } from '@cloudless/base';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { HEALTHY } from '@cloudless/runtime';
import { SILENT_AFTER_MS } from '@cloudless/runtime-process';
import type { AgentConfig } from '../agent-config.js';
import type { ClusterAccess } from '../identity/cluster-access.js';
import type { AgentRuntimes } from '../runtimes/agent-runtimes.js';
import type { EarlyProxy } from './early-proxy.js';
import { NodeNetwork } from './node-network.js';
import { listCoordinators } from './proxy-settings.js';

/**
 * Begins to connect to the network proxy that was started before the other code of the agent was
 * loaded, and tells that proxy about new certificates of the node and new coordinators.
 * @returns Undefined when the node has none.
 */
export function openNodeNetwork(
  config: Pick<AgentConfig, 'coordinator' | 'network' | 'meshAdvertise'>,
  deps: {
    readonly log: Log;
    readonly proxyCommand: readonly string[];
    readonly proxy: EarlyProxy | undefined;
    readonly store: Pick<AgentStore, 'saveIdentity'>;
    readonly access: Pick<ClusterAccess, 'leaseIdentity'>;
  },
): NodeNetwork | undefined {
  const { proxy, proxyCommand, store, access, log } = deps;
  if (proxy === undefined) return undefined;
  const { settings, started } = proxy;
  const network = new NodeNetwork({
    ...{ proxyCommand, settings, started },
    advertise: config.meshAdvertise ?? '',
    isRequired: config.network === 'on',
    clock: systemClock,
    random: systemRandom,
    log: log.child({ component: 'network' }),
  });
  access.leaseIdentity?.onChange(() => network.reloadIdentity());
  followIdentity(store, ({ clusterId, coordinators }) =>
    network.setCluster(clusterId, listCoordinators(config.coordinator, coordinators)),
  );
  return network;
}

/** Calls `onKnown` with each identity that the agent stores. */
export function followIdentity(
  store: Pick<AgentStore, 'saveIdentity'>,
  onKnown: (identity: AgentIdentity) => void,
): void {
  const save = store.saveIdentity.bind(store);
  store.saveIdentity = async (identity) => {
    onKnown(identity);
    await save(identity);
  };
}

/**
 * Returns true when the proxy may end with the agent, as the process supervisor does: the agent stops
 * its workloads, or the node has none and serves no ingress, whose clients know only this node.
 */
export async function mayStopProxy(
  config: Pick<AgentConfig, 'stopWorkloadsOnExit' | 'ingressHttp' | 'ingressHttps'>,
  { runtime }: { readonly runtime: Pick<AgentRuntimes['runtime'], 'list' | 'health'> },
): Promise<boolean> {
  if (config.stopWorkloadsOnExit) return true;
  if (config.ingressHttp !== undefined || config.ingressHttps !== undefined) return false;
  // A list would only wait for the supervisor, whose processes may be running.
  if ((runtime.health?.() ?? HEALTHY).processesSilentMs >= SILENT_AFTER_MS) return false;
  try {
    return (await runtime.list()).length === 0;
  } catch {
    return false; // the containers may be running
  }
}

/**
 * Tells the proxy about each replica of this node that has ended, also while no agent ran.
 * @returns A function that ends the reports.
 */
export function reportEnded(
  { replicas }: Pick<Agent, 'replicas'>,
  network: Pick<NodeNetwork, 'noteEnded'>,
): () => Promise<void> {
  const ignore = (): void => undefined;
  const unsubscribe = replicas.subscribe({
    onChanged: (replicaId) => {
      const phase = replicas.find(replicaId)?.current.phase;
      if (phase !== undefined && isEnded(phase)) network.noteEnded([replicaId]);
    },
    onRefused: ignore,
    onForgotten: ignore,
  });
  const ended = replicas.listRunners().filter(({ current }) => isEnded(current.phase));
  network.noteEnded(ended.map(({ stored }) => stored.replicaId));
  return async () => unsubscribe();
}
