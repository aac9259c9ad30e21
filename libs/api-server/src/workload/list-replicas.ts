import { create } from '@bufbuild/protobuf';
import {
  ListReplicasResponseSchema,
  MessageWriter,
  createEncodedMessage,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  type ListReplicasRequest,
  type ListReplicasResponse,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toShownPhase, type ClusterView } from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import { listWorkloadsAfter, toNameKey } from './workloads-by-name.js';
import {
  presentWorkloadReplicas,
  writeWorkloadReplicas,
  type NamedReplicas,
} from './workload-replicas.js';

/**
 * Most replicas that one call examines, which takes some milliseconds: a filter that few replicas
 * match must not read all replicas in one turn of the event loop.
 */
const MAX_EXAMINED = 10_000;

/** Visibility and encoding of the replicas that {@link listReplicas} returns. */
export interface ListReplicasOptions {
  /** Returns true for the namespaces whose replicas are listed. */
  readonly isVisible: (namespace: string) => boolean;
  /** True when the response is encoded by `toBinary`: all reads then share bytes. */
  readonly isBinary: boolean;
}

/** A replica with its workload. */
interface OwnedReplica {
  readonly workload: WorkloadRecord;
  readonly replica: ReplicaRecord;
}

/**
 * Returns one page of the replicas of existing workloads, by namespace and name of the workload and
 * by age. A page reads its own replicas and those in between that do not match.
 * @throws kind `invalid` when the label selector or the page token cannot be parsed.
 */
export function listReplicas(
  { state, presenter }: Pick<ReadDeps, 'state' | 'presenter'>,
  request: ListReplicasRequest,
  { isVisible, isBinary }: ListReplicasOptions,
): ListReplicasResponse {
  const view = state.view();
  const { namespace, name, labelSelector, nodeId } = request;
  const selector = parseLabelSelector(labelSelector);
  const matches = (workload: WorkloadRecord): boolean =>
    (namespace === '' || workload.namespace === namespace) &&
    (name === '' || workload.name === name) &&
    isVisible(workload.namespace) &&
    matchesLabels(selector, workload.spec?.labels ?? {});
  const phases = new Set(request.phases);
  const { items, nextPageToken } = paginateIndex(
    (after) => {
      const position = after === undefined ? undefined : parsePosition(after);
      return nodeId === ''
        ? listAfter(view, request, matches, position)
        : listOnNodeAfter(view, nodeId, matches, position);
    },
    toPosition,
    request,
    {
      filter: ['replicas', namespace, name, labelSelector, nodeId, [...phases].sort().join()],
      maxExamined: MAX_EXAMINED,
    },
    ({ replica }) => phases.size === 0 || phases.has(toShownPhase(replica)),
  );
  const workloads = groupByWorkload(items);
  const common = { nextPageToken, revision: view.revision };
  if (!isBinary)
    return create(ListReplicasResponseSchema, {
      workloads: presentWorkloadReplicas(presenter, workloads),
      ...common,
    });
  const writer = new MessageWriter();
  writeWorkloadReplicas(writer, presenter, workloads);
  return Object.assign(createEncodedMessage(ListReplicasResponseSchema, writer.finish()), common);
}

/** The position of a replica in the list. */
interface Position {
  /** Namespace and name of the workload, see {@link toNameKey}. */
  readonly key: string;
  readonly uid: string;
  readonly sequence: number;
}

/** Returns the position of a replica as text: namespace, name, uid and sequence number. */
function toPosition({ workload, replica }: OwnedReplica): string {
  return `${toNameKey(workload)}/${workload.uid}/${replica.sequence}`;
}

function parsePosition(text: string): Position {
  const [namespace = '', name = '', uid = '', sequence = ''] = text.split('/');
  return { key: `${namespace}/${name}`, uid, sequence: Number(sequence) };
}

/** Lists the replicas after a position, workload by workload. */
function* listAfter(
  view: ClusterView,
  { namespace, name }: ListReplicasRequest,
  matches: (workload: WorkloadRecord) => boolean,
  after: Position | undefined,
): Generator<OwnedReplica, void> {
  for (const workload of listWorkloadsFrom(view, { namespace, name }, after?.key)) {
    if (!matches(workload)) continue;
    // A workload that was deleted and created again has other replicas, which are all listed.
    const sequence = after?.uid === workload.uid ? after.sequence : undefined;
    for (const { value: replica } of view.replicasInOrder(workload.uid, sequence))
      yield { workload, replica };
  }
}

/**
 * Lists workloads by namespace and name.
 * @param from - Only the workload with this key, if it exists, and those after it. Default: all.
 */
function* listWorkloadsFrom(
  view: ClusterView,
  { namespace, name }: Pick<ListReplicasRequest, 'namespace' | 'name'>,
  from: string | undefined,
): Generator<WorkloadRecord, void> {
  if (namespace !== '' && name !== '') {
    const only = view.workloadByName(namespace, name)?.value;
    if (only !== undefined) yield only;
    return;
  }
  if (from !== undefined) {
    const [fromNamespace = '', fromName = ''] = from.split('/');
    const first = view.workloadByName(fromNamespace, fromName)?.value;
    if (first !== undefined) yield first;
  }
  yield* listWorkloadsAfter(view, namespace, from);
}

/** Lists the replicas of a node after a position, in the order of {@link listAfter}. */
function listOnNodeAfter(
  view: ClusterView,
  nodeId: string,
  matches: (workload: WorkloadRecord) => boolean,
  after: Position | undefined,
): readonly OwnedReplica[] {
  return [...view.replicasOn(nodeId)]
    .flatMap(({ value: replica }) => {
      const workload = view.workload(replica.uid)?.value;
      return workload === undefined || !matches(workload) ? [] : [{ workload, replica }];
    })
    .filter((item) => after === undefined || isAfter(item, after))
    .sort((a, b) => (isAfter(a, toParsedPosition(b)) ? 1 : -1));
}

function toParsedPosition({ workload, replica }: OwnedReplica): Position {
  return { key: toNameKey(workload), uid: workload.uid, sequence: Number(replica.sequence) };
}

/** Returns true for a replica after a position, and for every replica of a new workload there. */
function isAfter({ workload, replica }: OwnedReplica, { key, uid, sequence }: Position): boolean {
  const ownKey = toNameKey(workload);
  if (ownKey !== key) return ownKey > key;
  return workload.uid !== uid || Number(replica.sequence) > sequence;
}

/** Groups replicas that are in the order of their workloads. */
function groupByWorkload(items: readonly OwnedReplica[]): readonly NamedReplicas[] {
  const groups = new Map<string, NamedReplicas & { readonly replicas: ReplicaRecord[] }>();
  for (const { workload, replica } of items) {
    const { namespace, name, uid } = workload;
    const group = groups.get(uid) ?? { namespace, name, uid, replicas: [], removedIds: [] };
    groups.set(uid, group);
    group.replicas.push(replica);
  }
  return [...groups.values()];
}
