import { describe, expect, it } from '@jest/globals';
import { PROCESS_DNS_CAPABILITY, type ContainerRequest } from '../container-runtime.js';
import type { CurrentMachine, RuntimeHarness } from './harness.js';
import {
  aContainerId,
  aRequest,
  waitForExit,
  runExec,
  readLines,
  createNeverAborted,
  readUntil,
  startContainer,
  decodeLine,
} from './helpers.js';

/** Tests of `start`, `list`, `stop` and `remove`. */
export function describeLifecycle(current: CurrentMachine, harness: RuntimeHarness): void {
  describe('start', () => {
    it('returns the status of the container with its labels, as list does', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }], {
        labels: { replica: 'web-1', cluster: 'c' },
      });
      const status = await machine.runtime.start(request);
      expect(status).toMatchObject({
        containerId: request.containerId,
        labels: request.labels,
        phase: 'running',
        endpoints: [],
      });
      expect(status.pid).toBeGreaterThan(0);
      expect(status).not.toHaveProperty('exitCode');
      expect(await machine.runtime.list()).toEqual([status]);
    });

    it('assigns a unique endpoint to each declared port', async () => {
      const machine = current();
      const ports = [
        { name: 'http', port: 80, protocol: 'tcp' as const },
        { name: 'dns-in', port: 53, protocol: 'udp' as const },
      ];
      const first = await machine.runtime.start(aRequest(machine, [{ step: 'hold' }], { ports }));
      const second = await machine.runtime.start(aRequest(machine, [{ step: 'hold' }], { ports }));
      expect(first.endpoints.map(({ portName }) => portName)).toEqual(['http', 'dns-in']);
      const addresses = [...first.endpoints, ...second.endpoints].map(
        ({ ip, port }, index) => `${index % 2 === 0 ? 'tcp' : 'udp'} ${ip} ${port}`,
      );
      expect(new Set(addresses).size).toBe(4);
    });

    it('passes environment variables to the process', async () => {
      const machine = current();
      const id = await startContainer(
        machine,
        [
          { step: 'writeEnv', name: 'GREETING' },
          { step: 'writeEnv', name: 'OTHER' },
        ],
        {
          env: { GREETING: 'hello  "host" $HOME' },
        },
      );
      await waitForExit(machine.runtime, id);
      expect((await readLines(machine.runtime, id)).map(decodeLine)).toEqual([
        'hello  "host" $HOME',
        'unset',
      ]);
    });

    it('starts a container with DNS settings, and reports no problem with them when it has the capability', async () => {
      const machine = current();
      const { runtime } = machine;
      const network = {
        dnsServers: ['10.96.0.10'],
        dnsSearches: ['default.svc.cloudless.internal'],
        dnsOptions: ['ndots:5'],
      };
      const status = await runtime.start(aRequest(machine, [{ step: 'hold' }], { network }));
      expect(status.phase).toBe('running');
      if (runtime.capabilities().includes(PROCESS_DNS_CAPABILITY))
        expect(status).not.toHaveProperty('problems');
      expect(await runtime.list()).toEqual([status]);
    });

    it('rejects an id in use, also the id of an exited container', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'exit', code: 0 }]);
      await machine.runtime.start(request);
      await expect(machine.runtime.start(request)).rejects.toMatchObject({ kind: 'exists' });
      await waitForExit(machine.runtime, request.containerId);
      await expect(machine.runtime.start(request)).rejects.toMatchObject({ kind: 'exists' });
    });

    it('starts only one of two concurrent requests with the same id', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }]);
      const outcomes = await Promise.allSettled([
        machine.runtime.start(request),
        machine.runtime.start(request),
      ]);
      expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      expect(await machine.runtime.list()).toHaveLength(1);
    });

    it.each([
      {
        name: 'a request without command and image',
        change: ({ image: _, ...request }: ContainerRequest): ContainerRequest => ({
          ...request,
          command: [],
        }),
      },
      {
        name: 'an executable that does not exist',
        change: (request: ContainerRequest): ContainerRequest => ({
          ...request,
          command: harness.unknownCommand,
        }),
      },
      {
        name: 'an id that is not 64 hex digits',
        change: (request: ContainerRequest): ContainerRequest => ({
          ...request,
          containerId: '../../etc' as ContainerRequest['containerId'],
        }),
      },
    ])('rejects $name, and leaves no container', async ({ change }) => {
      const machine = current();
      await expect(machine.runtime.start(change(aRequest(machine, [])))).rejects.toMatchObject({
        kind: 'invalid',
      });
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('publishes no event for a container that could not be started', async () => {
      const machine = current();
      const events = machine.runtime.events(createNeverAborted())[Symbol.asyncIterator]();
      const refused = { ...aRequest(machine, []), command: harness.unknownCommand };
      await expect(machine.runtime.start(refused)).rejects.toMatchObject({ kind: 'invalid' });
      const id = await startContainer(machine, [{ step: 'hold' }]);
      expect((await events.next()).value).toMatchObject({
        kind: 'started',
        status: { containerId: id },
      });
    });
  });

  describe('the end of a main process', () => {
    it.each([
      {
        name: 'a success (exit code 0)',
        behaviour: [{ step: 'exit', code: 0 }] as const,
        exitCode: 0,
        reason: 'completed',
      },
      {
        name: 'a failure (exit code 3)',
        behaviour: [{ step: 'exit', code: 3 }] as const,
        exitCode: 3,
        reason: 'exit code 3',
      },
      {
        name: 'a kill by SIGKILL',
        behaviour: [{ step: 'die' }] as const,
        exitCode: 137,
        reason: 'killed by SIGKILL',
      },
    ])(
      'is reported with exit code and reason when it is $name',
      async ({ behaviour, exitCode, reason }) => {
        const machine = current();
        const id = await startContainer(machine, behaviour, { labels: { kept: 'yes' } });
        const status = await waitForExit(machine.runtime, id);
        expect(status).toMatchObject({
          phase: 'exited',
          exitCode,
          reason,
          labels: { kept: 'yes' },
        });
        expect(status).not.toHaveProperty('pid');
        expect(status.finishedAtMs).toBeGreaterThanOrEqual(status.startedAtMs);
        expect(await machine.runtime.list()).toEqual([status]);
      },
    );

    it('kills child processes that the main process left behind', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'child', name: 'left' },
        { step: 'gate', name: 'go' },
        { step: 'exit', code: 0 },
      ]);
      await machine.waitForChildStart('left');
      await machine.openGate('go');
      await waitForExit(machine.runtime, id);
      await machine.waitForChildEnd('left');
    });
  });

  describe('stop', () => {
    it('sends SIGTERM, and returns the exit code of a container that exits within the grace period', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'onTerm', line: 'bye', exitCode: 7 },
        { step: 'write', stream: 'stdout', text: 'ready\n' },
        { step: 'hold' },
      ]);
      await readUntil(
        machine.runtime.logs(id, { follow: true }, createNeverAborted())[Symbol.asyncIterator](),
        'ready',
      );
      expect(await machine.runtime.stop(id, 60_000)).toMatchObject({
        phase: 'exited',
        exitCode: 7,
        reason: 'exit code 7',
      });
      expect((await readLines(machine.runtime, id)).map(decodeLine)).toEqual(['ready', 'bye']);
    });

    it('kills the container and its children after the grace period, not before', async () => {
      const machine = current();
      const id = await startIgnoringTerm(current);
      const stopping = machine.runtime.stop(id, 300);
      await machine.advanceTime(299);
      expect(await machine.runtime.list()).toMatchObject([{ phase: 'running' }]);
      await machine.advanceTime(1);
      const status = await stopping;
      expect(status).toMatchObject({ exitCode: 137, reason: 'killed by SIGKILL' });
      await machine.waitForChildEnd('inner');
    });

    it('kills the container at once when the grace period is 0', async () => {
      const machine = current();
      const id = await startIgnoringTerm(current);
      expect(await machine.runtime.stop(id, 0)).toMatchObject({ exitCode: 137 });
    });

    it('shortens the grace period of an earlier stop, and never extends it', async () => {
      const machine = current();
      const id = await startIgnoringTerm(current);
      const first = machine.runtime.stop(id, 3_600_000);
      const second = machine.runtime.stop(id, 50);
      const third = machine.runtime.stop(id, 3_600_000);
      await machine.advanceTime(50);
      const statuses = await Promise.all([first, second, third]);
      expect(statuses.map(({ exitCode }) => exitCode)).toEqual([137, 137, 137]);
    });

    it('returns the exit code of a container that exited before', async () => {
      const machine = current();
      const id = await startContainer(machine, [{ step: 'exit', code: 4 }]);
      await waitForExit(machine.runtime, id);
      expect(await machine.runtime.stop(id, 1_000)).toMatchObject({ exitCode: 4 });
    });
  });

  describe('remove', () => {
    it('removes an exited container, and rejects a running container with precondition', async () => {
      const machine = current();
      const id = await startContainer(machine, [{ step: 'hold' }]);
      await expect(machine.runtime.remove(id)).rejects.toMatchObject({ kind: 'precondition' });
      await machine.runtime.stop(id, 0);
      await machine.runtime.remove(id);
      expect(await machine.runtime.list()).toEqual([]);
      await expect(readLines(machine.runtime, id)).rejects.toMatchObject({ kind: 'notFound' });
      await machine.runtime.remove(id);
    });
  });

  describe('a call with an unknown container id', () => {
    it('fails with notFound, except remove, which does nothing', async () => {
      const { runtime } = current();
      const id = aContainerId();
      await expect(runtime.stop(id, 0)).rejects.toMatchObject({ kind: 'notFound' });
      await expect(readLines(runtime, id)).rejects.toMatchObject({ kind: 'notFound' });
      expect(await runExec(runtime, id, { command: ['x'] })).toMatchObject({
        failure: { kind: 'notFound' },
      });
      await runtime.remove(id);
    });
  });
}

/**
 * Starts a container that ignores SIGTERM, with a child that ignores SIGTERM too, and waits until
 * both run.
 */
async function startIgnoringTerm(current: CurrentMachine): ReturnType<typeof startContainer> {
  const machine = current();
  const id = await startContainer(machine, [
    { step: 'ignoreTerm' },
    { step: 'child', name: 'inner' },
    { step: 'write', stream: 'stdout', text: 'ready\n' },
    { step: 'hold' },
  ]);
  await readUntil(
    machine.runtime.logs(id, { follow: true }, createNeverAborted())[Symbol.asyncIterator](),
    'ready',
  );
  return id;
}
