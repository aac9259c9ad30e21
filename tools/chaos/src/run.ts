import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { createSeededRandom, type Random } from '@cloudless/base';
import { findReplicaChanges, judgeReplicaChanges } from './checks/replica-changes.js';
import { countWritesWithin, findNextLeader, findLongestPause } from './checks/write-times.js';
import { chooseOne, type FaultContext, type FaultResult } from './faults/fault.js';
import { FAULTS } from './faults/index.js';
import { faultNames, type FaultName } from './faults/names.js';
import { Load, type Seen } from './load/load.js';
import { waitUntilProcessesMatch } from './load/replica-processes.js';
import {
  readNodeLosses,
  readReplicas,
  startWorkloads,
  waitUntilSettled,
} from './load/workloads.js';
import type { ChaosOptions } from './options.js';
import { formatMs, type Outcome } from './outcome.js';
import { EXIT_STOPPED } from './own-network.js';
import { World } from './world/world.js';

/** Members of etcd. */
const MEMBERS = 3;
/** Replicas that answer requests, for each agent. */
const WEB_REPLICAS_PER_AGENT = 2;
/** Time in which the cluster is as desired after a fault, milliseconds. */
const RECOVERED_WITHIN_MS = 60_000;
/**
 * Time in which writes go on after a fault, before the outcome is taken, milliseconds. Agents that
 * still dial a coordinator that did not answer find the leader meanwhile.
 */
const AFTER_MS = 3_000;

/** Faults and outcomes of a run, and what is wrong at its end. */
export interface RunResult {
  readonly outcomes: readonly Outcome[];
  /** Violations that belong to no single fault. */
  readonly finalViolations: readonly string[];
  readonly acknowledged: number;
  readonly logLines: number;
  /** Calls in the history that was checked. */
  readonly history: Load['historySize'];
}

/**
 * Runs a cluster, its clients and the faults.
 * @param print - Receives a line of progress for each fault.
 * @param stopSignal - Ends the cluster and this process when it aborts.
 */
export async function runChaos(
  options: ChaosOptions,
  print: (line: string) => void,
  stopSignal: AbortSignal,
): Promise<RunResult> {
  const { coordinators, agents } = options;
  const beganMs = performance.now();
  const world = await World.create();
  stopSignal.addEventListener(
    'abort',
    () => void world.stop().then(() => process.exit(EXIT_STOPPED)),
  );
  const outcomes: Outcome[] = [];
  let load: Load | undefined;
  try {
    await world.start({ members: MEMBERS, coordinators, agents });
    print(`programs run after ${formatMs(performance.now() - beganMs)}`);
    await startWorkloads(world, agents * WEB_REPLICAS_PER_AGENT);
    load = await Load.start(world, options.writers, options.timeFactor !== undefined);
    print(`the cluster runs after ${formatMs(performance.now() - beganMs)}`);
    const random = createSeededRandom(options.seed);
    const context = { world, random, ...options };
    for (const fault of chooseFaults(options, random)) {
      const outcome = await runFault(fault, context, load);
      outcomes.push(outcome);
      print(formatOutcome(outcome));
    }
    const finalViolations = await load.stop();
    const { acknowledged, logLines, historySize: history } = load;
    return { outcomes, finalViolations, acknowledged, logLines, history };
  } finally {
    world.writeLogs(options.logs);
    load?.writeHistory(options.logs);
    await world.stop();
  }
}

/** Yields the faults of the script, or random ones until the time is over. */
function* chooseFaults(
  { faults, minutes }: ChaosOptions,
  random: Random,
): Generator<FaultName, void> {
  if (faults !== undefined) return yield* faults;
  const untilMs = performance.now() + minutes * 60_000;
  while (performance.now() < untilMs) yield chooseOne(random, faultNames);
}

