import { toReplicaId } from '@cloudless/base';
import type { RolloutStep } from '../steps/decision.js';
import { markMovingAsDraining } from '../steps/mark-moving.js';
import type { RolloutObserved, RolloutReplica } from '../steps/observed.js';
import { createChooser } from '../steps/rolling-update.js';
import {
  computeMoves,
  createExtraTest,
  tallyReplicas,
  toCreateStep,
  type MoveInput,
  type MissingReplica,
  type ReplicaTally,
  type ReplicaTest,
} from '../steps/replica-tally.js';

/** Records predicted steps. */
export interface StepRecorder {
  /** @param stopsAvailable - True when the step stops an available replica. Default false. */
  record(step: RolloutStep, stopsAvailable?: boolean): void;
  /**
   * Ends the current decision; further steps belong to the next one.
   * @param liveReplicas - Number of live replicas after the decision, all of which are available.
   */
  endDecision(liveReplicas: number): void;
  /** Number of recorded steps. */
  readonly count: number;
}

/** The predicted end of the batches. */
export interface PredictedBatches {
  /** True when no step is left, now or at a later canary step. */
  readonly isComplete: boolean;
  /** Returns the replicas at the end. */
  readonly getReplicas: () => readonly RolloutReplica[];
}

/**
 * Predicts the decisions of a rolling update when every replica runs, is available, and becomes
 * available between two decisions. Counts replicas instead of sorting them for each decision, so
 * that the cost of a decision does not depend on the number of replicas.
 */
export function predictBatches(input: RolloutObserved, recorder: StepRecorder): PredictedBatches {
  const observed = markMovingAsDraining(input);
  const { strategy } = observed;
  const updated = strategy?.kind === 'rollingUpdate' ? strategy.updated : undefined;
  const allowsExtra = createExtraTest(observed);
  const chooser = createChooser(observed, updated);
  const tally = tallyReplicas(observed.replicas, chooser, allowsExtra, observed);
  const { missing, availableVictims } = tally;
  const counts = toMoveInput(tally);
  /** Indexes of the steps that create replicas. */
  const created: number[] = [];
  /** Number of stopped replicas. */
  let stopped = 0;
  for (;;) {
    const { creates, availableStops } = computeMoves(observed, counts);
    if (creates + availableStops === 0) break;
    for (const replica of missing.slice(created.length, created.length + creates)) {
      created.push(recorder.count);
      recorder.record(toCreateStep(replica));
    }
    const stops = availableVictims.slice(stopped, stopped + availableStops);
    for (const { id } of stops) recorder.record({ kind: 'stopReplica', replicaId: id }, true);
    stopped += stops.length;
    settleCounts(counts, creates, stops, allowsExtra);
    recorder.endDecision(counts.live);
  }
  return {
    isComplete:
      updated === undefined && counts.missing === 0 && stopped === availableVictims.length,
    getReplicas: () => {
      const stoppedIds = new Set<string>(availableVictims.slice(0, stopped).map(({ id }) => id));
      const createdReplicas = missing
        .slice(0, created.length)
        .map((replica, index) => createPredictedReplica(replica, created[index] ?? 0));
      return [...observed.replicas.filter(({ id }) => !stoppedIds.has(id)), ...createdReplicas];
    },
  };
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

function toMoveInput(tally: ReplicaTally): Writable<MoveInput> {
  return {
    live: tally.live,
    available: tally.available,
    extraLive: tally.extraLive,
    surplusAvailable: tally.surplusAvailable,
    drainingAvailable: tally.drainingAvailable,
    outdatedAvailable:
      tally.availableVictims.length - tally.surplusAvailable - tally.drainingAvailable,
    missing: tally.missing.length,
    leaving: 0,
    leavingAvailable: 0,
    unreadyStops: 0,
  };
}

/** Updates the counts as if every stop were confirmed and every new replica available. */
function settleCounts(
  counts: Writable<MoveInput>,
  creates: number,
  stops: readonly RolloutReplica[],
  allowsExtra: ReplicaTest,
): void {
  counts.missing -= creates;
  counts.live += creates - stops.length;
  counts.available = counts.live;
  for (const replica of stops) {
    if (allowsExtra(replica)) counts.extraLive -= 1;
    // The stops are in the order of `availableVictims`: surplus, draining, outdated.
    if (counts.surplusAvailable > 0) counts.surplusAvailable -= 1;
    else if (counts.drainingAvailable > 0) counts.drainingAvailable -= 1;
    else counts.outdatedAvailable -= 1;
  }
}

/**
 * Returns the available replica that a predicted step creates.
 * @param index - A number that is unique within the prediction, such as the index of the step.
 */
export function createPredictedReplica(
  { version, nodeId }: MissingReplica,
  index: number,
): RolloutReplica {
  const id = toReplicaId(`planned-${index}`);
  const createdSequence = FIRST_PREDICTED_SEQUENCE + index;
  const predicted: RolloutReplica = {
    id,
    version,
    available: true,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence,
  };
  return nodeId === undefined ? predicted : { ...predicted, nodeId };
}

/** Sequence number of the first predicted replica: above that of every existing replica. */
const FIRST_PREDICTED_SEQUENCE = 2 ** 40;
