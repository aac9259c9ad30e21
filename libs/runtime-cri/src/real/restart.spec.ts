import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerRequest } from '@cloudless/runtime';
import { aScriptRequest } from '../testing/real-commands.js';
import { openRealCriMachine, type RealCriMachine } from '../testing/real-cri-machine.js';
import { TestContainerd, CONTAINERD_SKIP_REASON } from '../testing/test-containerd.js';

const describeReal = CONTAINERD_SKIP_REASON === undefined ? describe : describe.skip;
const never = new AbortController().signal;
const START_MS = 30_000;

/** Returns a request with a label and a port, which the runtime must keep. */
const createRequest = (script: string): ContainerRequest =>
  aScriptRequest(script, {
    labels: { a: 'b' },
    ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
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
      'keeps a running container, its log, and the exit code of a container that exited meanwhile',
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
