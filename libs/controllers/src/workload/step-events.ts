import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { toCanonicalVersion, type EventInit } from '@cloudless/cluster-state';
import type { RolloutObserved } from '@cloudless/rollout';
import {
  findChangeEvent,
  findEndEvent,
  findEvictionEvent,
  findNewestEnded,
  selectNewest,
} from '../common/causes.js';
import { explainCreates, explainStops, type CreatedVersion } from './step-reasons.js';
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
   * @returns The first event about the created replicas; undefined when none was created.
   */
  add(pass: WorkloadPass, { created, stopped }: ReplicaSteps): EventInit | undefined {
    const creation = created.length > 0 ? this.addCreated(pass, created) : undefined;
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

  private addCreated(pass: WorkloadPass, created: readonly ReplicaRecord[]): EventInit | undefined {
    const { view, workload } = pass;
    const facts = (this.facts ??= findCreateFacts(this.pass, this.observed));
    const common = selectNewest(
      findChangeEvent(view, workload.value),
      ...facts.evictedFrom.map((nodeId) => findEvictionEvent(view, { nodeId })),
    );
    const findCause = ({ slot }: ReplicaRecord): Event | undefined =>
      selectNewest(common, findEndEvent(view, facts.newestEnded.get(slot)));
    const replacesEnded = facts.newestEnded.size > 0;
    const groups = replacesEnded ? groupByCause(created, findCause) : new Map([[common, created]]);
    let first: EventInit | undefined;
    for (const [cause, replicas] of groups) {
      const versions = this.countVersions(pass, replicas, facts.present);
      const present = [...facts.present.values()].reduce((sum, count) => sum + count, 0);
      const counts = { created: versions, present, staying: facts.leaving + present };
      const why = explainCreates(this.observed, counts);
      const event = { reason: 'ReplicasCreated', verb: 'created', replicas, why, cause };
      const added = addEvent(pass, event);
      first ??= added;
      for (const { version, count } of versions) {
        const canonical = toCanonicalVersion(view, workload.value.uid, version);
        facts.present.set(canonical, (facts.present.get(canonical) ?? 0) + count);
      }
    }
    return first;
  }

  /** @param present - Number of present replicas by canonical version. */
  private countVersions(
    { view, workload }: WorkloadPass,
    created: readonly ReplicaRecord[],
    present: ReadonlyMap<number, number>,
  ): readonly CreatedVersion[] {
    const counts = new Map<number, number>();
    for (const { version } of created) counts.set(version, (counts.get(version) ?? 0) + 1);
    return [...counts].map(([version, count]) => {
      const canonical = toCanonicalVersion(view, workload.value.uid, version);
      const isWanted = canonical === this.observed.version;
      return { version, count, isWanted, present: present.get(canonical) ?? 0 };
    });
  }
}

/** What the events about created replicas need of the other replicas of the workload. */
interface CreateFacts {
  /** Nodes that replicas have to leave. */
  readonly evictedFrom: readonly string[];
  /** The newest failed, lost or preempted replica of each slot. */
  readonly newestEnded: ReadonlyMap<number, ReplicaRecord>;
  /**
   * Number of replicas that may stay on their nodes, by canonical version, including those that the
   * decision has created so far.
   */
  readonly present: Map<number, number>;
  /** Number of replicas that have to leave their nodes and are not ordered to stop. */
  readonly leaving: number;
}

function findCreateFacts(
  pass: WorkloadPass,
  { replicas, version, waiting = 0 }: RolloutObserved,
): CreateFacts {
  const present = new Map([[version, waiting]]);
  let leaving = 0;
  const evicted = new Set<string>();
  for (const replica of replicas) {
    if (replica.draining) evicted.add(replica.id);
    if (replica.desired !== 'running' || replica.lost) continue;
    if (replica.draining) leaving += 1;
    else present.set(replica.version, (present.get(replica.version) ?? 0) + 1);
  }
  const values = pass.replicas.map(({ value }) => value);
  const evictedFrom = new Set<string>();
  if (evicted.size > 0)
    for (const { id, nodeId, desiredRunning, lost } of values)
      if (desiredRunning && !lost && evicted.has(id)) evictedFrom.add(nodeId);
  return {
    evictedFrom: [...evictedFrom],
    newestEnded: findNewestEnded(values),
    present,
    leaving,
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
  observed: Pick<RolloutObserved, 'want' | 'version' | 'minAvailable' | 'replicas'> &
    Partial<Pick<RolloutObserved, 'paused' | 'strategy'>>,
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
  const { uid, version } = workload.value;
  const isShown = toCanonicalVersion(view, uid, version) === observed.version;
  const why = explainStops({
    ...observed,
    shownVersion: isShown ? version : observed.version,
    isNodeDraining: stopped.some(({ nodeId }) => view.node(nodeId)?.value.draining === true),
    available,
  });
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
  const areOnOneNode = replicas.every(({ nodeId }) => nodeId === first?.nodeId);
  const event: EventInit = {
    severity: Severity.INFO,
    category: Category.ROLLOUT,
    reason,
    message: `${replicas.length} ${replicas.length === 1 ? 'replica' : 'replicas'} ${verb}: ${why}`,
    namespace,
    workload: name,
    replicaIds: replicas.map(({ id }) => id),
    ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
    ...(areOnOneNode ? { nodeId: first?.nodeId ?? '' } : {}),
    decision: { id: pass.decisionId, why },
    causedBy: cause,
    // The event of the user's change may have been removed. Then the request id identifies the
    // request.
    ...(cause === undefined ? { requestId } : {}),
  };
  pass.transaction.event(event);
  return event;
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
