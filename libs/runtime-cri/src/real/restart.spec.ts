import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { randomHex, toContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { systemRandom } from '@cloudless/app-kit';
import { TestContainerd, CONTAINERD_SKIP_REASON } from '../testing/test-containerd.js';
import {
  openRealCriMachine,
  TEST_IMAGE,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = CONTAINERD_SKIP_REASON === undefined ? describe : describe.skip;
const never = new AbortController().signal;
const START_MS = 30_000;

const createRequest = (script: string): ContainerRequest => ({
  ...{
    containerId: toContainerId(randomHex(systemRandom, 32)),
    labels: { a: 'b' },
    image: TEST_IMAGE,
    args: [],
    env: {},
    limits: {},
  },
  ...{ command: ['/bin/sh', '-c', script], ports: [{ name: 'http', port: 80, protocol: 'tcp' }] },
});

describeReal(
  `a containerd that is killed and started again${CONTAINERD_SKIP_REASON === undefined ? '' : ` (${CONTAINERD_SKIP_REASON})`}`,
  () => {
    let containerd: TestContainerd;
    let machine: RealCriMachine;

    beforeEach(async () => {
      containerd = new TestContainerd();
      machine = await containerd.retryUntilAnswered(() =>
        openRealCriMachine({ socketPath: containerd.socketPath }),
      );
    }, START_MS);

    afterEach(async () => {
      await machine.dispose();
      await containerd.dispose();
    }, START_MS);

    it(
      'keeps running containers, logs, and exit codes from its absence',
      async () => {
        const { runtime } = machine;
        const counting = createRequest(
          'i=1; while :; do echo "line $i"; i=$((i+1)); sleep 0.05; done',
        );
        const ending = createRequest('until [ -e /tmp/go ]; do sleep 0.02; done; exit 42');
        const [kept, { pid }] = [await runtime.start(counting), await runtime.start(ending)];
        const logs = runtime
          .logs(counting.containerId, { follow: true }, never)
          [Symbol.asyncIterator]();
        const seen: string[] = [];
        const take = async (count: number): Promise<void> => {
          for (let line = 0; line < count; line += 1) {
            const { value } = (await logs.next()) as {
              readonly value: { readonly text: Uint8Array };
            };
            seen.push(new TextDecoder().decode(value.text));
          }
        };
        await take(3);
        await containerd.kill();
        writeFileSync(`/proc/${pid}/root/tmp/go`, '');
        await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
        containerd.restart();
        const listed = await containerd.retryUntilAnswered(() => runtime.list());
        expect(listed).toContainEqual(kept);
        expect(listed).toHaveLength(2);
        expect(
          await containerd.retryUntilAnswered(() => runtime.stop(ending.containerId, 10_000)),
        ).toMatchObject({ exitCode: 42 });
        await take(60);
        expect(seen).toEqual(seen.map((_, index) => `line ${index + 1}`));
      },
      START_MS,
    );
  },
);
