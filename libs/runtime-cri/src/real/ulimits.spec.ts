import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { ContainerStatus, UlimitRequest } from '@cloudless/runtime';
import { execIn, startIdle, readProcessStatus } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

let machine: RealCriMachine;

const start = (...ulimits: readonly UlimitRequest[]): Promise<ContainerStatus> =>
  startIdle(machine.runtime, ulimits.length === 0 ? {} : { ulimits });

/** Reads soft and hard limit of the main process of a container from the kernel. */
function readLimit({ pid = 0 }: ContainerStatus, title: string): string | undefined {
  const line = readFileSync(`/proc/${pid}/limits`, 'utf8')
    .split('\n')
    .find((each) => each.startsWith(title));
  return line?.slice(title.length).trim().split(/\s+/).slice(0, 2).join(' ');
}

describeReal(
  `ulimits of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
    });
    afterAll(() => machine.dispose());

    it('apply to the main process and to commands, but to no other container', async () => {
      const limited = await start(
        { name: 'nofile', soft: 4321, hard: 4321 },
        { name: 'core', soft: 0, hard: 0 },
        { name: 'nproc', soft: 100, hard: 200 },
        { name: 'memlock', soft: 4096, hard: 65_536 },
        { name: 'stack', soft: 1024 * 1024, hard: -1 },
      );
      await readProcessStatus(limited);
      const titles = [
        'Max open files',
        'Max core file size',
        'Max processes',
        'Max locked memory',
        'Max stack size',
      ];
      expect(titles.map((title) => readLimit(limited, title))).toEqual([
        '4321 4321',
        '0 0',
        '100 200',
        '4096 65536',
        '1048576 unlimited',
      ]);
      const { text } = await execIn(
        machine.runtime,
        limited.containerId,
        'ulimit -n; ulimit -c; ulimit -s; ulimit -Hs',
      );
      expect(text).toBe('4321\n0\n1024\nunlimited\n');
      const free = await start();
      expect(readLimit(free, 'Max open files')).not.toBe('4321 4321');
    });

    it('apply, or the start fails with the name of the ulimit when the container runtime has set other values', async () => {
      const started = start({ name: 'nofile', soft: 1000, hard: 2000 });
      const outcome = await started.then(
        async (status) => (await readProcessStatus(status), readLimit(status, 'Max open files')),
        ({ kind, message }: { readonly kind: string; readonly message: string }) =>
          `${kind}: ${message}`,
      );
      expect([
        '1000 2000',
        expect.stringMatching(
          /^precondition: ulimits\.nofile: the container runtime set .* instead of 1000:2000/,
        ),
      ]).toContainEqual(outcome);
    });

    it('are refused with the error of the kernel when they exceed the largest limit', async () => {
      const largest = Number(readFileSync('/proc/sys/fs/nr_open', 'utf8'));
      const running = (await machine.runtime.list()).length;
      await expect(
        start({ name: 'nofile', soft: largest + 1, hard: largest + 1 }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringMatching(
          /^ulimits: the limits cannot be set: prlimit: .*not permitted; to exceed those of the container runtime/,
        ),
      });
      expect(await machine.runtime.list()).toHaveLength(running);
    });

    it.each([
      {
        ulimit: { name: 'cpu', soft: 1, hard: 1 },
        kind: 'unimplemented',
        expectedText: 'ulimits.cpu: would limit the container runtime too',
      },
      {
        ulimit: { name: 'files', soft: 1, hard: 1 },
        kind: 'invalid',
        expectedText: 'ulimits.files: is not a known limit',
      },
      {
        ulimit: { name: 'nofile', soft: 20, hard: 300 },
        kind: 'invalid',
        expectedText: 'ulimits.nofile: must be 256 or more',
      },
      {
        ulimit: { name: 'core', soft: 5, hard: 4 },
        kind: 'invalid',
        expectedText: 'ulimits.core: soft is above hard',
      },
    ])('are refused with the message: $expectedText', async ({ ulimit, kind, expectedText }) => {
      await expect(start(ulimit)).rejects.toMatchObject({
        kind,
        message: expect.stringContaining(expectedText),
      });
    });
  },
);
