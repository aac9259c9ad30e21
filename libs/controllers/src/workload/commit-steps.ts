import type { WorkResult } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { commitPart } from '../common/commit.js';
import { copyControl } from '../common/control-copy.js';
import type { PlacedCreation } from '../placement/new-replicas.js';
import type { AppliedSteps, StepQueue } from './apply-steps.js';
import type { StepEvents } from './step-events.js';
import type { WorkloadPass } from './workload-pass.js';

/**
 * Commits after which a decision about thousands of replicas is made anew, on the state of that
 * time: at once after a change that a decision depends on, else when the decision has created half
 * as many replicas as there were. A decision reads every replica, so fewer than
 * three replicas are read for each created replica, however many replicas there are.
 */
const MIN_COMMITS_PER_DECISION = 64;

/** The steps of one decision. */
export interface DecidedSteps {
  readonly queue: StepQueue;
  readonly events: StepEvents;
  /** The steps that are in the transaction of the pass already. */
  readonly first: AppliedSteps;
}

export interface StepCommitDeps {
  readonly state: Pick<ClusterState, 'transaction'>;
  /**
   * Commits one transaction of the decision.
   * @param placement - The nodes of the new replicas, if the transaction assigns them.
   */
  commit(pass: WorkloadPass, placement: PlacedCreation | undefined): ReturnType<typeof commitPart>;
  /**
   * Returns true when the rest of the steps needs a new decision.
   * @param created - Replicas that the decision has created so far.
   */
  needsDecision(created: number): boolean;
}

/** Result of the commits of a decision. */
export interface StepCommits {
  readonly result: WorkResult;
  /** All writes of the decision. */
  readonly writes: number;
  /** True when every step of the decision has been committed. */
  readonly isFinished: boolean;
}

/**
 * Commits the steps of a decision. Creations that do not fit into the first transaction follow in
 * further transactions without a new decision, so that the work for many replicas grows with their
 * number only: each of these transactions requires that no other decision and no new spec came
 * between.
 */
export async function commitSteps(
  deps: StepCommitDeps,
  pass: WorkloadPass,
  { queue, events, first }: DecidedSteps,
): Promise<StepCommits> {
  let created = first.created.length;
  let current = pass;
  let { placement } = first;
  let writes = 0;
  for (let commits = 1; ; commits += 1) {
    const result = await deps.commit(current, placement);
    if (result.kind !== 'committed') return { result, writes, isFinished: false };
    writes += current.transaction.size;
    const isLast =
      first.created.length === 0 ||
      (commits >= MIN_COMMITS_PER_DECISION && deps.needsDecision(created));
    if (isLast || !queue.continuesWithCreation)
      return { result: { kind: 'again' }, writes, isFinished: queue.isEmpty };
    current = continuePass(deps, current, result.revision);
    const steps = queue.apply(current, /* createsOnly */ true);
    // Every slot that is left is in back-off.
    if (steps.created.length === 0) return { result: { kind: 'again' }, writes, isFinished: false };
    placement = steps.placement;
    const creation = events.add(current, steps);
    placement?.addTo(current.transaction, creation);
    created += steps.created.length;
  }
}

/** Returns the pass with a new transaction, after the commit of its transaction. */
function continuePass(
  { state }: StepCommitDeps,
  pass: WorkloadPass,
  revision: bigint,
): WorkloadPass {
  const control = { value: pass.nextControl, revision };
  return {
    ...pass,
    control,
    nextControl: copyControl(control.value),
    transaction: state.transaction(),
  };
}
