import { toReplicaId } from '@cloudless/base';
import type { RolloutStep } from './decision.js';
import { withMoves } from './moving.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { chooserOf } from './rolling-update.js';
import { movesOf, tallyOf, toCreate, type Counts, type Missing, type Tally } from './tally.js';

/** Records predicted steps. */
export interface Recorder {
  /** @param stopsAvailable - Whether an available replica stops. */
  record(step: RolloutStep, stopsReady?: boolean): void;
  /**
   * @param liveReplicas - Number of live replicas after the decision; all of them are available.
   */
  endDecision(standing: number): void;
  /** Number of recorded steps. */
  readonly count: number;
}

/** The predicted end of the batches. */
export interface Batches {
  /** Whether no step is left, now or at a later canary step. */
  readonly isEnd: boolean;
  /** Returns the replicas at the end. */
  readonly standing: () => readonly RolloutReplica[];
}

/**
 * Predicts the decisions of a rolling update when every replica runs, is available, and becomes
 * available between two decisions. Counts replicas instead of sorting them for each decision, so
 * that the cost of a decision does not depend on the number of replicas.
 */
export function layOutBatches(input: RolloutObserved, recorder: Recorder): Batches {
  const observed = withMoves(input);
  const { strategy } = observed;
  const updated = strategy?.kind === 'rollingUpdate' ? strategy.updated : undefined;
  const tally = tallyOf(observed.replicas, chooserOf(observed, updated));
  const { missing, readyVictims } = tally;
  const counts = countsOf(tally);
  /** Indexes of the steps that create replicas. */
  const created: number[] = [];
  let stopped = 0;
  for (;;) {
    const { creates, readyStops } = movesOf(observed, counts);
    if (creates + readyStops === 0) break;
    for (const one of missing.slice(created.length, created.length + creates)) {
      created.push(recorder.count);
      recorder.record(toCreate(one));
    }
    const stops = readyVictims.slice(stopped, stopped + readyStops);
    for (const { id } of stops) recorder.record({ kind: 'stopReplica', replicaId: id }, true);
    stopped += stops.length;
    settle(counts, creates, stops);
    recorder.endDecision(counts.live);
  }
  return {
    isEnd: updated === undefined && counts.missing === 0 && stopped === readyVictims.length,
    standing: () => {
      const gone = new Set<string>(readyVictims.slice(0, stopped).map(({ id }) => id));
      const made = missing
        .slice(0, created.length)
        .map((one, index) => plannedReplica(one, created[index] ?? 0));
      return [...observed.replicas.filter(({ id }) => !gone.has(id)), ...made];
    },
  };
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

function countsOf(tally: Tally): Writable<Counts> {
  return {
    live: tally.live,
    ready: tally.ready,
    draining: tally.draining,
    surplusReady: tally.surplusReady,
    drainingReady: tally.drainingReady,
    outdatedReady: tally.readyVictims.length - tally.surplusReady - tally.drainingReady,
    missing: tally.missing.length,
    leaving: 0,
    leavingReady: 0,
    unreadyStops: 0,
  };
}

/** Confirms every stop and makes every new replica available. */
function settle(counts: Writable<Counts>, creates: number, stops: readonly RolloutReplica[]): void {
  counts.missing -= creates;
  counts.live += creates - stops.length;
  counts.ready = counts.live;
  for (const { draining } of stops) {
    if (draining) counts.draining -= 1;
    // Same order as in `availableVictims`.
    if (counts.surplusReady > 0) counts.surplusReady -= 1;
    else if (counts.drainingReady > 0) counts.drainingReady -= 1;
    else counts.outdatedReady -= 1;
  }
}

/**
 * The available replica of a predicted creation.
 * @param index - Unique within the prediction.
 */
export function plannedReplica({ version, nodeId }: Missing, index: number): RolloutReplica {
  const id = toReplicaId(`planned-${index}`);
  const createdSequence = LATER + index;
  const planned: RolloutReplica = {
    id,
    version,
    ready: true,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence,
  };
  return nodeId === undefined ? planned : { ...planned, nodeId };
}

/** Sequence of the first predicted replica: newer than every existing one. */
const LATER = 2 ** 40;
