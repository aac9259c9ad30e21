import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { errorFields } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';

/**
 * An agent retries within 10 s. An agent that is silent for longer has found its coordinator or was
 * stopped.
 */
const FORGOTTEN_AFTER_MS = 60_000;
/**
 * Clusters that are remembered and reported. The limit exists because an agent may claim any id.
 */
const MAX_CLUSTERS = 16;
/** Characters of a claimed cluster id that are shown. Real ids have 16. */
const MAX_ID_LENGTH = 64;
/** Nodes that are counted for each cluster. */
const MAX_NODES = 10_000;

interface ForeignCluster {
  readonly nodes: Set<string>;
  lastCallMs: number;
}

/**
 * Remembers agents of other clusters that called and were refused. Such calls may show that this
 * coordinator was started with a wrong or an empty data directory; the error that the agent gets
 * reaches only the operator of its machine.
 */
export class ForeignAgents {
  private readonly clusters = new Map<string, ForeignCluster>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>) {}

  /**
   * Records a refusal. The first one of each cluster is logged as an error and written as an event.
   */
  recordRefusal(nodeId: string, claimedCluster: string): void {
    const { clock, log, state } = this.deps;
    const clusterId = claimedCluster.slice(0, MAX_ID_LENGTH);
    this.removeExpired();
    const known = this.clusters.get(clusterId);
    if (known !== undefined) {
      known.lastCallMs = clock.now();
      if (known.nodes.size < MAX_NODES) known.nodes.add(nodeId);
      return;
    }
    if (this.clusters.size >= MAX_CLUSTERS) return;
    this.clusters.set(clusterId, { nodes: new Set([nodeId]), lastCallMs: clock.now() });
    const message = `node "${nodeId}" of cluster ${clusterId} was refused: this is cluster ${state.clusterId}; ${ADVICE}`;
    log.error('agent of another cluster refused', {
      nodeId,
      agentClusterId: clusterId,
      clusterId: state.clusterId,
    });
    const event = {
      severity: Severity.ERROR,
      category: Category.MEMBERSHIP,
      reason: 'AgentOfAnotherCluster',
      message,
    };
    state
      .commitObserved(state.transaction().event(event))
      .catch((reason: unknown) =>
        log.warn('event not written', { reason: event.reason, ...errorFields(reason) }),
      );
  }

  /** One sentence for each cluster whose agents have called within the last minute; for /ready. */
  listWarnings(): readonly string[] {
    this.removeExpired();
    return [...this.clusters].map(
      ([clusterId, { nodes }]) =>
        `${nodes.size === 1 ? '1 agent' : `${nodes.size} agents`} of another cluster (${clusterId}) called this coordinator, ` +
        `which is of cluster ${this.deps.state.clusterId}; ${ADVICE}`,
    );
  }

  private removeExpired(): void {
    const since = this.deps.clock.now() - FORGOTTEN_AFTER_MS;
    for (const [id, { lastCallMs }] of this.clusters)
      if (lastCallMs < since) this.clusters.delete(id);
  }
}

const ADVICE =
  'if these agents belong to this coordinator, its data directory is wrong or empty: start it with the right data directory';
