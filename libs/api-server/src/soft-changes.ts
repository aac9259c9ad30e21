import type { ClusterState } from '@cloudless/cluster-state';
import type { NodeLiveness } from './ports.js';

/**
 * What of a node is not in the store: whether it is alive and what it says of its condition, or its
 * usage.
 */
export type SoftKind = 'liveness' | 'usage';

/** Told of a change, and at which revision the store was then. */
export type SoftListener = (nodeId: string, what: SoftKind, revision: bigint) => void;

/**
 * Remembers at which revision of the store what is not in it last changed, so that a watch that is
 * resumed after a revision learns of it too. Of the time before this coordinator nothing is known:
 * its start counts as a change of all.
 */
export class SoftChanges {
  private readonly startedAt: bigint;
  private readonly changedAt: Readonly<Record<SoftKind, Map<string, bigint>>> = {
    liveness: new Map(),
    usage: new Map(),
  };
  private readonly listeners = new Set<SoftListener>();
  private readonly unsubscribes: readonly (() => void)[];

  constructor(
    private readonly state: ClusterState,
    nodes: Pick<NodeLiveness, 'subscribe' | 'onUsage'>,
  ) {
    this.startedAt = state.view().revision;
    this.unsubscribes = [
      nodes.subscribe((nodeId) => this.note(nodeId, 'liveness')),
      nodes.onUsage((nodeId) => this.note(nodeId, 'usage')),
      state.subscribe((changes) => {
        for (const { kind, id, after } of changes)
          if (kind === 'node' && after === undefined) this.forget(id);
      }),
    ];
  }

  /** @returns Ends the subscription. */
  subscribe(listener: SoftListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * The nodes whose soft state may be another than when the store was at `revision`, each with the
   * revision of that change.
   */
  *since(revision: bigint, what: SoftKind): Iterable<readonly [string, bigint]> {
    for (const { value } of this.state.view().nodes()) {
      const changedAt = this.changedAt[what].get(value.id) ?? this.startedAt;
      // The same revision counts: such a change does not move it on.
      if (changedAt >= revision) yield [value.id, changedAt];
    }
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  private note(nodeId: string, what: SoftKind): void {
    const { revision } = this.state.view();
    if (this.state.view().node(nodeId) !== undefined) this.changedAt[what].set(nodeId, revision);
    for (const listener of this.listeners) listener(nodeId, what, revision);
  }

  private forget(nodeId: string): void {
    this.changedAt.liveness.delete(nodeId);
    this.changedAt.usage.delete(nodeId);
  }
}
