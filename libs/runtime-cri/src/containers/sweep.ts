import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { errorFields, type ContainerId, type Log } from '@cloudless/base';
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

/** Removes what an agent that was killed left half made: our sandboxes without a container, and logs without a sandbox. */
export async function sweep(options: SweepOptions): Promise<void> {
  const { inventory, sandboxes, isStarting, log, orphanAgeMs, nowMs } = options;
  const before = await sandboxes.all();
  await inventory.look(); // after the sandboxes: a container that is missing now was not there when they were listed
  for (const { labels, createdAt } of before) {
    const containerId = containerIdOf(labels);
    const isYoung = nowMs - Number(createdAt / NANOS_PER_MS) < orphanAgeMs;
    if (isYoung || isStarting(containerId) || inventory.find(containerId) !== undefined) continue;
    try {
      await sandboxes.removeAllOf(containerId);
      log.info('sandbox without a container removed', { containerId });
    } catch (reason) {
      log.warn('sandbox without a container not removed', { containerId, ...errorFields(reason) });
    }
  }
  await sweepLogs(options, new Set(before.map(({ labels }) => containerIdOf(labels))));
}

async function sweepLogs(
  { logRoot, nowMs, orphanAgeMs, isStarting, inventory }: SweepOptions,
  kept: ReadonlySet<string>,
): Promise<void> {
  for (const name of await readdir(logRoot).catch(() => [])) {
    const containerId = name as ContainerId;
    if (!/^[0-9a-f]{64}$/.test(name) || kept.has(name) || isStarting(containerId) || inventory.find(containerId) !== undefined)
      continue;
    const directory = path.join(logRoot, name);
    const found = await stat(directory).catch(() => undefined);
    if (found !== undefined && nowMs - found.mtimeMs >= orphanAgeMs) await rm(directory, { recursive: true, force: true });
  }
}
