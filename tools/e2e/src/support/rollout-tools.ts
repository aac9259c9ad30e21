import { fileURLToPath } from 'node:url';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  RolloutStatus_Phase,
  type ReplicaStatus,
  type Workload,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import { RequestClient } from './request-client.js';
import type { RealCluster } from './cluster.js';

export type Spec = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { $typeName: string }>;
export type Rollout = Exclude<NonNullable<Spec['rollout']>, { $typeName: string }>;

/** Path of the test server `request-app.mjs`. */
export const REQUEST_APP_FILE = fileURLToPath(new URL('./request-app.mjs', import.meta.url));
/** Command of the test server; environment variables control its behaviour. */
export const REQUEST_APP = ['node', REQUEST_APP_FILE];

/**
 * Creates a spec of four test servers of version 1. A replica is available after half a second.
 * @param more - Fields that replace the fields of the spec.
 */
export function createWebSpec(rollout: Rollout, more: Spec = {}): Spec {
  return {
    command: REQUEST_APP,
    env: { VERSION: '1' },
    ports: [{ name: 'http', containerPort: 80 }],
    replicas: 4,
    rollout: { minReadyDuration: durationFromMs(500), ...rollout },
    ...more,
  };
}

/** Answers that each client gets before and after the change, so that both states are tested. */
const SOME_ANSWERS = 50;

/**
 * Runs two clients with 100 requests a second each, one with a new connection for each request and
 * one with kept connections, from before `change` starts until after `change` has ended. Prints
 * their counts.
 * @param name - Workload that the clients use.
 * @returns Both clients, after their last request.
 */
export async function runUnderLoad(
  cluster: RealCluster,
  name: string,
  change: (clients: readonly RequestClient[]) => Promise<void>,
): Promise<readonly RequestClient[]> {
  const { currentTestName } = expect.getState();
  const clients = (['new', 'kept'] as const).map(
    (connections) => new RequestClient(() => cluster.client, name, connections),
  );
  const waitForAnswers = (): Promise<unknown> =>
    Promise.all(clients.map((client) => client.waitForAnswers(SOME_ANSWERS)));
  try {
    for (const client of clients) await client.start();
    await waitForAnswers();
    await change(clients);
    await waitForAnswers();
  } finally {
    await Promise.all(clients.map((client) => client.stop()));
    for (const { summary } of clients) process.stdout.write(`${currentTestName}: ${summary}\n`);
  }
  return clients;
}

/** Failures that a failed expectation prints; further failures usually have the same reason. */
const SHOWN_FAILURES = 5;

/**
 * Expects that no request failed, that no set of endpoints was smaller than `minAvailable`, and
 * that connections were used as configured.
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
 * Expects one switch of the traffic between two sets of replicas: one watch item has all endpoints
 * of the first set, the next item all of the second set; no earlier request is answered by the
 * second set and no later request by the first set.
 */
export function expectOneSwitch(
  clients: readonly RequestClient[],
  from: readonly string[],
  to: readonly string[],
): void {
  for (const {
    watch: { receivedSets },
    answers,
  } of clients) {
    const sets = receivedSets.map(({ replicaIds }) => [...replicaIds].sort());
    const index = sets.findIndex((set) => set.some((id) => to.includes(id)));
    expect(index).toBeGreaterThan(0);
    expect(sets.slice(0, index)).toEqual(sets.slice(0, index).map(() => from));
    expect(sets.slice(index)).toEqual(sets.slice(index).map(() => to));
    const switchedAtMs = receivedSets[index]?.atMs ?? Number.NaN;
    const before = answers.filter(({ sentAtMs }) => sentAtMs < switchedAtMs);
    const after = answers.filter(({ sentAtMs }) => sentAtMs >= switchedAtMs);
    expect([...new Set(before.map(({ replicaId }) => replicaId))].sort()).toEqual(from);
    expect([...new Set(after.map(({ replicaId }) => replicaId))].sort()).toEqual(to);
  }
}

/**
 * Waits until the newest spec is rolled out, all replicas are ready, and no replica of another
 * version is left.
 * @param phase - Phase of the rollout to wait for.
 */
export async function waitUntilRolledOut(
  cluster: RealCluster,
  name: string,
  phase: RolloutStatus_Phase = RolloutStatus_Phase.COMPLETED,
): Promise<Workload> {
  return cluster.waitForWorkload(name, ({ generation, status }) => {
    if (status === undefined) return false;
    const {
      desiredReplicas,
      readyReplicas,
      updatedReplicas,
      totalReplicas,
      observedGeneration,
      rollout,
    } = status;
    const isComplete = [readyReplicas, updatedReplicas, totalReplicas].every(
      (count) => count === desiredReplicas,
    );
    return isComplete && observedGeneration === generation && rollout?.phase === phase;
  });
}

/** Returns the replicas that have a container, are not leaving and have not ended. */
export function listLiveReplicas({ status }: Workload): readonly ReplicaStatus[] {
  return (status?.replicas ?? []).filter(
    ({ containerId, leaving, phase }) => containerId !== '' && !leaving && phase < 5,
  );
}

/**
 * Returns the sorted ids of the live replicas.
 * @param version - Only replicas of this version. Default: of all versions.
 */
export function listLiveIds(workload: Workload, version?: number): readonly string[] {
  const replicas = listLiveReplicas(workload).filter(
    (replica) => version === undefined || replica.version === version,
  );
  return replicas.map(({ id }) => id).sort();
}
