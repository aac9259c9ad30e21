import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { RolloutObserved } from '@cloudless/rollout';
import { changeOf, endOf, evictionOf, newestEnded, newestOf } from './causes.js';
import type { WorkloadPass } from './workload-pass.js';

/** What a pass did to replicas. */
export interface StepsTaken {
  readonly created: readonly ReplicaRecord[];
  /** As they were before. */
  readonly stopped: readonly ReplicaRecord[];
}

/**
 * Causes told apart in one pass: with all replicas and the control record the events fit into one
 * transaction.
 */
const MAX_CAUSES = 14;

/** The id that the events and log lines of one decision share. */
export function decisionIdOf({ workload, view }: Pick<WorkloadPass, 'workload' | 'view'>): string {
  return `rollout/${workload.value.uid}@${view.revision}`;
}

/**
 * Tells what was decided and why: one event for all that was created, and stopped, for the same
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
      verb: 'to be started',
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
      verb: 'asked to stop',
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
    message: `${replicas.length} ${replicas.length === 1 ? 'replica is' : 'replicas are'} ${verb}: ${why}`,
    namespace,
    workload: name,
    replicaIds: replicas.map(({ id }) => id),
    ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
    ...(nodes.size === 1 ? { nodeId: first?.nodeId ?? '' } : {}),
    decision: { id: decisionIdOf(pass), why },
    causedBy: cause,
    // The event of the user's change may no longer be kept; what it asked for goes on.
    ...(cause === undefined ? { requestId } : {}),
  });
}

function whyCreated({ want, version, maxSurge, replicas }: RolloutObserved): string {
  const staying = replicas.filter((replica) => replica.desired === 'running' && !replica.lost);
  const current = staying.filter(
    (replica) => replica.version === version && !replica.draining,
  ).length;
  const surge =
    staying.length > current && maxSurge > 0
      ? `, and up to ${want + maxSurge} may live meanwhile`
      : '';
  return `${want} of version ${version} are wanted and ${current} ${current === 1 ? 'is' : 'are'} there${surge}`;
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
  const stays = `${ready} ready ${ready === 1 ? 'one stays' : 'ones stay'}`;
  if (going.some(({ forced }) => forced === true)) {
    return `the drain of their node is forced; ${stays}, whatever the minimum of ${minAvailable}`;
  }
  const reason = going.some(({ draining }) => draining)
    ? stopped.some(({ nodeId }) => view.node(nodeId)?.value.draining === true)
      ? 'their node is being drained'
      : 'they do not tolerate a taint of their node'
    : going.some((replica) => replica.version !== version)
      ? `version ${version} takes their place`
      : `${want} are wanted`;
  return `${reason}; ${stays} and at least ${minAvailable} must`;
}

function groupBy(
  replicas: readonly ReplicaRecord[],
  causeOf: (replica: ReplicaRecord) => Event | undefined,
): ReadonlyMap<Event | undefined, readonly ReplicaRecord[]> {
  const groups = new Map<Event | undefined, ReplicaRecord[]>();
  for (const replica of replicas) {
    const cause = causeOf(replica);
    // Those beyond the limit go with the newest of its causes: a hundred that failed at one moment
    // each have their own.
    const key = groups.has(cause) || groups.size < MAX_CAUSES ? cause : newestOf(...groups.keys());
    groups.set(key, [...(groups.get(key) ?? []), replica]);
  }
  return groups;
}
