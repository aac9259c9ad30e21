import { isEnded, type Agent, type AgentIdentity, type AgentStore } from '@cloudless/agent-core';
import { definedFields, type Log } from '@cloudless/base';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import type { AgentConfig } from '../agent-config.js';
import type { ClusterAccess } from '../identity/cluster-access.js';
import type { AgentRuntimes } from '../runtimes/agent-runtimes.js';
import { usesTls } from '../tls-settings.js';
import { readHostId } from './host-id.js';
import { NodeNetwork } from './node-network.js';

/**
 * Begins to start the network proxy of this node, or to connect to a running one.
 * @returns Undefined when the node has none.
 */
export async function startNodeNetwork(
  config: AgentConfig,
  deps: {
    readonly log: Log;
    readonly proxyCommand: readonly string[];
    readonly store: Pick<AgentStore, 'load' | 'saveIdentity'>;
    readonly access: Pick<ClusterAccess, 'leaseIdentity'>;
  },
): Promise<NodeNetwork | undefined> {
  const { network: choice, name: nodeId, zone, region, dataDir } = config;
  if (choice === 'off' || process.platform !== 'linux') return undefined;
  const { identity } = await deps.store.load();
  const network = new NodeNetwork({
    proxyCommand: deps.proxyCommand,
    settings: {
      ...{ nodeId, zone, region, dataDir, hostId: readHostId(), usesTls: usesTls(config) },
      coordinators: listCoordinators(config.coordinator, identity?.coordinators),
      ...definedFields({
        meshListen: config.meshListen,
        ingressHttp: config.ingressHttp,
        ingressHttps: config.ingressHttps,
      }),
    },
    advertise: config.meshAdvertise ?? '',
    isRequired: choice === 'on',
    clock: systemClock,
    random: systemRandom,
    log: deps.log.child({ component: 'network' }),
  });
  deps.access.leaseIdentity?.onChange(() => network.reloadIdentity());
  followCoordinators(deps.store, (known) =>
    network.setCoordinators(listCoordinators(config.coordinator, known)),
  );
  return network;
}

/** Addresses for the proxy: the configured ones, then those of the coordinators that are known. */
export function listCoordinators(
  configured: readonly string[],
  known: readonly { readonly address: string }[] = [],
): readonly string[] {
  const { protocol } = new URL(configured[0] ?? '');
  const all = new Set([...configured, ...known.map(({ address }) => address)]);
  return [...all].filter((address) => address.startsWith(protocol));
}

/** Calls `onKnown` with the coordinators of each identity that the agent stores. */
export function followCoordinators(
  store: Pick<AgentStore, 'saveIdentity'>,
  onKnown: (known: AgentIdentity['coordinators']) => void,
): void {
  const save = store.saveIdentity.bind(store);
  store.saveIdentity = async (identity) => {
    onKnown(identity.coordinators);
    await save(identity);
  };
}

/**
 * Returns true when the proxy may end with the agent, as the process supervisor does: the agent stops
 * its workloads, or the node has none and serves no ingress, whose clients know only this node.
 */
export async function mayStopProxy(
  config: Pick<AgentConfig, 'stopWorkloadsOnExit' | 'ingressHttp' | 'ingressHttps'>,
  { runtime }: { readonly runtime: Pick<AgentRuntimes['runtime'], 'list'> },
): Promise<boolean> {
  if (config.stopWorkloadsOnExit) return true;
  if (config.ingressHttp !== undefined || config.ingressHttps !== undefined) return false;
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
