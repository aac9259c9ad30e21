import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { ContainerEvent, ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { findCommands } from '../exec/exec-processes.js';
import { readCommandLine, readPidNamespace, readProcesses } from '../system/host-processes.js';
import { execIn, aScriptRequest, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  waitUntil,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;
/** Script that leaves an orphan, which ends at once, and writes its process id to /tmp/orphan. */
const ORPHAN = 'sh -c "sleep 0.05 & echo \\$! > /tmp/orphan"; exec sleep 3600';
const STATE =
  'sed -n "s/^State:[[:space:]]*\\(.\\).*/\\1/p" /proc/$(cat /tmp/orphan)/status 2> /dev/null';
const LONG_MS = 600_000;

let machine: RealCriMachine;

const start = (
  script: string,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerStatus> => machine.runtime.start(aScriptRequest(script, overrides));

/** Waits until a container ends by itself. */
async function endOf(script: string): Promise<ContainerStatus> {
  const stop = new AbortController();
  const events = machine.runtime.events(stop.signal);
  const { containerId } = await start(script);
  for await (const { kind, status } of events) {
    if (kind === 'exited' && status.containerId === containerId) return status;
  }
  throw new Error('the events ended');
}

describeReal(
  `the first process of a container${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
    });
    afterAll(() => machine.dispose());

    it('reaps orphans by default', async () => {
      const { containerId } = await start(ORPHAN);
      const script =
        'until [ -s /tmp/orphan ]; do sleep 0.02; done; while [ -d /proc/$(cat /tmp/orphan) ]; do sleep 0.02; done; echo reaped';
      expect(await execIn(machine.runtime, containerId, script)).toEqual({
        exitCode: 0,
        text: 'reaped\n',
      });
    });

    it('is the main process of the container without init, which must reap orphans itself', async () => {
      const { containerId } = await start(ORPHAN, { init: false });
      const script = `until [ "$(${STATE})" = Z ]; do sleep 0.02; done; tr '\\0' ' ' < /proc/1/cmdline`;
      expect((await execIn(machine.runtime, containerId, script)).text).toBe('sleep 3600 ');
    });

    it('does not handle SIGTERM for the main process, which ends without a handler', async () => {
      const { containerId } = await startIdle(machine.runtime);
      expect(await machine.runtime.stop(containerId, LONG_MS)).toMatchObject({
        exitCode: 143,
        reason: 'killed by SIGTERM',
      });
    });

    it.each([
      { how: 'an exit code', script: 'exit 7', exitCode: 7 },
      { how: 'the signal that a process sends itself', script: 'kill -9 $$', exitCode: 137 },
      { how: 'the code of a handler', script: 'trap "exit 5" TERM; kill $$', exitCode: 5 },
    ])('keeps $how', async ({ script, exitCode }) => {
      expect(await endOf(script)).toMatchObject({ exitCode });
    });

    it('lets no process outlive the main process', async () => {
      const script = 'sleep 3601 & (setsid sleep 3601 &); mkfifo /go; read x < /go; exit 3';
      const stop = new AbortController();
      const events = machine.runtime.events(stop.signal)[Symbol.asyncIterator]();
      const { containerId, pid = 0 } = await start(script);
      const namespace = readPidNamespace(pid);
      const left = (): number =>
        readProcesses().filter(
          (each) =>
            readPidNamespace(each.pid) === namespace && readCommandLine(each.pid).includes('3601'),
        ).length;
      await waitUntil(() => left() === 2);
      writeFileSync(`/proc/${pid}/root/go`, 'go\n');
      for (;;) {
        const { kind, status } = ((await events.next()) as IteratorYieldResult<ContainerEvent>)
          .value;
        if (kind === 'exited' && status.containerId === containerId) break;
      }
      await waitUntil(() => left() === 0);
      stop.abort();
    });

    it('is not treated as a command in the container', async () => {
      const { pid = 0 } = await startIdle(machine.runtime);
      expect(findCommands(pid)).toEqual([]);
    });

    it('is a capability that can be requested', async () => {
      expect(machine.runtime.capabilities()).toContain('container.init');
      const { containerId } = await startIdle(machine.runtime, { init: true });
      expect(
        (await execIn(machine.runtime, containerId, 'tr "\\0" " " < /proc/1/cmdline')).text,
      ).not.toContain('sleep 3600');
    });
  },
);
