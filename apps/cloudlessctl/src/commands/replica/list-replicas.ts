import type { JsonValue } from '@bufbuild/protobuf';
import { ReplicaStatusSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import { parseWorkloadName } from '../../names.js';
import { formatReplicaList } from '../../views/replica-list-view.js';
import type { PlacedReplica } from '../../views/replica-list-view.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption, hasFlag } from '../options.js';
import { findWorkload } from '../workload/find-workload.js';
import { fetchReplicas } from './fetch-replicas.js';
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
  const uids = new Set(ids.map((id) => id.slice(0, id.indexOf('-'))));
  const listed = await fetchReplicas(session, { uids });
  const all = new Map(listed.map((item) => [item.replica.id, item]));
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
export async function readReplicaFilter(invocation: Invocation): Promise<ReplicaFilter> {
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
