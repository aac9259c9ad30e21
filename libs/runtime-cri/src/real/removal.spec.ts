import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { randomHex, toContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { toOwnerSelector } from '../containers/labels.js';
import { openCriRuntime } from '../index.js';
import {
  openRealCriMachine,
  SOCKET,
  TEST_IMAGE,
  waitUntil,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';
import { readTraces, type Traces } from '../testing/traces.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

function createRequest(script: string): ContainerRequest {
  const containerId = toContainerId(randomHex(systemRandom, 32));
  const rest = {
    labels: {},
    command: ['/bin/sh', '-c', script],
    args: [],
    env: {},
    ports: [],
    limits: {},
  };
  return { containerId, image: TEST_IMAGE, ...rest };
}

describeReal(
  `what is left of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    let machine: RealCriMachine;
    let client: CriClient;
    beforeEach(async () => {
      machine = await openRealCriMachine();
      client = new CriClient({ socketPath: SOCKET ?? '', clock: systemClock });
    });
    afterEach(async () => {
      client.close();
      await machine.dispose();
    });

    const traces = (): Promise<Traces> =>
      readTraces(client, toOwnerSelector(machine.options.owner));
    const toKinds = ({ found }: Traces): readonly string[] =>
      [...new Set(found.map((each) => each.replace(/ [^ ]+$/, '')))].sort();
    const logOf = ({ containerId }: ContainerRequest): string =>
      path.join(machine.options.logDirectory, containerId);
    /** An ended shim remains visible until containerd has noticed. */
    const gone = (before: Traces): Promise<void> =>
      waitUntil(() => before.remaining().length === 0);

    it('no process, shim, mount, network namespace, link, cgroup or log remains after removal', async () => {
      const { runtime } = machine;
      const [kept, ended] = [createRequest('sleep 1000'), createRequest('exit 3')];
      await Promise.all([runtime.start(kept), runtime.start(ended)]);
      const before = await traces();
      expect(toKinds(before)).toEqual([
        'cgroup',
        'link',
        'mount',
        'network namespace',
        'process',
        'shim',
      ]);
      for (const request of [kept, ended]) {
        await runtime.stop(request.containerId, 0);
        await runtime.remove(request.containerId);
      }
      await gone(before);
      expect([(await traces()).found, existsSync(logOf(kept)), existsSync(logOf(ended))]).toEqual([
        [],
        false,
        false,
      ]);
    });

    it('nothing remains after a shutdown, whatever the state', async () => {
      const requests = [
        createRequest('sleep 1000'),
        createRequest('exit 3'),
        createRequest('trap "" TERM; sleep 1000'),
      ];
      const leaving = await openCriRuntime(machine.options);
      await Promise.all(requests.map((request) => leaving.start(request)));
      const before = await traces();
      expect(before.remaining().length).toBeGreaterThan(10);
      await leaving.shutdown();
      await gone(before);
      expect([(await traces()).found, existsSync(machine.options.logDirectory)]).toEqual([
        [],
        false,
      ]);
    });

    it('nothing remains after a sweep of a never-started container and of a stopped sandbox', async () => {
      const { runtime, options } = machine;
      const [stopped, running] = [createRequest('sleep 1000'), createRequest('sleep 1000')];
      await Promise.all([runtime.start(stopped), runtime.start(running)]);
      const labelSelector = { 'io.cloudless.container-id': stopped.containerId };
      const whole = await traces();
      const { items } = await client.callQuick('List', (calls) =>
        calls.listPodSandbox({ filter: { labelSelector } }),
      );
      const { containers } = await client.callQuick('List', (calls) =>
        calls.listContainers({ filter: { labelSelector } }),
      );
      const part = await readTraces(client, labelSelector);
      const podSandboxId = items[0]?.id ?? '';
      await client.callSlow('StopPodSandbox', (calls) => calls.stopPodSandbox({ podSandboxId }));
      for (const { id: containerId } of containers)
        await client.callSlow('Remove', (calls) => calls.removeContainer({ containerId }));
      const again = await openCriRuntime({ ...options, orphanAgeMs: 0 });
      await again.close();
      await gone(part);
      expect((await readTraces(client, labelSelector)).found).toEqual([]);
      expect(whole.remaining()).toHaveLength(whole.found.length - part.found.length);
    });
  },
);
