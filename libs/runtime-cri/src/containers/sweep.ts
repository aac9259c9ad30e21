import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { errorFields, type ContainerId, type Log } from '@cloudless/base';
import {
  ContainerState,
  PodSandboxState,
  type Container,
  type PodSandbox,
} from '../gen/runtime/v1/api_pb.js';
import type { ContainerInventory } from './inventory.js';
import { isContainerId, readContainerId } from './labels.js';
import type { Sandboxes } from './sandboxes.js';
import { toMs } from './nanoseconds.js';

/** Arguments of {@link sweep}. */
export interface SweepOptions {
  readonly inventory: ContainerInventory;
  readonly sandboxes: Sandboxes;
  /** Returns true while this agent is starting the container. */
  readonly isStarting: (containerId: ContainerId) => boolean;
  /** Absolute path of the directory that contains the log directory of each container. */
  readonly logRoot: string;
  readonly log: Log;
  /**
   * Minimum age in milliseconds of removed sandboxes, containers and logs, and minimum time since
   * the exit of a container whose network is ended. Younger remains may belong to a running start.
   */
  readonly orphanAgeMs: number;
  /** Current wall-clock time in milliseconds. */
  readonly nowMs: number;
}

/**
 * Removes the remains of a killed agent or of an interrupted call: sandboxes of this owner without
 * a started container, containers that were never started, and log directories without a sandbox or
 * container. Also stops containers whose state the runtime has lost, and ends the networks of
 * containers that exited before `orphanAgeMs`. A failed removal is logged, and the sweep continues.
 * @throws kind `unavailable` when the runtime does not answer.
 */
export async function sweep(options: SweepOptions): Promise<void> {
  const { inventory, sandboxes } = options;
  const listed = [...(await sandboxes.listAll()), ...(await sandboxes.listUnfinished())];
  await stopLostContainers(options, listed);
  // Refresh after the lists: a listed sandbox whose container the inventory lacks has no started
  // container.
  await inventory.refreshAll();
  const orphans = new Set(
    listed.filter((each) => isOrphan(each, options)).map(({ labels }) => readContainerId(labels)),
  );
  for (const containerId of orphans) await removeOrphan(containerId, options);
  await endOldNetworks(options, listed);
  await sweepLogs(options, new Set(listed.map(({ labels }) => readContainerId(labels))));
}

/** Returns true for an old sandbox or unstarted container whose id the inventory lacks. */
function isOrphan({ labels, createdAt }: PodSandbox | Container, options: SweepOptions): boolean {
  const { inventory, isStarting, orphanAgeMs, nowMs } = options;
  const containerId = readContainerId(labels);
  const isYoung = nowMs - toMs(createdAt) < orphanAgeMs;
  return !isYoung && !isStarting(containerId) && inventory.find(containerId) === undefined;
}

async function removeOrphan(
  containerId: ContainerId,
  { sandboxes, log }: SweepOptions,
): Promise<void> {
  try {
    await sandboxes.removeAllOf(containerId);
    log.info('removed the remains of a container that was never started', { containerId });
  } catch (reason) {
    log.warn('remains of a container that was never started could not be removed', {
      containerId,
      ...errorFields(reason),
    });
  }
}

/**
 * Ends the networks of containers that exited before `orphanAgeMs`. The containers themselves are
 * kept for their logs, but the network has only few addresses.
 */
async function endOldNetworks(
  options: SweepOptions,
  listed: readonly (PodSandbox | Container)[],
): Promise<void> {
  const { inventory, sandboxes, log, nowMs, orphanAgeMs } = options;
  for (const each of listed) {
    if ('podSandboxId' in each || each.state !== PodSandboxState.SANDBOX_READY) continue;
    const containerId = readContainerId(each.labels);
    const { phase, finishedAtMs = nowMs } = inventory.find(containerId)?.status ?? {};
    if (phase !== 'exited' || nowMs - finishedAtMs < orphanAgeMs) continue;
    await sandboxes.endNetwork(each.id).catch((reason: unknown) => {
      log.warn('network of an exited container could not be removed', {
        containerId,
        ...errorFields(reason),
      });
    });
  }
}

/**
 * Stops containers whose state the runtime has lost. Without the stop the runtime would report
 * their state as unknown for ever; after the stop it reports them as exited.
 */
async function stopLostContainers(
  { sandboxes, log }: SweepOptions,
  listed: readonly (PodSandbox | Container)[],
): Promise<void> {
  for (const each of listed) {
    if (!('podSandboxId' in each) || each.state !== ContainerState.CONTAINER_UNKNOWN) continue;
    const containerId = readContainerId(each.labels);
    log.warn('stopping a container that its runtime has lost', { containerId });
    await sandboxes.stopLost(each.id).catch((reason: unknown) => {
      log.warn('container that its runtime has lost could not be stopped', {
        containerId,
        ...errorFields(reason),
      });
    });
  }
}

/**
 * Removes old log directories without a container.
 * @param kept - Container ids whose logs stay: a sandbox or container with the id was listed.
 */
async function sweepLogs(
  { logRoot, nowMs, orphanAgeMs, isStarting, inventory }: SweepOptions,
  kept: ReadonlySet<string>,
): Promise<void> {
  for (const name of await readdir(logRoot).catch(() => [])) {
    if (!isContainerId(name) || kept.has(name)) continue;
    if (isStarting(name) || inventory.find(name) !== undefined) continue;
    const directory = path.join(logRoot, name);
    const stats = await stat(directory).catch(() => undefined);
    if (stats !== undefined && nowMs - stats.mtimeMs >= orphanAgeMs)
      await rm(directory, { recursive: true, force: true });
  }
}
