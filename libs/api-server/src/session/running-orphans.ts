import {
  Event_Category as Category,
  Event_Severity as Severity,
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
  type Order,
} from '@cloudless/api';
import type { ApiServerDeps } from '../ports.js';
import { recordEvent } from './record-event.js';

/** A replica that an agent runs, and that no record assigns to its node. */
export interface RunningOrphan {
  readonly nodeId: string;
  readonly replicaId: string;
  /** Uid of the workload that the agent started the replica for. */
  readonly workloadUid: string;
}

/**
 * The running orphans of all nodes, by workload. Most of them exist after a restore, whose state
 * does not know what was started since the backup. Start orders of EXCLUSIVE replicas wait for them,
 * so that two processes of such a workload do not run at the same time. An orphan stays while its
 * agent is disconnected, until the node is lost: by then an EXCLUSIVE replica has stopped itself.
 */
export class RunningOrphans {
  /** By workload uid, then node and replica id. */
  private readonly byWorkload = new Map<string, Map<string, RunningOrphan>>();
  /** Ids of the replicas whose wait was reported. */
  private readonly reported = new Set<string>();
  private readonly unsubscribes: readonly (() => void)[];

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'nodes' | 'log'>) {
    const { state, nodes } = deps;
    this.unsubscribes = [
      nodes.subscribe((nodeId) => {
        if (nodes.status(nodeId).phase === NodePhase.LOST) this.retainOnly(nodeId, () => false);
      }),
      state.subscribe((changes) => {
        for (const { kind, id, after } of changes)
          if (kind === 'node' && after === undefined) this.retainOnly(id, () => false);
      }),
    ];
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  add(orphan: RunningOrphan): void {
    const { workloadUid } = orphan;
    const ofWorkload = this.byWorkload.get(workloadUid) ?? new Map<string, RunningOrphan>();
    this.byWorkload.set(workloadUid, ofWorkload.set(toKey(orphan), orphan));
  }

  /** Removes an orphan that has ended, or that is no orphan any more. */
  remove(orphan: RunningOrphan): void {
    const { workloadUid } = orphan;
    const ofWorkload = this.byWorkload.get(workloadUid);
    if (ofWorkload?.delete(toKey(orphan)) === true && ofWorkload.size === 0)
      this.byWorkload.delete(workloadUid);
    if (this.byWorkload.size === 0) this.reported.clear();
  }

  /**
   * Removes the orphans of a node for which `isKept` returns false.
   * @param isKept - Returns true for the id of a replica that is an orphan still.
   */
  retainOnly(nodeId: string, isKept: (replicaId: string) => boolean): void {
    for (const ofWorkload of [...this.byWorkload.values()])
      for (const orphan of [...ofWorkload.values()])
        if (orphan.nodeId === nodeId && !isKept(orphan.replicaId)) this.remove(orphan);
  }

  /**
   * Returns true when an order has to wait: it starts an EXCLUSIVE replica, while an orphan of the
   * same workload runs. An order for a replica that has been started does not wait.
   */
  delays({ workloadUid, replicaId, order }: Order): boolean {
    if (this.byWorkload.size === 0) return false;
    if (order.case !== 'start' || order.value.stopAfter === undefined) return false;
    const [orphan] = this.byWorkload.get(workloadUid)?.values() ?? [];
    if (orphan === undefined) return false;
    const replica = this.deps.state.view().replica(replicaId)?.value;
    if (replica !== undefined && replica.phase >= Phase.STARTING) return false;
    if (!this.reported.has(replicaId)) this.report(replicaId, orphan, replica?.nodeId);
    return true;
  }

  /** Reports once that the start of a replica waits, in the log and as an event of the workload. */
  private report(replicaId: string, orphan: RunningOrphan, nodeId = ''): void {
    const { state, log } = this.deps;
    this.reported.add(replicaId);
    const message =
      `replica ${replicaId} is EXCLUSIVE and starts only when node ${orphan.nodeId} has stopped ` +
      `replica ${orphan.replicaId}, which no record describes`;
    log.warn('start waits for the end of an orphan', {
      replicaId,
      orphanId: orphan.replicaId,
      nodeId: orphan.nodeId,
    });
    const { namespace = '', name: workload = '' } =
      state.view().workload(orphan.workloadUid)?.value ?? {};
    recordEvent(this.deps, {
      severity: Severity.WARNING,
      category: Category.WORKLOAD,
      reason: 'StartWaits',
      message,
      ...{ namespace, workload, replicaId, nodeId },
    });
  }
}

function toKey({ nodeId, replicaId }: RunningOrphan): string {
  return `${nodeId} ${replicaId}`;
}
