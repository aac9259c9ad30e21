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
import { readContainerId } from './labels.js';
import type { Sandboxes } from './sandboxes.js';

const NANOS_PER_MS = 1_000_000n;

export interface SweepOptions {
  readonly inventory: Inventory;
  readonly sandboxes: Sandboxes;
  readonly isStarting: (containerId: ContainerId) => boolean;
  readonly logRoot: string;
  readonly log: Log;
  /**
   * Minimum age of removed remains in milliseconds: younger ones may belong to a start that is
   * still running.
   */
  readonly orphanAgeMs: number;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/**
 * Removes the remains of a killed agent or an interrupted call: sandboxes of this owner in any
 * state without a started container, never-started containers without a sandbox, and logs of
 * neither. Also stops containers that the runtime has lost, and ends the networks of containers
 * that have exited long ago.
 */
export async function sweep(options: SweepOptions): Promise<void> {
  const { inventory, sandboxes } = options;
  const before = [...(await sandboxes.listAll()), ...(await sandboxes.listUnfinished())];
  await stopLostContainers(options, before);
  // Refresh after the lists: a container that is missing now did not exist when they were read.
  await inventory.refreshAll();
  const orphans = new Set(
    before.filter((each) => isOrphan(each, options)).map(({ labels }) => readContainerId(labels)),
  );
  for (const containerId of orphans) await removeOrphan(containerId, options);
  await endOldNetworks(options, before);
  await sweepLogs(options, new Set(before.map(({ labels }) => readContainerId(labels))));
}

function isOrphan({ labels, createdAt }: PodSandbox | Container, options: SweepOptions): boolean {
  const { inventory, isStarting, orphanAgeMs, nowMs } = options;
  const containerId = readContainerId(labels);
  const isYoung = nowMs - Number(createdAt / NANOS_PER_MS) < orphanAgeMs;
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
 * Ends the networks of exited containers, which are kept for their logs: networks have few
 * addresses.
 */
async function endOldNetworks(
  options: SweepOptions,
  found: readonly (PodSandbox | Container)[],
): Promise<void> {
  const { inventory, sandboxes, log, nowMs, orphanAgeMs } = options;
  for (const each of found) {
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
 * Stops containers whose state the runtime has lost. Their state would stay unknown for ever; after
 * the stop they count as exited.
 */
async function stopLostContainers(
  { sandboxes, log }: SweepOptions,
  found: readonly (PodSandbox | Container)[],
): Promise<void> {
  for (const each of found) {
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
