import type { ClusterState } from '@cloudless/cluster-state';
import type { NodeLiveness } from '../ports.js';

/** Kinds of live state of a node, which is not in the store: liveness with conditions, or usage. */
export type VolatileKind = 'liveness' | 'usage';

/** @param revision - Revision of the store at the time of the change. */
export type VolatileListener = (nodeId: string, kind: VolatileKind, revision: bigint) => void;

/**
 * Records at which revision of the store the live state of each node last changed, so that a
 * resumed watch includes these changes. Changes before this coordinator became the leader are
 * unknown, so the live state of every node counts as changed at that time.
 *
 * Where several coordinators share the store, the liveness of every node counts as changed whenever
 * a watch is resumed: the client may come from a coordinator that learned of changes later, or not
 * at all, and has the revision from there.
 */
export class LivenessChanges {
  /** Revision of the store when this coordinator became the leader. */
  private readonly startedAt: bigint;
  /** Revision of the last change, by kind and node id. */
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

  /**
   * Calls the listener after each change.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: VolatileListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Returns the ids of the nodes whose live state may have changed since the store was at
   * `revision`, with the revision of the last change.
   */
  *listChangedSince(revision: bigint, kind: VolatileKind): Iterable<readonly [string, bigint]> {
    for (const { value } of this.state.view().nodes()) {
      const changedAt = this.changedAt[kind].get(value.id) ?? this.startedAt;
      // A change of live state does not increase the revision, so a change at an equal revision may
      // have followed.
      if (changedAt >= revision) yield [value.id, changedAt];
      else if (kind === 'liveness' && this.state.isShared) yield [value.id, revision];
    }
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  private recordChange(nodeId: string, kind: VolatileKind): void {
    const { revision } = this.state.view();
    if (this.state.view().node(nodeId) !== undefined) this.changedAt[kind].set(nodeId, revision);
    for (const listener of this.listeners) listener(nodeId, kind, revision);
  }

  private removeNode(nodeId: string): void {
    this.changedAt.liveness.delete(nodeId);
    this.changedAt.usage.delete(nodeId);
  }
}
