import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { RolloutObserved } from '@cloudless/rollout';
import { changeOf, endOf, evictionOf, newestEnded, newestOf } from './causes.js';
import type { WorkloadPass } from './workload-pass.js';

/** The replicas that a pass created and stopped. */
export interface StepsTaken {
  readonly created: readonly ReplicaRecord[];
  /** Each replica as it was before the stop. */
  readonly stopped: readonly ReplicaRecord[];
}

/**
 * Most causes of one pass, each with an event of its own. The events then fit into one transaction
 * with all replicas and the control record.
 */
const MAX_CAUSES = 14;

/** The id that the events and log lines of one rollout decision share. */
export function decisionIdOf({ workload, view }: Pick<WorkloadPass, 'workload' | 'view'>): string {
  return `rollout/${workload.value.uid}@${view.revision}`;
}

/**
 * Adds the events of a decision: one for the created and one for the stopped replicas of each
 * cause.
 */
export function noteSteps(pass: WorkloadPass, observed: RolloutObserved, taken: StepsTaken): void {
  if (taken.created.length === 0 && taken.stopped.length === 0) return;
  const { view, workload } = pass;
  const values = pass.replicas.map(({ value }) => value);
  const change = changeOf(view, workload.value);
  const moving = new Set<string>(
    observed.replicas.filter(({ draining }) => draining).map(({ id }) => id),
  );
  const whyMoved = (replica: ReplicaRecord) =>
    moving.has(replica.id) ? evictionOf(view, replica) : undefined;
  const move = newestOf(
    ...values.map((replica) =>
      replica.desiredRunning && !replica.lost ? whyMoved(replica) : undefined,
    ),
  );
  const ended = newestEnded(values);
  const causeOfCreate = ({ slot }: ReplicaRecord): Event | undefined =>
    newestOf(change, move, endOf(view, ended.get(slot)));
  for (const [cause, created] of groupBy(taken.created, causeOfCreate)) {
    note(pass, {
      reason: 'ReplicasCreated',
      verb: 'created',
      replicas: created,
      why: whyCreated(observed),
      cause,
    });
  }
  const causeOfStop = (replica: ReplicaRecord): Event | undefined => whyMoved(replica) ?? change;
  for (const [cause, stopped] of groupBy(taken.stopped, causeOfStop)) {
    const why = whyStopped(view, observed, taken.stopped);
    note(pass, {
      reason: 'ReplicasStopping',
      verb: 'ordered to stop',
      replicas: stopped,
      why,
      cause,
    });
  }
}

interface Note {
  readonly reason: string;
  readonly verb: string;
  readonly replicas: readonly ReplicaRecord[];
  readonly why: string;
  readonly cause: Event | undefined;
}

function note(pass: WorkloadPass, { reason, verb, replicas, why, cause }: Note): void {
  const { namespace, name, requestId } = pass.workload.value;
  const [first] = replicas;
  const nodes = new Set(replicas.map(({ nodeId }) => nodeId));
  pass.transaction.event({
    severity: Severity.INFO,
    category: Category.ROLLOUT,
    reason,
    message: `${replicas.length} ${replicas.length === 1 ? 'replica' : 'replicas'} ${verb}: ${why}`,
    namespace,
    workload: name,
    replicaIds: replicas.map(({ id }) => id),
    ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
    ...(nodes.size === 1 ? { nodeId: first?.nodeId ?? '' } : {}),
    decision: { id: decisionIdOf(pass), why },
    causedBy: cause,
    // The event of the user's change may have been removed; the request id still names the request.
    ...(cause === undefined ? { requestId } : {}),
  });
}

function whyCreated({ want, version, maxSurge, replicas }: RolloutObserved): string {
  const staying = replicas.filter((replica) => replica.desired === 'running' && !replica.lost);
  const current = staying.filter(
    (replica) => replica.version === version && !replica.draining,
  ).length;
  const surge = staying.length > current && maxSurge > 0 ? `, at most ${want + maxSurge} live` : '';
  return `version ${version}: ${want} wanted, ${current} present${surge}`;
}

function whyStopped(
  view: WorkloadPass['view'],
  observed: RolloutObserved,
  stopped: readonly ReplicaRecord[],
): string {
  const { want, version, minAvailable, replicas } = observed;
  const ids = new Set<string>(stopped.map(({ id }) => id));
  const going = replicas.filter(({ id }) => ids.has(id));
  const ready = replicas.filter(
    (replica) => replica.ready && replica.desired === 'running' && !ids.has(replica.id),
  ).length;
  const stays = `${ready} ready ${ready === 1 ? 'replica remains' : 'replicas remain'}`;
  if (going.some(({ forced }) => forced === true)) {
    return `the drain of the node is forced; ${stays}, min_available ${minAvailable} is not enforced`;
  }
  const reason = going.some(({ draining }) => draining)
    ? stopped.some(({ nodeId }) => view.node(nodeId)?.value.draining === true)
      ? 'the node is being drained'
      : 'a taint of the node is not tolerated'
    : going.some((replica) => replica.version !== version)
      ? `replaced by version ${version}`
      : `only ${want} ${want === 1 ? 'is' : 'are'} wanted`;
  return `${reason}; ${stays}, min_available is ${minAvailable}`;
}

function groupBy(
  replicas: readonly ReplicaRecord[],
  causeOf: (replica: ReplicaRecord) => Event | undefined,
): ReadonlyMap<Event | undefined, readonly ReplicaRecord[]> {
  const groups = new Map<Event | undefined, ReplicaRecord[]>();
  for (const replica of replicas) {
    const cause = causeOf(replica);
    // Beyond the limit, replicas join the newest cause: a hundred replicas that fail at one moment
    // have a hundred causes.
    const key = groups.has(cause) || groups.size < MAX_CAUSES ? cause : newestOf(...groups.keys());
    groups.set(key, [...(groups.get(key) ?? []), replica]);
  }
  return groups;
}