/** Injects one fault, waits for the recovery, and compares the cluster with the time before. */
async function runFault(
  fault: FaultName,
  context: FaultContext & Pick<ChaosOptions, 'timeFactor'>,
  load: Load,
): Promise<Outcome> {
  const { world } = context;
  const before = await readReplicas(world, RECOVERED_WITHIN_MS);
  load.takeSeen();
  const beganMs = performance.now();
  const beganAtMs = Date.now();
  const result = await FAULTS[fault].inject(context);
  const endedAtMs = performance.now();
  const violations: string[] = [...(result.problems ?? [])];
  let recoveredMs: number | undefined;
  try {
    await world.heal();
    await waitUntilAsDesired(world);
    recoveredMs = performance.now() - endedAtMs;
  } catch (reason) {
    violations.push(`not as desired after ${formatMs(RECOVERED_WITHIN_MS)}: ${String(reason)}`);
  }
  await pause(AFTER_MS);
  if (recoveredMs !== undefined) {
    // The lease of an exclusive replica may have ended before its node had a coordinator again; the
    // replica then ends and starts again after the cluster was as desired for a moment.
    await waitUntilAsDesired(world).catch((reason: unknown) =>
      violations.push(
        `not as desired again after ${formatMs(RECOVERED_WITHIN_MS)}: ${String(reason)}`,
      ),
    );
  }
  const late: string[] = [];
  try {
    const after = await readReplicas(world, RECOVERED_WITHIN_MS);
    const losses = await readNodeLosses(world, beganAtMs, RECOVERED_WITHIN_MS);
    for (const [name, replicas] of before) {
      const found = findReplicaChanges(replicas, after.get(name) ?? [], result.mayBeReplaced);
      const judgesTimes = context.timeFactor !== undefined;
      const judged = judgeReplicaChanges(name, found, { losses, judgesTimes });
      violations.push(...judged.violations);
      late.push(...judged.late);
    }
  } catch (reason) {
    violations.push(`replicas not read: ${String(reason)}`);
  }
  const seen = load.takeSeen();
  violations.push(...findTimeViolations(result, seen, context.timeFactor));
  violations.push(...seen.failures.slice(0, 3).map((text) => `request to ${text}`));
  if (result.mayEndLog === true) await load.reviveFollower();
  violations.push(...load.findLogProblems(), ...load.findExclusiveProblems());
  const { leaderLostAtMs, silentFromMs } = result;
  return {
    fault,
    target: result.target,
    nextLeaderMs:
      leaderLostAtMs === undefined
        ? undefined
        : findNextLeader(seen.attempts, leaderLostAtMs, silentFromMs),
    longestPauseMs: findLongestPause(seen.attempts, beganMs),
    recoveredMs,
    acknowledged: seen.acknowledged,
    failedWrites: seen.attempts.length - seen.acknowledged,
    answers: seen.answers,
    failedRequests: seen.failures.length,
    failedCodes: seen.failed,
    notes: [...(result.notes ?? []), ...seen.oddities.slice(0, 3)],
    violations,
    late,
  };
}

/** Waits until all nodes, workloads and processes are as desired. */
async function waitUntilAsDesired(world: World): Promise<void> {
  await world.waitUntilNodesReady(RECOVERED_WITHIN_MS);
  await waitUntilSettled(world, RECOVERED_WITHIN_MS);
  await waitUntilProcessesMatch(world, RECOVERED_WITHIN_MS);
}

/**
 * Compares the times of writes with what the fault allows.
 * @param timeFactor - Factor of the time limits; undefined: there are none.
 */
function findTimeViolations(
  result: FaultResult,
  { attempts }: Seen,
  timeFactor: number | undefined,
): readonly string[] {
  const { leaderLostAtMs, silentFromMs, leaderWithinMs, noWrites } = result;
  const violations: string[] = [];
  if (leaderLostAtMs !== undefined) {
    const tookMs = findNextLeader(attempts, leaderLostAtMs, silentFromMs);
    if (tookMs === undefined) violations.push('no write was acknowledged after the fault');
    else if (leaderWithinMs !== undefined && timeFactor !== undefined) {
      const limitMs = leaderWithinMs * timeFactor;
      if (tookMs > limitMs)
        violations.push(
          `the next leader acted after ${formatMs(tookMs)}, limit ${formatMs(limitMs)}`,
        );
    }
  }
  if (noWrites !== undefined) {
    const count = countWritesWithin(attempts, noWrites);
    if (count > 0) violations.push(`${count} writes were acknowledged where none can be`);
  }
  return violations;
}

function formatOutcome(outcome: Outcome): string {
  const { fault, target, nextLeaderMs, longestPauseMs, recoveredMs, violations } = outcome;
  const { acknowledged, failedWrites, failedCodes, answers, failedRequests, late } = outcome;
  return [
    `${fault} ${target}: next leader ${formatMs(nextLeaderMs) ?? '-'}, no write for ${formatMs(longestPauseMs)}`,
    `recovered after ${formatMs(recoveredMs) ?? '-'}, writes ${acknowledged}, failed calls ${failedWrites}${formatCodes(failedCodes)}`,
    `requests ${answers}, failed ${failedRequests}`,
    ...outcome.notes.map((text) => `\n  ${text}`),
    ...late.map((text) => `\n  LATE: ${text}`),
    ...violations.map((text) => `\n  VIOLATION: ${fault} ${target}: ${text}`),
  ].join(', ');
}

/** Formats codes as ` (Unavailable 12, DeadlineExceeded 3)`. */
function formatCodes(codes: Outcome['failedCodes']): string {
  const texts = Object.entries(codes).map(([name, count]) => `${name} ${count}`);
  return texts.length === 0 ? '' : ` (${texts.join(', ')})`;
}
