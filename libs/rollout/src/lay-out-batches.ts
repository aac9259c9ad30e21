import { toReplicaId } from '@cloudless/base';
import type { RolloutStep } from './decision.js';
import { withMoves } from './moving.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { chooserOf } from './rolling-update.js';
import { movesOf, tallyOf, toCreate, type Counts, type Missing, type Tally } from './tally.js';

/** Notes steps laid out ahead. */
export interface Recorder {
  /** @param stopsReady - Whether a ready replica stops. */
  record(step: RolloutStep, stopsReady?: boolean): void;
  /** @param standing - So many live then, and all are ready. */
  endDecision(standing: number): void;
  /** Steps noted so far. */
  readonly count: number;
}

/** Where batches laid out ahead lead to. */
export interface Batches {
  /** Whether nothing is left to be done, now or at a later canary step. */
  readonly isEnd: boolean;
  /** The replicas in the end. */
  readonly standing: () => readonly RolloutReplica[];
}

/**
 * Takes the decisions of a rolling update in a world where all replicas run and are ready, and
 * become so between two decisions. It counts instead of sorting the world anew each time, so that a
 * decision costs the same however many replicas there are.
 */
export function layOutBatches(input: RolloutObserved, recorder: Recorder): Batches {
  const observed = withMoves(input);
  const { strategy } = observed;
  const updated = strategy?.kind === 'rollingUpdate' ? strategy.updated : undefined;
  const tally = tallyOf(observed.replicas, chooserOf(observed, updated));
  const { missing, readyVictims } = tally;
  const counts = countsOf(tally);
  /** The numbers of the steps that make replicas. */
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
  const { live, ready, draining, surplusReady, drainingReady, missing, readyVictims } = tally;
  const outdatedReady = readyVictims.length - surplusReady - drainingReady;
  const still = { leaving: 0, leavingReady: 0, unreadyStops: 0 };
  return {
    live,
    ready,
    draining,
    surplusReady,
    drainingReady,
    outdatedReady,
    missing: missing.length,
    ...still,
  };
}

/** Lets every stop be confirmed and everything new become ready. */
function settle(counts: Writable<Counts>, creates: number, stops: readonly RolloutReplica[]): void {
  counts.missing -= creates;
  counts.live += creates - stops.length;
  counts.ready = counts.live;
  for (const { draining } of stops) {
    if (draining) counts.draining -= 1;
    // The same order as in `readyVictims`.
    if (counts.surplusReady > 0) counts.surplusReady -= 1;
    else if (counts.drainingReady > 0) counts.drainingReady -= 1;
    else counts.outdatedReady -= 1;
  }
}

/**
 * A replica that a laid-out step makes, ready. @param index - Tells it from all others of the
 * rollout.
 */
export function plannedReplica({ version, nodeId }: Missing, index: number): RolloutReplica {
  const id = toReplicaId(`planned-${index}`);
  const createdSequence = LATER + index;
  const planned = {
    id,
    version,
    ready: true,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence,
  } as const;
  return nodeId === undefined ? planned : { ...planned, nodeId };
}

/** Newer than every real one. */
const LATER = 2 ** 40;
