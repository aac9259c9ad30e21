import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { errorFields } from '@cloudless/base';
import type { ApiServerDeps } from './ports.js';

/** An agent calls again within 10 s, so one that has not called for so long has found its own coordinator, or is gone. */
const FORGOTTEN_AFTER_MS = 60_000;
/** Clusters that are remembered and told of; an agent may say any id. */
const MAX_CLUSTERS = 16;
/** Of what an agent claims, so much is shown. Ours have 16 characters. */
const MAX_ID_LENGTH = 64;
/** Nodes that are counted for each of them. */
const MAX_NODES = 10_000;

interface ForeignCluster {
  readonly nodes: Set<string>;
  lastCallMs: number;
}

/**
 * Agents of other clusters that have called and were refused. Their own error tells only the operator of their machine;
 * here it may show that this coordinator was started with a wrong or an empty data directory.
 */
export class ForeignAgents {
  private readonly clusters = new Map<string, ForeignCluster>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>) {}

  /** Takes note of a refusal. The first of each cluster is logged as an error and kept as an event. */
  note(nodeId: string, claimedCluster: string): void {
    const { clock, log, state } = this.deps;
    const clusterId = claimedCluster.slice(0, MAX_ID_LENGTH);
    this.forget();
    const known = this.clusters.get(clusterId);
    if (known !== undefined) {
      known.lastCallMs = clock.now();
      if (known.nodes.size < MAX_NODES) known.nodes.add(nodeId);
      return;
    }
    if (this.clusters.size >= MAX_CLUSTERS) return;
    this.clusters.set(clusterId, { nodes: new Set([nodeId]), lastCallMs: clock.now() });
    const message = `node "${nodeId}" of cluster ${clusterId} was refused: this is cluster ${state.clusterId}; ${ADVICE}`;
    log.error('agent of another cluster refused', { nodeId, agentClusterId: clusterId, clusterId: state.clusterId });
    const event = { severity: Severity.ERROR, category: Category.MEMBERSHIP, reason: 'AgentOfAnotherCluster', message };
    state
      .write(state.transaction().event(event))
      .catch((reason: unknown) => log.warn('event not written', { reason: event.reason, ...errorFields(reason) }));
  }

  /** One sentence for each cluster whose agents have called within the last minute; for /ready. */
  warnings(): readonly string[] {
    this.forget();
    return [...this.clusters].map(
      ([clusterId, { nodes }]) =>
        `${nodes.size} agents of another cluster (${clusterId}) call this coordinator, which is of cluster ` +
        `${this.deps.state.clusterId}; ${ADVICE}`,
    );
  }

  private forget(): void {
    const since = this.deps.clock.now() - FORGOTTEN_AFTER_MS;
    for (const [id, { lastCallMs }] of this.clusters) if (lastCallMs < since) this.clusters.delete(id);
  }
}

const ADVICE = 'if they belong here, this coordinator has a wrong or an empty data directory';
