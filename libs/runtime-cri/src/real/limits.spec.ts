import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { sleep } from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { isUnified } from '../system/pids-limit.js';
import { execIn, aScriptRequest, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;
const POLL_MS = 20;
/** Script that forks without end. */
const BOMB = 'bomb() { bomb & bomb & sleep 3600; }; bomb 2> /dev/null & exec sleep 3600';

let machine: RealCriMachine;

/** Reads a file of the cgroup of a process. */
function readCgroupFile(pid: number, controller: string, file: string): string {
  const groups = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(':'));
  if (isUnified())
    return readFileSync(path.join('/sys/fs/cgroup', groups[0]?.[2] ?? '', file), 'utf8').trim();
  const [, , group = ''] =
    groups.find(([, names = '']) => names.split(',').includes(controller)) ?? [];
  return readFileSync(path.join('/sys/fs/cgroup', controller, group, file), 'utf8').trim();
}

const readPids = (
  { pid = 0 }: ContainerStatus,
  file: 'pids.max' | 'pids.current' | 'pids.events',
): string => readCgroupFile(pid, 'pids', file);
const start = (
  script: string,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerStatus> => machine.runtime.start(aScriptRequest(script, overrides));

describeReal(
  `limits of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeEach(async () => {
      machine = await openRealCriMachine({ maxPids: 300 });
    });
    afterEach(() => machine.dispose());

    it('set the requested limit of processes, or maxPids without a request', async () => {
      const { runtime } = machine;
      expect(readPids(await startIdle(runtime), 'pids.max')).toBe('300');
      expect(readPids(await startIdle(runtime, { limits: { pids: 25 } }), 'pids.max')).toBe('25');
    });

    it('stop a fork bomb at its limit of processes without an effect on other containers', async () => {
      const neighbour = await startIdle(machine.runtime, { limits: { pids: 50 } });
      const bomb = await start(BOMB, { limits: { pids: 40 } });
      while (readPids(bomb, 'pids.events') === 'max 0') await sleep(systemClock, POLL_MS);
      const many = await execIn(
        machine.runtime,
        neighbour.containerId,
        'for i in 1 2 3 4 5 6 7 8; do sleep 0.01 & done; wait; echo fine',
      );
      expect(many).toEqual({ exitCode: 0, text: 'fine\n' });
      expect(Number(readPids(bomb, 'pids.current'))).toBeLessThanOrEqual(40);
      expect(await machine.runtime.stop(bomb.containerId, 0)).toMatchObject({ exitCode: 137 });
    });

    it('may allow fewer processes than the start of a container needs', async () => {
      const script = 'mkfifo /go 2> /dev/null; read x < /go; sleep 5 & sleep 5 & sleep 5 & wait';
      const events = machine.runtime.events(new AbortController().signal)[Symbol.asyncIterator]();
      const started = await start(script, { limits: { pids: 3 } });
      expect(readPids(started, 'pids.max')).toBe('3');
      writeFileSync(`/proc/${started.pid}/root/go`, 'go\n');
      let status = started;
      while (status.phase === 'running')
        ({ status } = (await events.next()).value as { readonly status: ContainerStatus });
      // The shell of busybox exits with 2 when it cannot fork.
      expect(status).toMatchObject({ exitCode: 2, reason: 'exit code 2' });
    });

    it('set CPU shares from the reservation and the CPU quota from the limit', async () => {
      const { pid = 0 } = await startIdle(machine.runtime, {
        requests: { cpuMillis: 250 },
        limits: { cpuMillis: 1500 },
      });
      if (isUnified()) {
        expect(readCgroupFile(pid, 'cpu', 'cpu.max')).toBe('150000 100000');
        expect(readCgroupFile(pid, 'cpu', 'cpu.weight')).toBe('10'); // 256 shares, as runc converts
      } else {
        expect(readCgroupFile(pid, 'cpu', 'cpu.shares')).toBe('256');
        expect(readCgroupFile(pid, 'cpu', 'cpu.cfs_quota_us')).toBe('150000');
      }
      const least = await startIdle(machine.runtime, { requests: { cpuMillis: 0 } });
      expect(readCgroupFile(least.pid ?? 0, 'cpu', isUnified() ? 'cpu.weight' : 'cpu.shares')).toBe(
        isUnified() ? '1' : '2',
      );
    });
  },
);
