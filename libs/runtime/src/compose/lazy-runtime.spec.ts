import { CloudlessError, createSeededRandom, randomHex, toContainerId } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { HEALTHY, type ContainerRequest } from '../container-runtime.js';
import { createFakeRuntime, type FakeRuntime } from '../testing/index.js';
import { LazyRuntime } from './lazy-runtime.js';

const aRequest = (): ContainerRequest => ({
  containerId: toContainerId(randomHex(createSeededRandom(3), 32)),
  labels: {},
  image: 'nginx',
  command: [],
  args: [],
  env: {},
  ports: [],
  limits: {},
});
const never = new AbortController().signal;

describe('LazyRuntime', () => {
  let clock: ManualClock;
  let fake: FakeRuntime;
  let failure: CloudlessError | undefined;
  let owners: string[];
  let runtime: LazyRuntime;
  beforeEach(() => {
    clock = new ManualClock();
    fake = createFakeRuntime({ clock, capabilities: ['runtime.cri', 'exec.tty'] });
    failure = undefined;
    owners = [];
    runtime = new LazyRuntime({
      name: 'cri',
      version: 'containerd 1.6.20',
      capabilities: ['runtime.cri'],
      clock,
      open: async (owner) => {
        owners.push(owner);
        if (failure !== undefined) throw failure;
        return fake;
      },
    });
  });

  it('has no containers until its owner is set', async () => {
    expect([runtime.name, await runtime.version(), runtime.capabilities()]).toEqual([
      'cri',
      'containerd 1.6.20',
      ['runtime.cri'],
    ]);
    expect(await runtime.list()).toEqual([]);
    await expect(runtime.start(aRequest())).rejects.toThrow('belongs to no cluster');
    await expect(runtime.stop(aRequest().containerId, 0)).rejects.toMatchObject({
      kind: 'notFound',
    });
    await runtime.remove(aRequest().containerId);
    expect(owners).toEqual([]);
  });

  it('rejects a start with the missing reason until the owner is set', async () => {
    let missingReason: string | undefined = 'no container runtime was found';
    runtime = new LazyRuntime({
      name: 'cri',
      version: 'a container runtime',
      capabilities: [],
      clock,
      missingReason: () => missingReason,
      open: async () => fake,
    });
    const outcome = { kind: 'unimplemented', message: 'image: no container runtime was found' };
    await expect(runtime.start(aRequest())).rejects.toMatchObject(outcome);
    await expect(runtime.prepare(aRequest(), () => undefined, never)).rejects.toMatchObject(
      outcome,
    );
    expect(await runtime.list()).toEqual([]);
    missingReason = undefined;
    await runtime.setOwner('cluster-1');
    expect(await runtime.start(aRequest())).toMatchObject({ phase: 'running' });
  });

  it('reports silence since the first setOwner until the runtime is open', async () => {
    expect(runtime.health()).toEqual(HEALTHY);
    failure = new CloudlessError('unavailable', 'no runtime answers');
    await expect(runtime.setOwner('home')).rejects.toThrow('no runtime answers');
    await clock.advance(7_000);
    expect(runtime.health().containersSilentMs).toBe(7_000);
    failure = undefined;
    await runtime.list();
    expect(runtime.health().containersSilentMs).toBe(0);
  });

  it('reports the silence that its options name at least, until the runtime is open', async () => {
    runtime = new LazyRuntime({
      name: 'cri',
      version: 'a container runtime',
      capabilities: [],
      leastSilentMs: 5_000,
      clock,
      open: async () => {
        if (failure !== undefined) throw failure;
        return fake;
      },
    });
    const silentMs = (): number => runtime.health().containersSilentMs;
    expect(silentMs()).toBe(5_000);
    failure = new CloudlessError('unavailable', 'no runtime answers');
    await expect(runtime.setOwner('home')).rejects.toThrow('no runtime answers');
    await clock.advance(4_000);
    expect(silentMs()).toBe(5_000);
    await clock.advance(3_000);
    expect(silentMs()).toBe(7_000);
    failure = undefined;
    await runtime.list();
    expect(silentMs()).toBe(0);
  });

  it('delegates to the opened runtime, and reports its version and capabilities', async () => {
    await runtime.setOwner('home');
    await runtime.setOwner('home');
    expect([owners, runtime.capabilities(), await runtime.version()]).toEqual([
      ['home'],
      ['runtime.cri', 'exec.tty'],
      'fake',
    ]);
    await runtime.start(aRequest());
    expect(await fake.list()).toHaveLength(1);
  });

  it('publishes existing containers and later events to readers that subscribed before setOwner', async () => {
    const { containerId } = await fake.start(aRequest());
    const events = runtime.events(never)[Symbol.asyncIterator]();
    const firstEvent = events.next();
    await runtime.setOwner('home');
    expect(await firstEvent).toMatchObject({ value: { kind: 'started', status: { containerId } } });
    fake.machine.exit(containerId, 0);
    expect(await events.next()).toMatchObject({
      value: { kind: 'exited', status: { containerId } },
    });
  });

  it('fails with the error of open, and tries to open the runtime again at each call', async () => {
    failure = new CloudlessError('unavailable', 'no runtime answers');
    await expect(runtime.setOwner('home')).rejects.toBe(failure);
    await expect(runtime.list()).rejects.toBe(failure);
    await expect(runtime.events(never)[Symbol.asyncIterator]().next()).rejects.toBe(failure);
    expect(runtime.capabilities()).toEqual(['runtime.cri']);
    failure = undefined;
    expect(await runtime.list()).toEqual([]);
    expect(owners).toEqual(['home', 'home', 'home', 'home']);
  });

  it('ends the waiting readers when their signal is aborted or the runtime is closed', async () => {
    const controller = new AbortController();
    const abortedRead = runtime.events(controller.signal)[Symbol.asyncIterator]().next();
    const closedRead = runtime.events(never)[Symbol.asyncIterator]().next();
    const outcome = expect(closedRead).rejects.toMatchObject({ kind: 'unavailable' });
    await settle();
    controller.abort();
    expect(await abortedRead).toMatchObject({ done: true });
    await runtime.close();
    await outcome;
    await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
  });
});
