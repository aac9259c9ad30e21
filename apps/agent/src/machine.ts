import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';
import type { NodeProbe, PressureReading } from '@cloudless/agent-core';
import { createHostReader, type HostCapacity, type HostReader } from '@cloudless/cgroup-reader';
import { systemClock } from '@cloudless/system';

/**
 * Text that is new at each start of the machine.
 * @see proc(5), /proc/sys/kernel/random/boot_id; sysctl kern.bootsessionuuid on macOS
 */
export function readBootId(): string {
  try {
    if (process.platform === 'linux')
      return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], {
      encoding: 'utf8',
    }).trim();
  } catch {
    // Where neither is to be had: when the machine started, to the nearest minute.
    return `started-${Math.round((systemClock.wallTime() / 1_000 - uptime()) / 60)}`;
  }
}

/** What this machine has, and a probe of what it uses. */
export async function openMachine(
  dataDirectory: string,
): Promise<{ readonly capacity: HostCapacity; readonly probe: NodeProbe }> {
  const reader = createHostReader({ clock: systemClock, dataDirectory });
  const capacity = await reader.readCapacity();
  return { capacity, probe: { read: () => readNode(reader, capacity) } };
}

async function readNode(
  reader: HostReader,
  capacity: HostCapacity,
): Promise<Awaited<ReturnType<NodeProbe['read']>>> {
  const usage = await reader.readUsage();
  const { memoryPressure, diskPressure } = await reader.readConditions();
  return {
    ...usage,
    memoryPressure: pressure(memoryPressure, usage.memoryBytes, capacity.memoryBytes),
    diskPressure: pressure(diskPressure, usage.storageBytes, capacity.storageBytes),
  };
}

function pressure(status: boolean, used: number, total: number): PressureReading {
  const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
  return { status, reason: status ? `${mib(used)} of ${mib(total)} MiB are in use` : '' };
}
