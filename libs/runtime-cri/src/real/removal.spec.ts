import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerRequest } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { toOwnerSelector } from '../containers/labels.js';
import { openCriRuntime } from '../index.js';
import { aScriptRequest } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SOCKET,
  waitUntil,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';
import { readTraces, type Traces } from '../testing/traces.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

describeReal(
  `traces of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
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
    const getLogDirectory = ({ containerId }: ContainerRequest): string =>
      path.join(machine.options.logDirectory, containerId);
    /** Waits until all traces are gone: an ended shim is visible until containerd reaps it. */
    const waitUntilGone = (before: Traces): Promise<void> =>
      waitUntil(() => before.remaining().length === 0);

    it('are removed with the containers: processes, shims, mounts, networks, cgroups and logs', async () => {
      const { runtime } = machine;
      const [kept, ended] = [aScriptRequest('sleep 1000'), aScriptRequest('exit 3')];
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
      await waitUntilGone(before);
      expect([
        (await traces()).found,
        existsSync(getLogDirectory(kept)),
        existsSync(getLogDirectory(ended)),
      ]).toEqual([[], false, false]);
    });

    it('are removed by shutdown for running and exited containers', async () => {
      const requests = [
        aScriptRequest('sleep 1000'),
        aScriptRequest('exit 3'),
        aScriptRequest('trap "" TERM; sleep 1000'),
      ];
      const leaving = await openCriRuntime(machine.options);
      await Promise.all(requests.map((request) => leaving.start(request)));
      const before = await traces();
      expect(before.remaining().length).toBeGreaterThan(10);
      await leaving.shutdown();
      await waitUntilGone(before);
      expect([(await traces()).found, existsSync(machine.options.logDirectory)]).toEqual([
        [],
        false,
      ]);
    });

    it('are removed by the sweep for a stopped sandbox whose container was removed', async () => {
      const { runtime, options } = machine;
      const [stopped, running] = [aScriptRequest('sleep 1000'), aScriptRequest('sleep 1000')];
      await Promise.all([runtime.start(stopped), runtime.start(running)]);
      const labelSelector = { 'io.cloudless.container-id': stopped.containerId };
      const allTraces = await traces();
      const { items } = await client.callQuick('List', (calls) =>
        calls.listPodSandbox({ filter: { labelSelector } }),
      );
      const { containers } = await client.callQuick('List', (calls) =>
        calls.listContainers({ filter: { labelSelector } }),
      );
      const stoppedTraces = await readTraces(client, labelSelector);
      const podSandboxId = items[0]?.id ?? '';
      await client.callSlow('StopPodSandbox', (calls) => calls.stopPodSandbox({ podSandboxId }));
      for (const { id: containerId } of containers)
        await client.callSlow('Remove', (calls) => calls.removeContainer({ containerId }));
      const again = await openCriRuntime({ ...options, orphanAgeMs: 0 });
      await again.close();
      await waitUntilGone(stoppedTraces);
      expect((await readTraces(client, labelSelector)).found).toEqual([]);
      expect(allTraces.remaining()).toHaveLength(
        allTraces.found.length - stoppedTraces.found.length,
      );
    });
  },
);
