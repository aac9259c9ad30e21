import type { JsonValue } from '@bufbuild/protobuf';
import { ReplicaStatusSchema, WatchWorkloadsResponse_Kind as WatchKind } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { toMessageJson } from '../../call/cli-session.js';
import { followWatch } from '../../call/resume-watch.js';
import { parseWorkloadName } from '../../names.js';
import {
  formatReplicaList,
  getReplicaListColumns,
  toReplicaListRow,
} from '../../views/replica-list-view.js';
import type { PlacedReplica } from '../../views/replica-list-view.js';
import { printObjects, readFieldFilter } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { WatchTable } from '../general/watch-table.js';
import { getTextOption, hasFlag } from '../options.js';
import { findWorkload } from '../workload/find-workload.js';
import { fetchReplicas, isOnNode, toPlacedReplicas } from './fetch-replicas.js';
import type { ReplicaFilter } from './fetch-replicas.js';

/** How replicas are listed. In JSON, a replica has the names of its workload. */
export const REPLICA_KIND: ObjectKind<PlacedReplica> = {
  plural: 'replicas',
  fields: ['namespace', 'workload', ...ReplicaStatusSchema.fields.map(({ jsonName }) => jsonName)],
  toJson: ({ namespace, workload, replica }) => ({
    namespace,
    workload,
    ...(toMessageJson(ReplicaStatusSchema, replica) as Record<string, JsonValue>),
  }),
  formatTable: (replicas, session) =>
    formatReplicaList(replicas, session.nowMs, session.style, session.settings.output === 'wide'),
};

/** Lists the replicas that the options select. */
export async function listReplicas(invocation: Invocation): Promise<void> {
  const filter = await readReplicaFilter(invocation);
  const replicas = await fetchReplicas(invocation.session, filter);
  const place = filter.nodeId === undefined ? '' : ` on node ${filter.nodeId}`;
  const owner = filter.workload === undefined ? '' : ` of workload ${filter.workload}`;
  const scope = filter.namespace === undefined ? '' : ` in namespace ${filter.namespace}`;
  await printObjects(invocation, REPLICA_KIND, replicas, `no replicas${owner}${place}${scope}`);
}

/**
 * Shows replicas by id, of any namespace.
 * @throws {@link CliFailure} with exit code 3 for an unknown id, with exit code 2 for the name of a
 *   workload.
 */
export async function getReplicas(invocation: Invocation, ids: readonly string[]): Promise<void> {
  const { session } = invocation;
  const other = ids.find((id) => !REPLICA_ID.test(id));
  if (other !== undefined)
    throw createUsageFailure(
      `${JSON.stringify(other)} is not the id of a replica; the replicas of a workload: cloudlessctl get replicas --workload ${other}`,
    );
  const all = new Map((await fetchReplicas(session, {})).map((item) => [item.replica.id, item]));
  const found = ids.map((id) => {
    const item = all.get(id);
    if (item === undefined)
      throw new CliFailure(
        ExitCode.notFound,
        `replica ${id} not found; cloudlessctl get replicas -A lists the replicas`,
      );
    return item;
  });
  await printObjects(invocation, REPLICA_KIND, found, 'no replicas', { single: ids.length === 1 });
}

/** A replica id: the uid of the workload and a number. */
const REPLICA_ID = /^[0-9a-f]{16}-\d+$/;

/** Returns the filter of the options; checks that the workload exists. */
async function readReplicaFilter(invocation: Invocation): Promise<ReplicaFilter> {
  const { session } = invocation;
  const { settings } = session;
  const nodeId = getTextOption(invocation, 'node');
  const labelSelector = getTextOption(invocation, 'selector');
  const workloadText = getTextOption(invocation, 'workload');
  const shared = {
    ...(nodeId === undefined ? {} : { nodeId }),
    ...(labelSelector === undefined ? {} : { labelSelector }),
  };
  if (workloadText !== undefined) {
    const name = parseWorkloadName(workloadText, settings.namespace);
    await findWorkload(session, name);
    return { ...shared, namespace: name.namespace, workload: name.name };
  }
  return hasFlag(invocation, 'allNamespaces')
    ? shared
    : { ...shared, namespace: settings.namespace };
}

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
  const { namespace = '', workload = '', labelSelector = '', nodeId = '' } = filter;
  const table = new WatchTable(session, getReplicaListColumns(wide));
  const changes = new ReplicaChanges(
    (item) => isOnNode(item, nodeId) && (fieldFilter?.(REPLICA_KIND.toJson(item)) ?? true),
  );
  const watch = {
    open: (afterRevision: bigint, options: ReturnType<CliSession['getStreamOptions']>) =>
      session.client.watchWorkloads(
        { namespace, name: workload, labelSelector, afterRevision },
        options,
      ),
    onRestart: () => table.restart(),
  };
  await followWatch(
    session,
    watch,
    async ({ kind, workload: changed }) => {
      if (changed === undefined) return table.flush();
      const isDeleted = kind === WatchKind.DELETED;
      for (const { item, isGone } of changes.update(changed, isDeleted)) {
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
    },
    () => table.flush(),
  );
}

/** A replica that changed, or that is gone or no longer selected. */
interface ReplicaChange {
  readonly item: PlacedReplica;
  readonly isGone: boolean;
}

/** Finds the replicas that differ from the last state of their workload. */
export class ReplicaChanges {
  private readonly known = new Map<string, Map<string, PlacedReplica>>();

  /** @param isSelected - Returns true for a replica to report. */
  constructor(private readonly isSelected: (item: PlacedReplica) => boolean) {}

  /** Takes the new state of a workload and returns the changes of its selected replicas. */
  update(workload: Workload, isDeleted: boolean): readonly ReplicaChange[] {
    const key = `${workload.namespace}/${workload.name}`;
    const before = this.known.get(key) ?? new Map<string, PlacedReplica>();
    const selected = isDeleted ? [] : toPlacedReplicas(workload).filter(this.isSelected);
    const after = new Map(selected.map((item) => [item.replica.id, item]));
    this.known.set(key, after);
    const gone = [...before.values()].filter(({ replica }) => !after.has(replica.id));
    const changed = selected.filter((item) => {
      const previous = before.get(item.replica.id);
      return previous === undefined || getShownState(previous) !== getShownState(item);
    });
    return [
      ...changed.map((item) => ({ item, isGone: false })),
      ...gone.map((item) => ({ item, isGone: true })),
    ];
  }
}

/** Returns the parts of a replica whose change is shown. */
function getShownState({ replica }: PlacedReplica): string {
  const { phase, ready, leaving, stale, nodeId, restarts, reason, containerId } = replica;
  return JSON.stringify([phase, ready, leaving, stale, nodeId, restarts, reason, containerId]);
}
