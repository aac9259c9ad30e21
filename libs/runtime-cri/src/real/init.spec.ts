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
/** Shell command that prints the state of the orphan, such as Z for a zombie. */
const PRINT_ORPHAN_STATE =
  'sed -n "s/^State:[[:space:]]*\\(.\\).*/\\1/p" /proc/$(cat /tmp/orphan)/status 2> /dev/null';
/** Grace period that is longer than the test: only SIGTERM can end the container. */
const LONG_MS = 600_000;

let machine: RealCriMachine;

const start = (
  script: string,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerStatus> => machine.runtime.start(aScriptRequest(script, overrides));

/** Runs a script in a container of its own and waits for the exit of the container. */
async function runToExit(script: string): Promise<ContainerStatus> {
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

    it('is the main process of the container when init is false, so that orphans become zombies', async () => {
      const { containerId } = await start(ORPHAN, { init: false });
      const script = `until [ "$(${PRINT_ORPHAN_STATE})" = Z ]; do sleep 0.02; done; tr '\\0' ' ' < /proc/1/cmdline`;
      expect((await execIn(machine.runtime, containerId, script)).text).toBe('sleep 3600 ');
    });

    it('lets SIGTERM end a main process that has no handler', async () => {
      const { containerId } = await startIdle(machine.runtime);
      expect(await machine.runtime.stop(containerId, LONG_MS)).toMatchObject({
        exitCode: 143,
        reason: 'killed by SIGTERM',
      });
    });

    it.each([
      { name: 'an exit code', script: 'exit 7', exitCode: 7 },
      { name: 'the signal that the process sends to itself', script: 'kill -9 $$', exitCode: 137 },
      { name: 'the code of a signal handler', script: 'trap "exit 5" TERM; kill $$', exitCode: 5 },
    ])('does not change how the main process ends: $name', async ({ script, exitCode }) => {
      expect(await runToExit(script)).toMatchObject({ exitCode });
    });

    it('ends all other processes when the main process ends', async () => {
      const script = 'sleep 3601 & (setsid sleep 3601 &); mkfifo /go; read x < /go; exit 3';
      const stop = new AbortController();
      const events = machine.runtime.events(stop.signal)[Symbol.asyncIterator]();
      const { containerId, pid = 0 } = await start(script);
      const namespace = readPidNamespace(pid);
      const countChildren = (): number =>
        readProcesses().filter(
          (each) =>
            readPidNamespace(each.pid) === namespace && readCommandLine(each.pid).includes('3601'),
        ).length;
      await waitUntil(() => countChildren() === 2);
      writeFileSync(`/proc/${pid}/root/go`, 'go\n');
      for (;;) {
        const { kind, status } = ((await events.next()) as IteratorYieldResult<ContainerEvent>)
          .value;
        if (kind === 'exited' && status.containerId === containerId) break;
      }
      await waitUntil(() => countChildren() === 0);
      stop.abort();
    });

    it('is not returned by findCommands', async () => {
      const { pid = 0 } = await startIdle(machine.runtime);
      expect(findCommands(pid)).toEqual([]);
    });

    it('is not the program of the image when the request sets init, and init is a capability', async () => {
      expect(machine.runtime.capabilities()).toContain('container.init');
      const { containerId } = await startIdle(machine.runtime, { init: true });
      expect(
        (await execIn(machine.runtime, containerId, 'tr "\\0" " " < /proc/1/cmdline')).text,
      ).not.toContain('sleep 3600');
    });
  },
);
