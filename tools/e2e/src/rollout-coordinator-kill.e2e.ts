import { setTimeout as pause } from 'node:timers/promises';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Strategy } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { QUICK, RealCluster } from './support/cluster.js';
import {
  DrainExercise,
  EXERCISE_REPLICAS as REPLICAS,
  MovedRolloutExercise,
  RolloutExercise,
  type Exercise,
} from './support/rollout-exercises.js';
import { listLiveReplicas, waitUntilRolledOut } from './support/rollout-tools.js';

/** Number of kills. CI may set a higher number. */
const KILLS = Number(process.env['CLOUDLESS_ROLLOUT_KILLS'] ?? 10);
const SEED = Number(process.env['CLOUDLESS_CRASH_SEED'] ?? 20_262);
/** Time limit for forty process starts on a busy machine. */
const TEST_TIMEOUT_MS = 400_000;
/**
 * Factor of the assumed duration of a round after a kill that came after the end of its round, so
 * that later kills come earlier.
 */
const EARLIER_FACTOR = 0.8;

let cluster: RealCluster;
let exercises: readonly Exercise[] = [];
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-a', 'zone-b', 'zone-b']);
});
afterAll(async () => {
  for (const { watch } of exercises) await watch.stop();
  await cluster.stop();
});

/** Returns container and restarts of each replica, sorted. */
async function listContainers(name: string): Promise<readonly string[]> {
  const replicas = listLiveReplicas(await waitUntilRolledOut(cluster, name));
  return replicas
    .map(({ id, containerId, restarts }) => `${id} ${containerId} restarts ${restarts}`)
    .sort();
}

function createExercises(): readonly Exercise[] {
  const steps = [
    { replicas: 1, wait: durationFromMs(200) },
    { percent: 60, wait: durationFromMs(200) },
  ];
  return [
    new RolloutExercise(cluster, 'rolling', 'zone-a'),
    new RolloutExercise(cluster, 'green', 'zone-a', {
      strategy: Rollout_Strategy.BLUE_GREEN,
      pauseDuration: durationFromMs(200),
    }),
    new RolloutExercise(cluster, 'canary', 'zone-a', { steps }),
    new DrainExercise(cluster, 'drained', 'zone-b'),
    new MovedRolloutExercise(cluster, 'both', 'zone-b'),
  ];
}

/**
 * Kills the coordinator with SIGKILL during a round of each exercise in turn.
 * @returns The number of kills that hit an unfinished round.
 */
async function killRepeatedly(): Promise<number> {
  const random = createSeededRandom(SEED);
  let hits = 0;
  for (let count = 0; count < KILLS; count += 1) {
    const exercise = exercises[count % exercises.length]!;
    // rounds of the other exercises continue, so a kill also hits those
    await exercise.waitForEnd();
    await exercise.beginRound();
    await pause(random.next() * exercise.takesMs);
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    if (await exercise.isUnderWay()) hits += 1;
    else exercise.takesMs *= EARLIER_FACTOR;
  }
  for (const exercise of exercises) await exercise.waitForEnd();
  return hits;
}

it(
  `rollouts and drains complete and keep min_available when the coordinator is killed ${KILLS} times`,
  async () => {
    const spec = {
      ...QUICK,
      command: ['sleep', '100000'],
      replicas: 2,
      placement: { zones: ['zone-a'] },
    };
    await cluster.client.createWorkload({ name: 'still', spec });
    exercises = createExercises();
    for (const exercise of exercises) await exercise.prepare();
    const untouched = await listContainers('still');
    const hits = await killRepeatedly();
    process.stdout.write(
      `rollout kills: ${hits} of ${KILLS} during the newest round, seed ${SEED}\n`,
    );
    for (const exercise of exercises) {
      const { name, watch, ledger, takesMs } = exercise;
      const rounds = `${watch.receivedSets.length} sets of endpoints, about ${Math.round(takesMs)} ms for a round without a kill`;
      process.stdout.write(
        `rollout kills: ${name}: lowest ready ${watch.lowestReady} of ${REPLICAS}, ${rounds}\n`,
      );
      const result = {
        ready: watch.lowestReady,
        dips: ledger.findDipsBelow(REPLICAS),
        differences: await exercise.findDifferences(),
      };
      expect({ name, ...result }).toEqual({ name, ready: REPLICAS, dips: [], differences: [] });
    }
    expect(await listContainers('still')).toEqual(untouched);
    // otherwise too few kills have interrupted a round
    expect(hits).toBeGreaterThan(KILLS / 3);
  },
  TEST_TIMEOUT_MS,
);
