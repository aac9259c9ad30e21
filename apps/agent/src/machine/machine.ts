import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';
import type { NodeReader, ConditionReading } from '@cloudless/agent-core';
import {
  createHostReader,
  type HostCapacity,
  type HostReader,
  type HostUsage,
} from '@cloudless/cgroup-reader';
import { systemClock } from '@cloudless/app-kit';

/** Returns the boot id of the machine, a text that changes at each boot. */
export function readBootId(): string {
  try {
    if (process.platform === 'linux')
      return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], {
      encoding: 'utf8',
    }).trim();
  } catch {
    // Fallback: the time of the boot, in whole minutes since the epoch.
    return `started-${Math.round((systemClock.wallTime() / 1_000 - uptime()) / 60)}`;
  }
}

/** Reads the capacity of this machine, and creates a reader of its usage and conditions. */
export async function openMachine(
  dataDirectory: string,
): Promise<{ readonly capacity: HostCapacity; readonly nodeReader: NodeReader }> {
  const reader = createHostReader({ clock: systemClock, dataDirectory });
  const capacity = await reader.readCapacity();
  return { capacity, nodeReader: { read: () => readNodeReading(reader, capacity) } };
}

/** Reads usage and conditions of the machine. */
export async function readNodeReading(
  reader: HostReader,
  capacity: HostCapacity,
): Promise<Awaited<ReturnType<NodeReader['read']>>> {
  const { inodes, ...usage } = await reader.readUsage();
  const { memoryPressure, diskPressure, diskFull, inodesFull } = await reader.readConditions();
  const spaceReading = toConditionReading(diskFull, usage.storageBytes, capacity.storageBytes);
  return {
    ...usage,
    memoryPressure: toConditionReading(memoryPressure, usage.memoryBytes, capacity.memoryBytes),
    diskPressure: toConditionReading(diskPressure, usage.storageBytes, capacity.storageBytes),
    diskFull: inodesFull ? addInodes(spaceReading, inodes) : spaceReading,
  };
}

/** Returns the condition of a disk without free inodes, whose space may be used up too. */
function addInodes(
  { reason }: ConditionReading,
  { used, total }: HostUsage['inodes'],
): ConditionReading {
  const inodes = `${used} of ${total} inodes are in use`;
  return { status: true, reason: reason === '' ? inodes : `${reason}; ${inodes}` };
}

/** @param used - Bytes in use of `total`, for the reason. */
function toConditionReading(status: boolean, used: number, total: number): ConditionReading {
  const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
  return { status, reason: status ? `${mib(used)} of ${mib(total)} MiB are in use` : '' };
}
