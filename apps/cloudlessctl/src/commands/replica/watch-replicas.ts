import type { JsonValue } from '@bufbuild/protobuf';
import type { WatchReplicasResponse } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { followWatch, type ResumableWatch } from '../../call/resume-watch.js';
import { getReplicaListColumns, toReplicaListRow } from '../../views/replica-list-view.js';
import type { PlacedReplica } from '../../views/replica-list-view.js';
import { formatReplicaPhase } from '../../views/replica-view.js';
import { readFieldFilter } from '../general/list-objects.js';
import { WatchTable } from '../general/watch-table.js';
import { REPLICA_KIND, readReplicaFilter } from './list-replicas.js';

/**
 * Lists the replicas, then prints a row for each change until Ctrl-C. In JSON and YAML, an item is
 * the replica; a replica that is gone has `"deleted": true`.
 */
export async function watchReplicas(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { style, settings } = session;
  const wide = settings.output === 'wide';
  const fieldFilter = readFieldFilter(invocation, REPLICA_KIND);
  const filter = await readReplicaFilter(invocation);
  const { namespace = '', workload: name = '', labelSelector = '', nodeId = '' } = filter;
  const table = new WatchTable(session, getReplicaListColumns(wide));
  const changes = new ReplicaChanges((item) => fieldFilter?.(REPLICA_KIND.toJson(item)) ?? true);
  const watch: ResumableWatch<WatchReplicasResponse> = {
    open: (afterRevision, options) => {
      if (afterRevision === 0n) changes.restart();
      return session.client.watchReplicas(
        { namespace, name, labelSelector, nodeId, afterRevision },
        options,
      );
    },
    onRestart: () => table.restart(),
  };
  await followWatch(
    session,
    watch,
    async (response) => {
      for (const { item, isGone } of changes.update(response)) {
        if (session.isStructured) {
          const json = REPLICA_KIND.toJson(item) as Record<string, JsonValue>;
          await session.printItem(isGone ? { ...json, deleted: true } : json);
          continue;
        }
        const { replica, ...owner } = item;
        const row = isGone
          ? [owner.namespace, owner.workload, replica.id, 'Deleted']
          : toReplicaListRow(item, session.nowMs, style, wide);
        await table.add(`${owner.namespace}/${owner.workload}/${replica.slot}`, row);
      }
      // A response without replicas also comes after 15 s of silence: then nothing is held.
      if (response.workloads.length === 0) await table.flush();
    },
    () => table.flush(),
  );
}

/** A replica that changed, or that is gone or no longer selected. */
interface ReplicaChange {
  readonly item: PlacedReplica;
  readonly isGone: boolean;
}

/** Finds the replicas whose shown state differs from the last one. */
export class ReplicaChanges {
  private readonly known = new Map<string, PlacedReplica>();
  /** The replicas that a watch which began with the current state has sent until now. */
  private sent: Set<string> | undefined;

  /** @param isSelected - Returns true for a replica to report. */
  constructor(private readonly isSelected: (item: PlacedReplica) => boolean) {}

  /** Call it when the watch begins with the current state. */
  restart(): void {
    this.sent = new Set();
  }

  /** Takes a response and returns the changes of the selected replicas, by slot. */
  update({ workloads, synced }: WatchReplicasResponse): readonly ReplicaChange[] {
    const changes = workloads.flatMap(({ namespace, name, replicas, removedReplicaIds }) => [
      ...[...replicas]
        .sort((a, b) => a.slot - b.slot)
        .flatMap((replica) =>
          this.put({ namespace, workload: name, requests: undefined, replica }),
        ),
      ...removedReplicaIds.flatMap((id) => this.remove(id)),
    ]);
    if (!synced || this.sent === undefined) return changes;
    const { sent } = this;
    this.sent = undefined;
    const missing = [...this.known.keys()].filter((id) => !sent.has(id));
    return [...changes, ...missing.flatMap((id) => this.remove(id))];
  }

  private put(item: PlacedReplica): readonly ReplicaChange[] {
    const { id } = item.replica;
    this.sent?.add(id);
    if (!this.isSelected(item)) return this.remove(id);
    const previous = this.known.get(id);
    this.known.set(id, item);
    return previous !== undefined && getShownState(previous) === getShownState(item)
      ? []
      : [{ item, isGone: false }];
  }

  private remove(id: string): readonly ReplicaChange[] {
    const item = this.known.get(id);
    this.known.delete(id);
    return item === undefined ? [] : [{ item, isGone: true }];
  }
}

/** Returns the parts of a replica whose change is shown. */
function getShownState({ replica }: PlacedReplica): string {
  const { ready, leaving, stale, nodeId, restarts, failedStarts, reason, containerId } = replica;
  return JSON.stringify([
    ...[formatReplicaPhase(replica), ready, leaving, stale, nodeId],
    ...[restarts, failedStarts, reason, containerId],
  ]);
}
