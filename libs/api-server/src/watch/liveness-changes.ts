import type { ClusterState } from '@cloudless/cluster-state';
import type { NodeLiveness } from '../ports.js';

/** State of a node that is not in the store: liveness and conditions, or usage. */
export type VolatileKind = 'liveness' | 'usage';

/** @param revision - Revision of the store at the time of the change. */
export type VolatileListener = (nodeId: string, what: VolatileKind, revision: bigint) => void;

/**
 * Records, for state that is not in the store, the revision at which it last changed, so that a
 * resumed watch includes it. The time before the start of this coordinator is unknown, so its start
 * counts as a change of everything.
 */
export class LivenessChanges {
  private readonly startedAt: bigint;
  private readonly changedAt: Readonly<Record<VolatileKind, Map<string, bigint>>> = {
    liveness: new Map(),
    usage: new Map(),
  };
  private readonly listeners = new Set<VolatileListener>();
  private readonly unsubscribes: readonly (() => void)[];

  constructor(
    private readonly state: ClusterState,
    nodes: Pick<NodeLiveness, 'subscribe' | 'onUsage'>,
  ) {
    this.startedAt = state.view().revision;
    this.unsubscribes = [
      nodes.subscribe((nodeId) => this.recordChange(nodeId, 'liveness')),
      nodes.onUsage((nodeId) => this.recordChange(nodeId, 'usage')),
      state.subscribe((changes) => {
        for (const { kind, id, after } of changes)
          if (kind === 'node' && after === undefined) this.removeNode(id);
      }),
    ];
  }

  /** @returns Ends the subscription. */
  subscribe(listener: VolatileListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Returns the nodes whose state may have changed since the store was at `revision`, with the
   * revision of the change.
   */
  *listChangedSince(revision: bigint, what: VolatileKind): Iterable<readonly [string, bigint]> {
    for (const { value } of this.state.view().nodes()) {
      const changedAt = this.changedAt[what].get(value.id) ?? this.startedAt;
      // An equal revision counts, because such a change does not increase the revision.
      if (changedAt >= revision) yield [value.id, changedAt];
    }
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  private recordChange(nodeId: string, what: VolatileKind): void {
    const { revision } = this.state.view();
    if (this.state.view().node(nodeId) !== undefined) this.changedAt[what].set(nodeId, revision);
    for (const listener of this.listeners) listener(nodeId, what, revision);
  }

  private removeNode(nodeId: string): void {
    this.changedAt.liveness.delete(nodeId);
    this.changedAt.usage.delete(nodeId);
  }
}
