import { setTimeout as pause } from 'node:timers/promises';
import { Rollout_Strategy } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { QUICK, RealCluster } from './cluster.js';
import {
  Drains,
  EXERCISE_REPLICAS as REPLICAS,
  MovedRollouts,
  Rollouts,
  type Exercise,
} from './rollout-exercises.js';
import { liveReplicas, rolledOut } from './rollout-tools.js';

/**
 * RELIABILITY 9, 12, 17: whenever the coordinator dies, a rollout or drain comes to the same end,
 * above its floor.
 */
/** Fewer in a developer's run than in CI, which sets the number itself. */
const KILLS = Number(process.env['CLOUDLESS_ROLLOUT_KILLS'] ?? 10);
const SEED = Number(process.env['CLOUDLESS_CRASH_SEED'] ?? 20_262);
/** Forty starts of a process, on a machine that has other things to do as well. */
const TEST_TIMEOUT_MS = 400_000;
/**
 * After a kill that came too late for its round, the next ones come within this share of the time.
 */
const SOONER = 0.8;

let cluster: RealCluster;
let exercises: readonly Exercise[] = [];
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-a', 'zone-b', 'zone-b']);
});
afterAll(async () => {
  for (const { watch } of exercises) await watch.stop();
  await cluster.stop();
});

async function containersOf(name: string): Promise<readonly string[]> {
  const replicas = liveReplicas(await rolledOut(cluster, name));
  return replicas
    .map(({ id, containerId, restarts }) => `${id} ${containerId} restarts ${restarts}`)
    .sort();
}

function exercisesOf(): readonly Exercise[] {
  const steps = [
    { replicas: 1, wait: durationFromMs(200) },
    { percent: 60, wait: durationFromMs(200) },
  ];
  return [
    new Rollouts(cluster, 'rolling', 'zone-a'),
    new Rollouts(cluster, 'green', 'zone-a', {
      strategy: Rollout_Strategy.BLUE_GREEN,
      pauseDuration: durationFromMs(200),
    }),
    new Rollouts(cluster, 'canary', 'zone-a', { steps }),
    new Drains(cluster, 'drained', 'zone-b'),
    new MovedRollouts(cluster, 'both', 'zone-b'),
  ];
}

/**
 * Kills the coordinator without warning in a round of each in turn, again and again. @returns how
 * often that round was not over yet.
 */
async function killOften(): Promise<number> {
  const random = createSeededRandom(SEED);
  let hits = 0;
  for (let count = 0; count < KILLS; count += 1) {
    const exercise = exercises[count % exercises.length]!;
    // Rounds of the others go on meanwhile: a kill hits what they are at, too.
    await exercise.ended();
    await exercise.begin();
    await pause(random.next() * exercise.takesMs);
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    if (await exercise.isUnderWay()) hits += 1;
    else exercise.takesMs *= SOONER;
  }
  for (const exercise of exercises) await exercise.ended();
  return hits;
}

it(
  `${KILLS} kills of the coordinator in the middle of rollouts and drains: the same end, above the floor, and nothing restarts`,
  async () => {
    const spec = {
      ...QUICK,
      command: ['sleep', '100000'],
      replicas: 2,
      placement: { zones: ['zone-a'] },
    };
    await cluster.client.createWorkload({ name: 'still', spec });
    exercises = exercisesOf();
    for (const exercise of exercises) await exercise.prepare();
    const still = await containersOf('still');
    const hits = await killOften();
    process.stdout.write(
      `rollout kills: ${hits} of ${KILLS} in the middle of the round that was begun last, seed ${SEED}\n`,
    );
    for (const exercise of exercises) {
      const { name, watch, ledger, takesMs } = exercise;
      const rounds = `${watch.seen.length} sets of endpoints, about ${Math.round(takesMs)} ms for a round without a kill`;
      process.stdout.write(
        `rollout kills: ${name}: lowest ready ${watch.lowestReady} of ${REPLICAS}, ${rounds}\n`,
      );
      const found = {
        ready: watch.lowestReady,
        dips: ledger.dipsBelow(REPLICAS),
        wrong: await exercise.differences(),
      };
      expect({ name, ...found }).toEqual({ name, ready: REPLICAS, dips: [], wrong: [] });
    }
    expect(await containersOf('still')).toEqual(still);
    // Else the kills hit nothing.
    expect(hits).toBeGreaterThan(KILLS / 3);
  },
  TEST_TIMEOUT_MS,
);
