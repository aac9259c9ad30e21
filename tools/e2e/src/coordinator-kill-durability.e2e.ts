import { setTimeout as pause } from 'node:timers/promises';
import type { Workload } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { RealCluster } from './support/cluster.js';
import { RecordingWriter, type AcknowledgedWrite } from './support/recording-writer.js';

/** Number of kills. CI may set a higher number. */
const KILLS = Number(process.env['CLOUDLESS_KILLS'] ?? 50);
const WRITERS = 6;
/** Range of the delay of a kill after the coordinator is ready, in milliseconds. */
const KILL_AFTER_MS = { from: 50, to: 400 };
const SEED = Number(process.env['CLOUDLESS_CRASH_SEED'] ?? 20_261);
/** Time limit for fifty process starts on a busy machine. */
const TEST_TIMEOUT_MS = 400_000;

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterEach(() => cluster.stop());

/** Returns node, container, process and restarts of each replica of a workload, by replica id. */
async function describeReplicas(workload: Workload): Promise<Record<string, string>> {
  const descriptions = (workload.status?.replicas ?? []).map(
    async ({ id, nodeId, containerId, restarts }) => {
      const { pid } = await cluster.agentClient.getContainerStatus({ containerId });
      return [id, `${nodeId} ${containerId} pid ${pid} restarts ${restarts}`] as const;
    },
  );
  return Object.fromEntries(await Promise.all(descriptions));
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

/**
 * Compares the state of the coordinator with the acknowledged writes.
 * @returns Writes that are missing, and writes that took effect twice; `npm test` excuses neither
 *   by a repetition that passes.
 */
async function compareWithStore(
  log: readonly AcknowledgedWrite[],
): Promise<{ readonly lost: readonly string[]; readonly twice: readonly string[] }> {
  const [lost, twice]: [string[], string[]] = [[], []];
  for (const name of new Set(log.map((written) => written.name))) {
    const writes = log.filter((written) => written.name === name);
    const answers = writes
      .map(({ answer }) => answer)
      .sort((a, b) => Number(a.generation - b.generation));
    const current = await cluster.client.getWorkload({ name }).catch(() => undefined);
    // each write increments the generation, so the generation equals the number of writes
    const missing = answers.length - Number(current?.generation ?? 0n);
    if (missing > 0 || current?.uid !== answers[0]?.uid)
      lost.push(`VIOLATION: ${name}: ${missing} of ${answers.length} writes`);
    if (missing < 0)
      twice.push(`VIOLATION: ${name}: ${-missing} more than ${answers.length} writes`);
    for (const [index, { generation }] of answers.entries()) {
      if (generation !== BigInt(index + 1))
        twice.push(`VIOLATION: ${name}: answer ${index + 1} has generation ${generation}`);
    }
    const last = answers.at(-1)?.spec;
    if (
      JSON.stringify([current?.spec?.replicas, current?.spec?.labels]) !==
      JSON.stringify([last?.replicas, last?.labels])
    ) {
      lost.push(`VIOLATION: ${name}: the last write`);
    }
  }
  return { lost, twice };
}

it(
  `a coordinator loses no acknowledged write, applies none twice and restarts no replica when killed ${KILLS} times`,
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
    const before = await describeReplicas(await cluster.waitUntilSettled('steady'));
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
    const after = await describeReplicas(await cluster.waitUntilSettled('steady'));
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
    // otherwise too few kills have interrupted a write
    expect(retried).toBeGreaterThan(KILLS / 2);
  },
  TEST_TIMEOUT_MS,
);
