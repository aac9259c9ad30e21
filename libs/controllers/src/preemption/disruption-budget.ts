import { Rollout_Strategy as Strategy } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';
import type { RolloutReplica } from '@cloudless/rollout';
import type { Evictability } from '@cloudless/scheduler';
import { countStillWanted } from '../replica/finished.js';
import { toRolloutInput, type RolloutInputSources } from '../rollout/rollout-input.js';

/** How far the replicas of a workload may be evicted now. */
export interface DisruptionBudget {
  /** Available replicas that are not ordered to stop. */
  readonly available: number;
  /** The number of available replicas that no eviction goes below. */
  readonly minAvailable: number;
  /**
   * Milliseconds until the budget may change by time alone, as a replica becomes available;
   * undefined when it does not.
   */
  readonly recheckInMs: number | undefined;
  evictabilityOf(replicaId: string): Evictability;
}

/** The sources of budgets, over one state of the cluster. */
export interface DisruptionBudgetSources extends Omit<RolloutInputSources, 'view'> {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control' | 'workload' | 'replicasOf'>;
}

const NOTHING: DisruptionBudget = {
  available: 0,
  minAvailable: 0,
  recheckInMs: undefined,
  evictabilityOf: () => 'never',
};

/**
 * Computes the budget of a workload from the same counts as rollouts, drains and scale-downs:
 * available replicas that stay, and `min_available`. Nothing of an unknown workload may be evicted.
 */
export function findDisruptionBudget(
  sources: DisruptionBudgetSources,
  uid: string,
): DisruptionBudget {
  const { view } = sources;
  const workload = view.workload(uid)?.value;
  if (workload === undefined) return NOTHING;
  const records = [...view.replicasOf(uid)].map(({ value }) => value);
  const wanted =
    workload.deletionRequestedAt === undefined
      ? countStillWanted(view, workload, records, workload.spec?.replicas ?? 1)
      : 0;
  const { observed, recheckInMs } = toRolloutInput(sources, workload, records, wanted);
  const isServingVersion = createServingTest(view, workload);
  const isKeptVersion = createKeptTest(view, workload);
  const staying = observed.replicas.filter(
    (replica) => !replica.lost && replica.desired === 'running',
  );
  const available = staying.filter(
    (replica) => replica.available && isServingVersion(replica),
  ).length;
  const { minAvailable } = observed;
  const byId = new Map<string, RolloutReplica>(staying.map((replica) => [replica.id, replica]));
  return {
    available,
    minAvailable,
    recheckInMs,
    evictabilityOf: (replicaId) => {
      const replica = byId.get(replicaId);
      if (replica === undefined) return 'never';
      if (!isServingVersion(replica)) return isKeptVersion(replica) ? 'never' : 'free';
      if (replica.available) return 'counted';
      // A replica that may serve is needed while too few others are available.
      return replica.notYetAvailable === true && available < minAvailable ? 'never' : 'free';
    },
  };
}

/** Returns true for the replicas that BLUE_GREEN keeps for a quick rollback after its switch. */
function createKeptTest(
  view: DisruptionBudgetSources['view'],
  { uid }: WorkloadRecord,
): (replica: RolloutReplica) => boolean {
  const { switchedAt, fromVersion = 0 } = view.control(uid)?.value.rollout ?? {};
  if (switchedAt === undefined || fromVersion === 0) return () => false;
  const kept = toCanonicalVersion(view, uid, fromVersion);
  return ({ version }) => version === kept;
}

/** Returns true for all replicas; under BLUE_GREEN only for replicas of the active version. */
function createServingTest(
  view: DisruptionBudgetSources['view'],
  { uid, spec }: WorkloadRecord,
): (replica: RolloutReplica) => boolean {
  const control = view.control(uid)?.value;
  const strategy = control?.rollout?.strategy ?? spec?.rollout?.strategy;
  const activeVersion = control?.activeVersion ?? 0;
  if (strategy !== Strategy.BLUE_GREEN || activeVersion === 0) return () => true;
  const active = toCanonicalVersion(view, uid, activeVersion);
  return ({ version }) => version === active;
}

/** The budgets of the workloads that one decision asks for, each computed once. */
export class DisruptionBudgets {
  private readonly budgets = new Map<string, DisruptionBudget>();

  constructor(private readonly sources: DisruptionBudgetSources) {}

  of(uid: string): DisruptionBudget {
    const known = this.budgets.get(uid);
    if (known !== undefined) return known;
    const budget = findDisruptionBudget(this.sources, uid);
    this.budgets.set(uid, budget);
    return budget;
  }

  /** Returns how many available replicas of a workload may be evicted now. */
  permitsOf(uid: string): number {
    const { available, minAvailable } = this.of(uid);
    return Math.max(0, available - minAvailable);
  }

  /** Milliseconds until the first of the budgets may change by time alone. */
  get recheckInMs(): number | undefined {
    const delays = [...this.budgets.values()].flatMap(({ recheckInMs }) => recheckInMs ?? []);
    return delays.length === 0 ? undefined : Math.min(...delays);
  }
}
