import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { EventInit } from '@cloudless/cluster-state';
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
 * The events of one decision, which may take several commits: for each commit and each cause, one
 * event for the created replicas and one for the stopped replicas. Reads the replicas of the
 * workload once, for all commits.
 */
export class StepEvents {
  private facts: CreateFacts | undefined;

  constructor(
    private readonly pass: WorkloadPass,
    private readonly observed: RolloutObserved,
  ) {}

  /**
   * Adds the events of one commit.
   * @param pass - The pass that made the decision, or its continuation with another transaction.
   * @param createdBefore - Replicas that earlier commits of the same decision have created.
   * @returns The first event about the created replicas; undefined when none was created.
   */
  add(
    pass: WorkloadPass,
    { created, stopped }: ReplicaSteps,
    createdBefore = 0,
  ): EventInit | undefined {
    const creation = created.length > 0 ? this.addCreated(pass, created, createdBefore) : undefined;
    if (stopped.length > 0) this.addStopped(pass, stopped);
    return creation;
  }

  private addStopped(pass: WorkloadPass, stopped: readonly ReplicaRecord[]): void {
    const ids = new Set<string>(stopped.map(({ id }) => id));
    const { replicas } = this.observed;
    const available = replicas.filter(
      (replica) => replica.available && replica.desired === 'running' && !ids.has(replica.id),
    ).length;
    addStopEvents(
      pass,
      { ...this.observed, replicas: replicas.filter(({ id }) => ids.has(id)) },
      stopped,
      available,
    );
  }

  private addCreated(
    pass: WorkloadPass,
    created: readonly ReplicaRecord[],
    createdBefore: number,
  ): EventInit | undefined {
    const { view, workload } = pass;
    const facts = (this.facts ??= findCreateFacts(this.pass, this.observed));
    const change = findChangeEvent(view, workload.value);
    const eviction = selectNewest(
      ...facts.evictedFrom.map((nodeId) => findEvictionEvent(view, { nodeId })),
    );
    const findCause = ({ slot }: ReplicaRecord): Event | undefined =>
      selectNewest(change, eviction, findEndEvent(view, facts.newestEnded.get(slot)));
    const why = explainCreates(this.observed, facts, createdBefore);
    const events = [...groupByCause(created, findCause)].map(([cause, replicas]) =>
      addEvent(pass, { reason: 'ReplicasCreated', verb: 'created', replicas, why, cause }),
    );
    return events[0];
  }
}

/** What the events about created replicas need of the other replicas of the workload. */
interface CreateFacts {
  /** Nodes that replicas have to leave. */
  readonly evictedFrom: readonly string[];
  /** The newest failed, lost or preempted replica of each slot. */
  readonly newestEnded: ReadonlyMap<number, ReplicaRecord>;
  /** Number of replicas that are not ordered to stop. */
  readonly staying: number;
  /** Number of these with the wanted version that may stay on their nodes. */
  readonly ofVersion: number;
}

function findCreateFacts(
  pass: WorkloadPass,
  { replicas, version, waiting = 0 }: RolloutObserved,
): CreateFacts {
  let [staying, ofVersion] = [waiting, waiting];
  const evicted = new Set<string>();
  for (const replica of replicas) {
    if (replica.draining) evicted.add(replica.id);
    if (replica.desired !== 'running' || replica.lost) continue;
    staying += 1;
    if (replica.version === version && !replica.draining) ofVersion += 1;
  }
  const values = pass.replicas.map(({ value }) => value);
  const evictedFrom = new Set<string>();
  if (evicted.size > 0)
    for (const { id, nodeId, desiredRunning, lost } of values)
      if (desiredRunning && !lost && evicted.has(id)) evictedFrom.add(nodeId);
  return {
    evictedFrom: [...evictedFrom],
    newestEnded: findNewestEnded(values),
    staying,
    ofVersion,
  };
}

/**
 * Adds the events about stopped replicas to the transaction of a pass, one for each cause.
 * @param observed - Only the stopped replicas.
 * @param stopped - Each replica as it was before the order to stop.
 * @param available - Number of available replicas that are not ordered to stop.
 */
export function addStopEvents(
  pass: WorkloadPass,
  observed: Pick<RolloutObserved, 'want' | 'version' | 'minAvailable' | 'replicas'>,
  stopped: readonly ReplicaRecord[],
  available: number,
): void {
  const { view, workload } = pass;
  const change = findChangeEvent(view, workload.value);
  const evicted = new Set<string>(
    observed.replicas.filter(({ draining }) => draining).map(({ id }) => id),
  );
  const findCause = (replica: ReplicaRecord): Event | undefined =>
    (evicted.has(replica.id) ? findEvictionEvent(view, replica) : undefined) ?? change;
  const why = explainStops(view, observed, stopped, available);
  for (const [cause, replicas] of groupByCause(stopped, findCause))
    addEvent(pass, {
      reason: 'ReplicasStopping',
      verb: 'ordered to stop',
      replicas,
      why,
      cause,
    });
}

/** An event about created or stopped replicas, for example `2 replicas created: <why>`. */
interface StepEvent {
  readonly reason: string;
  readonly verb: string;
  readonly replicas: readonly ReplicaRecord[];
  readonly why: string;
  readonly cause: Event | undefined;
}

function addEvent(
  pass: WorkloadPass,
  { reason, verb, replicas, why, cause }: StepEvent,
): EventInit {
  const { namespace, name, requestId } = pass.workload.value;
  const [first] = replicas;
  const nodes = new Set(replicas.map(({ nodeId }) => nodeId));
  const event: EventInit = {
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
  };
  pass.transaction.event(event);
  return event;
}

function explainCreates(
  { want, version, maxSurge }: RolloutObserved,
  { staying, ofVersion }: CreateFacts,
  createdBefore: number,
): string {
  const current = ofVersion + createdBefore;
  const surge = staying > ofVersion && maxSurge > 0 ? `, at most ${want + maxSurge} live` : '';
  return `version ${version}: ${want} wanted, ${current} present${surge}`;
}

function explainStops(
  view: WorkloadPass['view'],
  observed: Parameters<typeof addStopEvents>[1],
  stopped: readonly ReplicaRecord[],
  available: number,
): string {
  const { want, version, minAvailable, replicas: stopping } = observed;
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
