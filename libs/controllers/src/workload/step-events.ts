import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { RolloutObserved } from '@cloudless/rollout';
import {
  findChangeEvent,
  findEndEvent,
  findEvictionEvent,
  findNewestEnded,
  selectNewest,
} from '../common/causes.js';
import type { WorkloadPass } from './workload-pass.js';

/** The replicas that a reconciliation pass created and ordered to stop. */
export interface ReplicaSteps {
  readonly created: readonly ReplicaRecord[];
  /** Each replica as it was before the order to stop. */
  readonly stopped: readonly ReplicaRecord[];
}

/**
 * Most causes of the created replicas of one pass, and likewise of the stopped replicas. Each cause
 * has an event of its own, so a pass adds at most 28 events, which fit into one transaction with
 * all replicas and the control record.
 */
const MAX_CAUSES = 14;

/**
 * Adds the events of a decision: for each cause, one event for the created replicas and one for the
 * stopped replicas.
 * @param createdBefore - Replicas that earlier commits of the same decision have created.
 */
export function addStepEvents(
  pass: WorkloadPass,
  observed: RolloutObserved,
  steps: ReplicaSteps,
  createdBefore = 0,
): void {
  if (steps.created.length === 0 && steps.stopped.length === 0) return;
  const { view, workload } = pass;
  const replicas = pass.replicas.map(({ value }) => value);
  const change = findChangeEvent(view, workload.value);
  const evicted = new Set<string>(
    observed.replicas.filter(({ draining }) => draining).map(({ id }) => id),
  );
  const findEvictionOf = (replica: ReplicaRecord) =>
    evicted.has(replica.id) ? findEvictionEvent(view, replica) : undefined;
  const eviction =
    evicted.size === 0 || steps.created.length === 0
      ? undefined
      : selectNewest(
          ...new Set(
            replicas.map((replica) =>
              replica.desiredRunning && !replica.lost ? findEvictionOf(replica) : undefined,
            ),
          ),
        );
  const newestEnded =
    steps.created.length === 0 ? new Map<number, ReplicaRecord>() : findNewestEnded(replicas);
  const findCreateCause = ({ slot }: ReplicaRecord): Event | undefined =>
    selectNewest(change, eviction, findEndEvent(view, newestEnded.get(slot)));
  for (const [cause, created] of groupByCause(steps.created, findCreateCause)) {
    addEvent(pass, {
      reason: 'ReplicasCreated',
      verb: 'created',
      replicas: created,
      why: explainCreates(observed, createdBefore),
      cause,
    });
  }
  const findStopCause = (replica: ReplicaRecord): Event | undefined =>
    findEvictionOf(replica) ?? change;
  if (steps.stopped.length === 0) return;
  const why = explainStops(view, observed, steps.stopped);
  for (const [cause, stopped] of groupByCause(steps.stopped, findStopCause)) {
    addEvent(pass, {
      reason: 'ReplicasStopping',
      verb: 'ordered to stop',
      replicas: stopped,
      why,
      cause,
    });
  }
}

/** An event about created or stopped replicas, for example `2 replicas created: <why>`. */
interface StepEvent {
  readonly reason: string;
  readonly verb: string;
  readonly replicas: readonly ReplicaRecord[];
  readonly why: string;
  readonly cause: Event | undefined;
}

function addEvent(pass: WorkloadPass, { reason, verb, replicas, why, cause }: StepEvent): void {
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
    decision: { id: pass.decisionId, why },
    causedBy: cause,
    // The event of the user's change may have been removed. Then the request id identifies the
    // request.
    ...(cause === undefined ? { requestId } : {}),
  });
}

function explainCreates(
  { want, version, maxSurge, replicas }: RolloutObserved,
  createdBefore: number,
): string {
  let [staying, ofVersion] = [0, 0];
  for (const replica of replicas) {
    if (replica.desired !== 'running' || replica.lost) continue;
    staying += 1;
    if (replica.version === version && !replica.draining) ofVersion += 1;
  }
  const current = ofVersion + createdBefore;
  const surge = staying > ofVersion && maxSurge > 0 ? `, at most ${want + maxSurge} live` : '';
  return `version ${version}: ${want} wanted, ${current} present${surge}`;
}

function explainStops(
  view: WorkloadPass['view'],
  observed: RolloutObserved,
  stopped: readonly ReplicaRecord[],
): string {
  const { want, version, minAvailable, replicas } = observed;
  const stoppedIds = new Set<string>(stopped.map(({ id }) => id));
  const stopping = replicas.filter(({ id }) => stoppedIds.has(id));
  const available = replicas.filter(
    (replica) => replica.available && replica.desired === 'running' && !stoppedIds.has(replica.id),
  ).length;
  const remaining = `${available} available ${available === 1 ? 'replica remains' : 'replicas remain'}`;
  if (stopping.some(({ forced }) => forced === true)) {
    return `the drain of the node is forced; ${remaining}, min_available ${minAvailable} is not enforced`;
  }
  const reason = stopping.some(({ draining }) => draining)
    ? stopped.some(({ nodeId }) => view.node(nodeId)?.value.draining === true)
      ? 'the node is being drained'
      : 'a taint of the node is not tolerated'
    : stopping.some((replica) => replica.version !== version)
      ? `replaced by version ${version}`
      : `only ${want} ${want === 1 ? 'is' : 'are'} wanted`;
  return `${reason}; ${remaining}, min_available is ${minAvailable}`;
}

/** Groups replicas by their cause, into at most {@link MAX_CAUSES} groups. */
function groupByCause(
  replicas: readonly ReplicaRecord[],
  findCause: (replica: ReplicaRecord) => Event | undefined,
): ReadonlyMap<Event | undefined, readonly ReplicaRecord[]> {
  const groups = new Map<Event | undefined, ReplicaRecord[]>();
  for (const replica of replicas) {
    const cause = findCause(replica);
    // Beyond the limit, a replica is added to the group with the newest cause. A hundred replicas
    // that fail at the same moment have a hundred causes.
    const key =
      groups.has(cause) || groups.size < MAX_CAUSES ? cause : selectNewest(...groups.keys());
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [replica]);
    else group.push(replica);
  }
  return groups;
}
