import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { errorFields, type ContainerId, type Log } from '@cloudless/base';
import {
  ContainerState,
  PodSandboxState,
  type Container,
  type PodSandbox,
} from '../gen/runtime/v1/api_pb.js';
import type { Inventory } from './inventory.js';
import { containerIdOf } from './labels.js';
import type { Sandboxes } from './sandboxes.js';

const NANOS_PER_MS = 1_000_000n;

/** Needs of {@link sweep}. */
export interface SweepOptions {
  readonly inventory: Inventory;
  readonly sandboxes: Sandboxes;
  readonly isStarting: (containerId: ContainerId) => boolean;
  readonly logRoot: string;
  readonly log: Log;
  /** Younger ones are left alone: somebody may be at it. */
  readonly orphanAgeMs: number;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/**
 * Removes what an agent that was killed, or a call that failed half-way, has left: our sandboxes in
 * any state without a container that was started, such containers without a sandbox, and logs of
 * neither. Ends what the runtime has lost, and the networks of containers that have ended long ago.
 */
export async function sweep(options: SweepOptions): Promise<void> {
  const { inventory, sandboxes } = options;
  const before = [...(await sandboxes.all()), ...(await sandboxes.unfinished())];
  await endLost(options, before);
  // after the lists: a container that is missing now was not there when they were made
  await inventory.look();
  const orphans = new Set(
    before.filter((each) => isOrphan(each, options)).map(({ labels }) => containerIdOf(labels)),
  );
  for (const containerId of orphans) await removeOrphan(containerId, options);
  await endOldNetworks(options, before);
  await sweepLogs(options, new Set(before.map(({ labels }) => containerIdOf(labels))));
}

function isOrphan({ labels, createdAt }: PodSandbox | Container, options: SweepOptions): boolean {
  const { inventory, isStarting, orphanAgeMs, nowMs } = options;
  const containerId = containerIdOf(labels);
  const isYoung = nowMs - Number(createdAt / NANOS_PER_MS) < orphanAgeMs;
  return !isYoung && !isStarting(containerId) && inventory.find(containerId) === undefined;
}

async function removeOrphan(
  containerId: ContainerId,
  { sandboxes, log }: SweepOptions,
): Promise<void> {
  try {
    await sandboxes.removeAllOf(containerId);
    log.info('remains of a container that was never started removed', { containerId });
  } catch (reason) {
    log.warn('remains of a container that was never started not removed', {
      containerId,
      ...errorFields(reason),
    });
  }
}

/** What has ended is kept for its logs, without its network: networks have few addresses. */
async function endOldNetworks(
  options: SweepOptions,
  found: readonly (PodSandbox | Container)[],
): Promise<void> {
  const { inventory, sandboxes, log, nowMs, orphanAgeMs } = options;
  for (const each of found) {
    if ('podSandboxId' in each || each.state !== PodSandboxState.SANDBOX_READY) continue;
    const containerId = containerIdOf(each.labels);
    const { phase, finishedAtMs = nowMs } = inventory.find(containerId)?.status ?? {};
    if (phase !== 'exited' || nowMs - finishedAtMs < orphanAgeMs) continue;
    await sandboxes.endNetwork(each.id).catch((reason: unknown) => {
      log.warn('network of a container that has ended not ended', {
        containerId,
        ...errorFields(reason),
      });
    });
  }
}

/**
 * A container that its runtime cannot tell the state of says so for ever: its end makes it one that
 * has ended.
 */
async function endLost(
  { sandboxes, log }: SweepOptions,
  found: readonly (PodSandbox | Container)[],
): Promise<void> {
  for (const each of found) {
    if (!('podSandboxId' in each) || each.state !== ContainerState.CONTAINER_UNKNOWN) continue;
    const containerId = containerIdOf(each.labels);
    log.warn('container that its runtime has lost is ended', { containerId });
    await sandboxes.endLost(each.id).catch((reason: unknown) => {
      log.warn('container that its runtime has lost not ended', {
        containerId,
        ...errorFields(reason),
      });
    });
  }
}

async function sweepLogs(
  { logRoot, nowMs, orphanAgeMs, isStarting, inventory }: SweepOptions,
  kept: ReadonlySet<string>,
): Promise<void> {
  for (const name of await readdir(logRoot).catch(() => [])) {
    const containerId = name as ContainerId;
    if (
      !/^[0-9a-f]{64}$/.test(name) ||
      kept.has(name) ||
      isStarting(containerId) ||
      inventory.find(containerId) !== undefined
    )
      continue;
    const directory = path.join(logRoot, name);
    const found = await stat(directory).catch(() => undefined);
    if (found !== undefined && nowMs - found.mtimeMs >= orphanAgeMs)
      await rm(directory, { recursive: true, force: true });
  }
}
