import { setTimeout as pause } from 'node:timers/promises';
import type { Workload } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { RealCluster } from './support/cluster.js';
import { RecordingWriter, type AcknowledgedWrite } from './support/recording-writer.js';

/**
 * Acknowledged writes are durable, retries take effect once, and running replicas are not
 * disturbed.
 */
/** Number of kills; CI sets a higher number. */
const KILLS = Number(process.env['CLOUDLESS_KILLS'] ?? 50);
const WRITERS = 6;
/** Delays of the kills after the coordinator is ready, milliseconds. */
const KILL_AFTER_MS = { from: 50, to: 400 };
const SEED = Number(process.env['CLOUDLESS_CRASH_SEED'] ?? 20_261);
/** Time limit for fifty process starts on a busy machine. */
const TEST_TIMEOUT_MS = 400_000;

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterEach(() => cluster.stop());

/** Container and process of each replica of a workload. */
async function listPlaces(workload: Workload): Promise<Record<string, string>> {
  const places = (workload.status?.replicas ?? []).map(
    async ({ id, nodeId, containerId, restarts }) => {
      const { pid } = await cluster.agentClient.getContainerStatus({ containerId });
      return [id, `${nodeId} ${containerId} pid ${pid} restarts ${restarts}`] as const;
    },
  );
  return Object.fromEntries(await Promise.all(places));
}

/** Kills the coordinator with SIGKILL repeatedly during writes. */
async function killRepeatedly(): Promise<void> {
  const random = createSeededRandom(SEED);
  for (let count = 0; count < KILLS; count += 1) {
    await pause(KILL_AFTER_MS.from + random.next() * (KILL_AFTER_MS.to - KILL_AFTER_MS.from));
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
  }
}

/** Compares the store with the acknowledged writes of a log. */
async function compareWithStore(
  log: readonly AcknowledgedWrite[],
): Promise<{ readonly lost: readonly string[]; readonly twice: readonly string[] }> {
  const [lost, twice]: [string[], string[]] = [[], []];
  for (const name of new Set(log.map((written) => written.name))) {
    const own = log.filter((written) => written.name === name);
    const answers = own
      .map(({ answer }) => answer)
      .sort((a, b) => Number(a.generation - b.generation));
    const now = await cluster.client.getWorkload({ name }).catch(() => undefined);
    // Each write increments the generation, so the number of acknowledged writes equals the
    // generation.
    const missing = answers.length - Number(now?.generation ?? 0n);
    if (missing > 0 || now?.uid !== answers[0]?.uid)
      lost.push(`${name}: ${missing} of ${answers.length} writes`);
    if (missing < 0) twice.push(`${name}: ${-missing} more than ${answers.length} writes`);
    for (const [index, { generation }] of answers.entries()) {
      if (generation !== BigInt(index + 1))
        twice.push(`${name}: answer ${index + 1} has generation ${generation}`);
    }
    const last = answers.at(-1)?.spec;
    if (
      JSON.stringify([now?.spec?.replicas, now?.spec?.labels]) !==
      JSON.stringify([last?.replicas, last?.labels])
    ) {
      lost.push(`${name}: the last write`);
    }
  }
  return { lost, twice };
}

it(
  `the coordinator loses no acknowledged write, applies no write twice and restarts no replica when it is killed ${KILLS} times during writes`,
  async () => {
    await cluster.client.createWorkload({
      name: 'steady',
      spec: { command: ['sleep', '100000'], replicas: 4 },
    });
    await cluster.client.createWorkload({
      name: 'shared',
      requestId: 'shared',
      spec: { command: ['sleep', '1'], replicas: 0 },
    });
    const before = await listPlaces(await cluster.waitUntilSettled('steady'));
    const writers = Array.from(
      { length: WRITERS },
      (_, index) => new RecordingWriter(index, cluster.url),
    );
    const writing = Promise.all(writers.map((writer) => writer.run()));
    await killRepeatedly();
    for (const writer of writers) writer.stop();
    await writing;
    for (const agent of ['agent-1', 'agent-2']) await cluster.waitUntilNodeReady(agent);
    const shared = await cluster.client.createWorkload({
      name: 'shared',
      requestId: 'shared',
      spec: { command: ['sleep', '1'], replicas: 0 },
    });
    const log = [
      ...writers.flatMap((writer) => writer.log),
      { name: 'shared', answer: shared, sends: 1 },
    ];
    const { lost, twice } = await compareWithStore(log);
    for (let index = 0; index < WRITERS; index += 1) await cluster.waitUntilSettled(`own-${index}`);
    const after = await listPlaces(await cluster.waitUntilSettled('steady'));
    const restarted = Object.keys(before).filter((id) => before[id] !== after[id]);
    const retried = log.filter(({ sends }) => sends > 1).length;
    process.stdout.write(
      `crash: kills ${KILLS}, acknowledged ${log.length}, retried ${retried}, lost ${lost.length}, twice ${twice.length}, ` +
        `restarted ${restarted.length}, seed ${SEED}\n`,
    );
    expect({
      lost,
      twice,
      restarted,
      refused: writers.flatMap(({ refusals }) => refusals),
    }).toEqual({
      lost: [],
      twice: [],
      restarted: [],
      refused: [],
    });
    expect(Object.keys(after).sort()).toEqual(Object.keys(before).sort());
    // Otherwise the kills hit no write.
    expect(retried).toBeGreaterThan(KILLS / 2);
  },
  TEST_TIMEOUT_MS,
);
