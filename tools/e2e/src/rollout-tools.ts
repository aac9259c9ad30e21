import { fileURLToPath } from 'node:url';
import {
  RolloutStatus_Phase,
  type ReplicaStatus,
  type Workload,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { RequestClient } from './request-client.js';
import type { RealCluster } from './cluster.js';

export type Spec = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { $typeName: string }>;
export type Rollout = Exclude<NonNullable<Spec['rollout']>, { $typeName: string }>;

/** The file of the server of tests under load. */
export const REQUEST_APP_FILE = fileURLToPath(new URL('./request-app.mjs', import.meta.url));
/** Runs it; its environment says how it behaves. */
export const REQUEST_APP = ['node', REQUEST_APP_FILE];

/** Four servers of version 1; a replica has proven itself after half a second. */
export function webSpec(rollout: Rollout, more: Spec = {}): Spec {
  return {
    command: REQUEST_APP,
    env: { VERSION: '1' },
    ports: [{ name: 'http', containerPort: 80 }],
    replicas: 4,
    rollout: { minReadyDuration: durationFromMs(500), ...rollout },
    ...more,
  };
}

/** Answers that show that a client has met a state, and not by chance. */
const SOME_ANSWERS = 50;

/**
 * Lets two clients ask a workload 100 times a second each, one with a new connection for each
 * request and one that keeps its connections, from before `change` begins until after it has ended.
 * Prints what they counted.
 */
export async function underLoad(
  cluster: RealCluster,
  name: string,
  change: (clients: readonly RequestClient[]) => Promise<void>,
): Promise<readonly RequestClient[]> {
  const { currentTestName } = expect.getState();
  const clients = (['new', 'kept'] as const).map(
    (connections) => new RequestClient(() => cluster.client, name, connections),
  );
  const enough = (): Promise<unknown> =>
    Promise.all(clients.map((client) => client.answered(SOME_ANSWERS)));
  try {
    for (const client of clients) await client.start();
    await enough();
    await change(clients);
    await enough();
  } finally {
    await Promise.all(clients.map((client) => client.stop()));
    for (const { summary } of clients) process.stdout.write(`${currentTestName}: ${summary}\n`);
  }
  return clients;
}

/** Those that follow say the same. */
const SHOWN_FAILURES = 5;

/**
 * No request failed, and no set of endpoints was smaller than the floor; connections were used as
 * they should.
 */
export function expectServed(clients: readonly RequestClient[], minAvailable: number): void {
  for (const { connections, answers, failures, reused, watch } of clients) {
    expect(failures.slice(0, SHOWN_FAILURES)).toEqual([]);
    expect(watch.lowestReady).toBeGreaterThanOrEqual(minAvailable);
    if (connections === 'new') expect(reused).toBe(0);
    else expect(reused).toBeGreaterThan(answers.length / 2);
  }
}

/**
 * Traffic went over to another set of replicas in one step, once: one item of the watch has all of
 * the one set, the next has all of the other, and no request that was sent before is answered by
 * the new set, nor one that was sent after by the old one.
 */
export function expectOneSwitch(
  clients: readonly RequestClient[],
  from: readonly string[],
  to: readonly string[],
): void {
  for (const {
    watch: { seen },
    answers,
  } of clients) {
    const sets = seen.map(({ replicaIds }) => [...replicaIds].sort());
    const index = sets.findIndex((set) => set.some((id) => to.includes(id)));
    expect(index).toBeGreaterThan(0);
    expect(sets.slice(0, index)).toEqual(sets.slice(0, index).map(() => from));
    expect(sets.slice(index)).toEqual(sets.slice(index).map(() => to));
    const switchedAtMs = seen[index]?.atMs ?? Number.NaN;
    const before = answers.filter(({ sentAtMs }) => sentAtMs < switchedAtMs);
    const after = answers.filter(({ sentAtMs }) => sentAtMs >= switchedAtMs);
    expect([...new Set(before.map(({ replicaId }) => replicaId))].sort()).toEqual(from);
    expect([...new Set(after.map(({ replicaId }) => replicaId))].sort()).toEqual(to);
  }
}

/**
 * Waits until the newest spec is rolled out and nothing of another version, nor anything that
 * leaves, is left.
 */
export async function rolledOut(
  cluster: RealCluster,
  name: string,
  phase: RolloutStatus_Phase = RolloutStatus_Phase.COMPLETED,
): Promise<Workload> {
  return cluster.until(name, ({ generation, status }) => {
    if (status === undefined) return false;
    const {
      desiredReplicas,
      readyReplicas,
      updatedReplicas,
      totalReplicas,
      observedGeneration,
      rollout,
    } = status;
    const exact = [readyReplicas, updatedReplicas, totalReplicas].every(
      (count) => count === desiredReplicas,
    );
    return exact && observedGeneration === generation && rollout?.phase === phase;
  });
}

/** Replicas that hold anything. */
export function liveReplicas({ status }: Workload): readonly ReplicaStatus[] {
  return (status?.replicas ?? []).filter(
    ({ containerId, leaving, phase }) => containerId !== '' && !leaving && phase < 5,
  );
}

/** Their ids, sorted. @param version - Only those of this version. */
export function liveIds(workload: Workload, version?: number): readonly string[] {
  const replicas = liveReplicas(workload).filter(
    (replica) => version === undefined || replica.version === version,
  );
  return replicas.map(({ id }) => id).sort();
}
