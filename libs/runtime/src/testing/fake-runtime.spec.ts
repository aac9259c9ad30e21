import { CloudlessError, createSeededRandom, randomHex, toContainerId } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  describeContainerRuntime,
  type RuntimeHarness,
  type RuntimeMachine,
} from '../conformance/index.js';
import {
  EGRESS_CAPABILITY,
  SIGNAL_CAPABILITY,
  type ContainerRequest,
} from '../container-runtime.js';
import { toBehaviourCommand, createFakeRuntime } from './index.js';

/** Every capability with tests in the suite. */
const CAPABILITIES = [
  ...['runtime.process', 'limits.cpu', 'limits.memory', 'disconnect.exclusive', 'exec.tty'],
  ...[SIGNAL_CAPABILITY, EGRESS_CAPABILITY],
];

const harness: RuntimeHarness = {
  unknownCommand: ['no-such-executable'],
  unexecutableCommand: ['unexecutable'],
  rotatingLines: 15_000,
  open: async (): Promise<RuntimeMachine> => {
    const clock = new ManualClock();
    let runtime = createFakeRuntime({ clock, capabilities: CAPABILITIES });
    const { machine } = runtime;
    machine.removeExecutable('no-such-executable');
    machine.removeExecutable('unexecutable', 'notExecutable');
    return {
      get runtime() {
        return runtime;
      },
      command: toBehaviourCommand,
      openGate: async (name) => machine.openGate(name),
      waitForChildStart: async (name) => {
        await settle();
        expect(machine.hasChild(name)).toBe(true);
      },
      waitForChildEnd: async (name) => {
        await settle();
        expect(machine.hasChild(name)).toBe(false);
      },
      reopen: async () => (runtime = await runtime.reopen()),
      advanceTime: (durationMs) => clock.advance(durationMs),
      dispose: async () => {
        await runtime.close();
        await settle();
        for (const status of machine.statuses())
          if (status.phase === 'running') machine.exit(status.containerId, 0);
        expect(clock.pendingTimers).toBe(0);
      },
    };
  },
};

describeContainerRuntime('the fake runtime', harness);

describe('FakeMachine', () => {
  const random = createSeededRandom(7);
  const request = (overrides: Partial<ContainerRequest> = {}): ContainerRequest => ({
    containerId: toContainerId(randomHex(random, 32)),
    labels: {},
    command: ['server'],
    args: [],
    env: {},
    ports: [],
    limits: {},
    ...overrides,
  });

  it('adds output to the log of a container and makes the container exit', async () => {
    const runtime = createFakeRuntime({ clock: new ManualClock() });
    const { containerId } = await runtime.start(request());
    runtime.machine.write(containerId, 'stderr', 'no memory\n');
    runtime.machine.exit(containerId, 137, 'out of memory');
    expect(await runtime.list()).toMatchObject([
      { phase: 'exited', exitCode: 137, reason: 'out of memory' },
    ]);
    const lines = runtime
      .logs(containerId, { follow: true }, new AbortController().signal)
      [Symbol.asyncIterator]();
    expect(new TextDecoder().decode((await lines.next()).value?.text)).toBe('no memory');
    expect(await lines.next()).toMatchObject({ done: true });
  });

  it('shows the egress rules in force, and keeps them when the next limitEgress fails', async () => {
    const runtime = createFakeRuntime({
      clock: new ManualClock(),
      capabilities: [EGRESS_CAPABILITY],
    });
    const { containerId } = await runtime.start(request({ network: { egress: [] } }));
    const rules = [{ network: '192.0.2.0/24' }];
    const failure = new CloudlessError('precondition', 'the kernel refuses the rules');
    runtime.machine.failNextEgress(failure);
    await expect(runtime.limitEgress(containerId, rules)).rejects.toBe(failure);
    expect(runtime.machine.findEgress(containerId)).toEqual([]);
    await runtime.limitEgress(containerId, rules);
    expect(runtime.machine.findEgress(containerId)).toEqual(rules);
    const free = await runtime.start(request());
    expect(runtime.machine.findEgress(free.containerId)).toBeUndefined();
  });

  it('fails the next start once after failNextStart, without a container', async () => {
    const runtime = createFakeRuntime({ clock: new ManualClock() });
    runtime.machine.failNextStart(new CloudlessError('exhausted', 'no room'));
    await expect(runtime.start(request())).rejects.toMatchObject({ kind: 'exhausted' });
    expect(runtime.machine.startCount).toBe(0);
    await runtime.start(request());
    expect(runtime.machine.startCount).toBe(1);
  });

  it('ends running containers at a reboot, and removes containers silently', async () => {
    const runtime = createFakeRuntime({ clock: new ManualClock() });
    await runtime.start(request());
    runtime.machine.reboot();
    const newRuntime = await runtime.reopen();
    expect(await newRuntime.list()).toMatchObject([
      { phase: 'exited', exitCode: -1, reason: 'lost with the machine' },
    ]);
    runtime.machine.removeSilently();
    expect(await newRuntime.list()).toEqual([]);
  });

  it('returns the results of the exec handler as output and exit code', async () => {
    const runtime = createFakeRuntime({ clock: new ManualClock() });
    const { containerId } = await runtime.start(request());
    runtime.machine.setExecHandler((_id, { command }) =>
      command[0] === 'probe' ? { exitCode: 1, stderr: 'not yet' } : undefined,
    );
    const seen = [];
    for await (const event of runtime.exec(
      containerId,
      { command: ['probe'] },
      new AbortController().signal,
    ))
      seen.push(event);
    expect(seen).toMatchObject([
      { kind: 'output', stream: 'stderr' },
      { kind: 'exited', exitCode: 1 },
    ]);
  });

  it.each([
    {
      name: 'an image',
      fields: { image: 'nginx' },
      capabilities: ['runtime.process'],
      outcome: 'rejects',
    },
    {
      name: 'an image',
      fields: { image: 'nginx', command: [] },
      capabilities: ['runtime.cri'],
      outcome: 'accepts',
    },
    {
      name: 'a memory limit',
      fields: { limits: { memoryBytes: 1 } },
      capabilities: ['runtime.process'],
      outcome: 'rejects',
    },
    {
      name: 'a memory limit',
      fields: { limits: { memoryBytes: 1 } },
      capabilities: ['limits.memory'],
      outcome: 'accepts',
    },
    {
      name: 'a CPU limit',
      fields: { limits: { cpuMillis: 1 } },
      capabilities: ['limits.memory'],
      outcome: 'rejects',
    },
  ])(
    '$outcome a request with $name when the runtime has $capabilities',
    async ({ fields, capabilities, outcome }) => {
      const runtime = createFakeRuntime({ clock: new ManualClock(), capabilities });
      const starting = runtime.start(request(fields));
      if (outcome === 'rejects')
        await expect(starting).rejects.toMatchObject({ kind: 'unimplemented' });
      else
        expect(runtime.machine.requireRequest((await starting).containerId)).toMatchObject(fields);
    },
  );
});
