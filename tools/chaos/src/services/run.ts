import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { EXIT_STOPPED } from '../own-network.js';
import { World } from '../world/world.js';
import {
  EVENTS,
  NEIGHBOUR_SPEC,
  WEB,
  WEB_SPEC,
  type EventContext,
  type EventResult,
} from './events.js';
import { runForeignClients } from './foreign-clients.js';
import type { EventName, ServiceOptions } from './options.js';
import { rotatePasswords } from './password-rotation.js';
import { ServiceCluster } from './service-cluster.js';
import { Traffic } from './traffic.js';
import { judge, type Verdict } from './verdict.js';

/** Time between the end of an event and its verdict, milliseconds. */
const AFTER_MS = 2_000;
/** Longest time of an event without outage, milliseconds. */
const EVENT_WITHIN_MS = 240_000;

/** Result of an event. */
interface EventOutcome extends Verdict {
  /** Observations beside the figures. */
  readonly notes: readonly string[];
}

/**
 * Runs a cluster, the client and the events, then the other clients and the change of the password.
 * @param print - Receives a line for each verdict.
 * @param stopSignal - Ends the cluster and this process when it aborts.
 * @returns Violations, as texts. Empty: all checks held.
 */
export async function runServices(
  options: ServiceOptions,
  print: (line: string) => void,
  stopSignal: AbortSignal,
): Promise<readonly string[]> {
  const world = await World.create();
  const stop = async (): Promise<void> => {
    world.writeLogs(options.logs);
    writeProxyLogs(world, options.logs);
    await world.stop();
  };
  stopSignal.addEventListener('abort', () => void stop().then(() => process.exit(EXIT_STOPPED)));
  const cluster = new ServiceCluster(world);
  const violations: string[] = [];
  try {
    await cluster.start(options.nodes);
    if (options.events.length > 0) violations.push(...(await runEvents(cluster, options, print)));
    if (options.runsClients) violations.push(...(await runForeignClients(cluster, print)));
    if (options.changesPasswords) violations.push(...(await rotatePasswords(cluster, print)));
    return violations;
  } finally {
    await stop();
  }
}

async function runEvents(
  cluster: ServiceCluster,
  { events, outageMs, isTimed, rate }: ServiceOptions,
  print: (line: string) => void,
): Promise<readonly string[]> {
  await cluster.create(WEB, WEB_SPEC);
  // an agent that stops on a node without replicas also stops its proxy
  await cluster.create('neighbour', NEIGHBOUR_SPEC);
  const address = await cluster.waitForAddress(WEB, 80);
  const traffic = new Traffic(cluster.client.machine, address, rate);
  const violations: string[] = [];
  try {
    await traffic.take(Date.now());
    const run = async (event: EventName): Promise<void> => {
      const outcome = await runEvent(event, { cluster, traffic, outageMs }, isTimed);
      print(formatOutcome(event, outcome));
      violations.push(...outcome.violations.map((text) => `${event}: ${text}`));
    };
    for (const event of events) {
      // an event before may have moved all replicas away from a node
      if (await cluster.hasEmptyServer(WEB)) await run('rolling-update');
      await run(event);
    }
  } finally {
    await traffic.stop();
  }
  return violations;
}

/** Runs one event, and compares the requests meanwhile with what it allows. */
async function runEvent(
  event: EventName,
  context: EventContext,
  isTimed: boolean,
): Promise<EventOutcome> {
  const limit = pause(EVENT_WITHIN_MS + context.outageMs, undefined, { ref: false });
  const result = await Promise.race([
    EVENTS[event](context),
    limit.then(() => Promise.reject(new Error('the event takes too long'))),
  ]).catch((reason: unknown): EventResult => ({ problems: [`not completed: ${String(reason)}`] }));
  await pause(AFTER_MS);
  const requests = await context.traffic.take(Date.now());
  // Without a fault, connections end only with their replicas.
  const allowed =
    result.brokenAtMs === undefined && (result.problems ?? []).length === 0
      ? { endsReplica: await findEndedReplicas(context.cluster) }
      : result;
  const verdict = judge(requests, allowed, isTimed);
  return {
    ...verdict,
    notes: result.notes ?? [],
    violations: [...(result.problems ?? []), ...verdict.violations],
  };
}

/** Returns a function that tells whether a replica that clients have reached has ended by now. */
async function findEndedReplicas(cluster: ServiceCluster): Promise<(replicaId: string) => boolean> {
  const { status } = await cluster.read(WEB);
  const running = new Set(status?.replicas.map(({ id }) => id));
  return (replicaId) => !running.has(replicaId);
}

function formatOutcome(event: EventName, outcome: EventOutcome): string {
  const { requests, failedNew, failedKept, repeated, recoveredMs, p99Ms, slowestMs } = outcome;
  const recovered = recoveredMs === undefined ? '' : `, recovered ${Math.round(recoveredMs)} ms`;
  return [
    `${outcome.violations.length === 0 ? 'ok  ' : 'FAIL'} ${event}: ${requests} requests`,
    `failed over new connections ${failedNew}, over kept ones ${failedKept}`,
    `repeated after a close ${repeated}${recovered}`,
    `P99 ${Math.round(p99Ms)} ms, slowest ${Math.round(slowestMs)} ms`,
    `slower than 1 s ${outcome.slow}, not sent ${outcome.notSent}`,
    ...outcome.notes.map((text) => `\n     ${text}`),
    ...outcome.violations.map((text) => `\n     VIOLATION: ${text}`),
  ].join(', ');
}

/** Copies the logs of the network proxies. */
function writeProxyLogs({ agents }: World, directory: string): void {
  for (const { name, machine } of agents) {
    const file = join(machine.home, 'agent', 'network', 'proxy.log');
    if (existsSync(file)) writeFileSync(join(directory, `${name}-proxy.log`), readFileSync(file));
  }
}
