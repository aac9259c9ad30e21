import { join } from 'node:path';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Disconnect_Mode,
  type CoordinatorClient,
  type ReplicaStatus,
  type Workload,
} from '@cloudless/api';
import { REQUEST_APP } from '@cloudless/e2e';
import type { ReplicaFacts } from '../checks/replica-changes.js';
import type { World } from '../world/world.js';

/** Workload that answers requests. */
export const WEB = 'web';
/** Workload whose log is followed: prints 1, 2, 3, …, a number every 20 ms. */
export const COUNTER = 'counter';
/** Workload of mode EXCLUSIVE, which records heartbeats. */
export const ONLY = 'only';
/** Workload whose process a fault kills. */
export const CRASHING = 'crashing';
/** Workloads whose replicas are compared before and after a fault. */
const WATCHED = [WEB, COUNTER, ONLY, CRASHING];

const COUNTER_PROGRAM = `let n = 0; setInterval(() => console.log(String(++n)), 20);
  process.on('SIGTERM', () => process.exit(0));`;
/** Ignores SIGTERM, so that only SIGKILL ends it. */
const HEARTBEAT_PROGRAM = `const fs = require('node:fs');
  process.on('SIGTERM', () => undefined);
  setInterval(() => fs.appendFileSync(process.env.HEARTBEATS, process.env.CLOUDLESS_REPLICA_ID + ' ' + Date.now() + '\\n'), 10);`;
/** Records its process id, then sleeps. */
const CRASHING_PROGRAM = `require('node:fs').appendFileSync(process.env.PIDS, process.pid + '\\n');
  setInterval(() => undefined, 60_000);
  process.on('SIGTERM', () => process.exit(0));`;
/** Time that the start of the workloads takes at most, milliseconds. */
const START_MS = 60_000;
/**
 * Time after which an exclusive replica on a node without coordinator stops: longer than the other
 * faults leave a node without a leader, also on a busy machine.
 */
const STOP_AFTER = { seconds: 20n };

/** Returns the file of the heartbeats of the exclusive workload. */
export const toHeartbeatsFile = (world: World): string => join(world.directory, 'heartbeats');
/** Returns the file with the process id of each start of the crashing workload. */
export const toPidsFile = (world: World): string => join(world.directory, 'pids');

/**
 * Creates the watched workloads, and waits until they run.
 * @param webReplicas - Replicas of the workload that answers requests.
 */
export async function startWorkloads(world: World, webReplicas: number): Promise<void> {
  const rollout = { minReadyDuration: { seconds: 0n } };
  const specs = {
    [WEB]: {
      command: REQUEST_APP,
      env: { VERSION: '1', HOST: '0.0.0.0', ANSWER_MS: '5' },
      ports: [{ name: 'http', containerPort: 80 }],
      replicas: webReplicas,
      rollout,
    },
    [COUNTER]: { command: ['node', '-e', COUNTER_PROGRAM], rollout },
    [ONLY]: {
      command: ['node', '-e', HEARTBEAT_PROGRAM],
      env: { HEARTBEATS: toHeartbeatsFile(world) },
      disconnect: { mode: Disconnect_Mode.EXCLUSIVE, stopAfter: STOP_AFTER },
      terminationGracePeriod: { seconds: 1n },
      rollout,
    },
    [CRASHING]: {
      command: ['node', '-e', CRASHING_PROGRAM],
      env: { PIDS: toPidsFile(world) },
      rollout,
    },
  };
  for (const [name, spec] of Object.entries(specs))
    await world.call(
      (client, options) => client.createWorkload({ name, requestId: name, spec }, options),
      START_MS,
    );
  await waitUntilSettled(world, START_MS);
}

/**
 * Waits until each watched workload has exactly the replicas that it should have, all ready, as the
 * leader says.
 */
export async function waitUntilSettled(world: World, withinMs: number): Promise<void> {
  await world.callLeader(async (client, options) => {
    for (const name of WATCHED) {
      const problem = describeUnsettled(await client.getWorkload({ name }, options));
      if (problem !== undefined) throw new Error(`${name}: ${problem}`);
    }
  }, withinMs);
}

/** Returns why a workload has not the replicas that it should have; undefined when it has them. */
function describeUnsettled({ generation, status }: Workload): string | undefined {
  if (status === undefined || status.observedGeneration !== generation)
    return 'the newest spec was not observed';
  const { desiredReplicas, readyReplicas, totalReplicas, replicas } = status;
  if (replicas.length === desiredReplicas && readyReplicas === desiredReplicas) return undefined;
  return `${readyReplicas} of ${desiredReplicas} replicas are ready, ${totalReplicas} exist, ${replicas.length} are listed`;
}

/** Reads the replicas of the watched workloads from the leader. */
export async function readReplicas(
  world: World,
  withinMs: number,
): Promise<ReadonlyMap<string, readonly ReplicaFacts[]>> {
  const read = async (
    client: CoordinatorClient,
    options: { readonly timeoutMs: number },
  ): Promise<ReadonlyMap<string, readonly ReplicaFacts[]>> => {
    const found = new Map<string, readonly ReplicaFacts[]>();
    for (const name of WATCHED) {
      const { status } = await client.getWorkload({ name }, options);
      const toFacts = (replica: ReplicaStatus): ReplicaFacts => {
        const { id, nodeId, containerId, restarts, failedStarts } = replica;
        return { workload: name, id, nodeId, containerId, restarts, failedStarts };
      };
      found.set(name, (status?.replicas ?? []).map(toFacts));
    }
    return found;
  };
  return world.callLeader(read, withinMs);
}

/**
 * Reads why nodes were lost.
 * @param sinceMs - Wall-clock milliseconds; earlier losses do not count.
 * @returns The text of the newest loss, by node.
 */
export async function readNodeLosses(
  world: World,
  sinceMs: number,
  withinMs: number,
): Promise<ReadonlyMap<string, string>> {
  const request = { reasons: ['NodeLost'], since: timestampFromMs(sinceMs), pageSize: 1_000 };
  const { events } = await world.callLeader(
    (client, options) => client.listEvents(request, options),
    withinMs,
  );
  return new Map(events.map(({ nodeId, message }) => [nodeId, message]));
}
