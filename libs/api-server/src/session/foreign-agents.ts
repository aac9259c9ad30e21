import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import type { ApiServerDeps } from '../ports.js';
import { recordEvent } from './record-event.js';

/**
 * A refused agent calls again within 10 s. An agent that has not called for this long has found its
 * coordinator or was stopped.
 */
const FORGOTTEN_AFTER_MS = 60_000;
/**
 * Clusters that are kept and reported. Bounds memory and events, because an agent may claim any
 * cluster id.
 */
const MAX_CLUSTERS = 16;
/** Characters of a claimed cluster id that are kept. Real ids have 16. */
const MAX_ID_LENGTH = 64;
/** Nodes that are counted for each cluster, a bound on memory. */
const MAX_NODES = 10_000;

interface ForeignCluster {
  /** Ids of the nodes whose agents have called. */
  readonly nodes: Set<string>;
  /** Time of the last call on the monotonic clock. */
  lastCallMs: number;
}

/**
 * Keeps which agents of other clusters were refused. Such calls may show that this coordinator was
 * started with a wrong or an empty data directory. The error that a refused agent receives is
 * visible only on the machine of the agent, so the coordinator reports the refusal too.
 */
export class ForeignAgents {
  private readonly clusters = new Map<string, ForeignCluster>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>) {}

  /**
   * Records a refusal. The first refusal of each cluster is logged as an error and written as an
   * event.
   * @param claimedCluster - Cluster id in the Hello of the agent, not empty.
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
    recordEvent(this.deps, {
      severity: Severity.ERROR,
      category: Category.MEMBERSHIP,
      reason: 'AgentOfAnotherCluster',
      message,
    });
  }

  /**
   * Returns one sentence for each other cluster whose agents have called within the last minute.
   * The `/ready` endpoint shows them.
   */
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
