import {
  CloudlessError,
  createSeededRandom,
  randomHex,
  silentLog,
  toContainerId,
  type ContainerId,
} from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  HEALTHY,
  type ContainerEvent,
  type ContainerRequest,
  type ContainerRuntime,
} from '../container-runtime.js';
import { listAvailable } from '../list-available.js';
import { createFakeRuntime, type FakeRuntime } from '../testing/index.js';
import { combineRuntimes, type CombinedRuntime } from './combined-runtime.js';

const random = createSeededRandom(5);
const createOutage = (): CloudlessError =>
  new CloudlessError('unavailable', 'no container runtime answers');

/** A runtime that can become unavailable and available again, with its containers. */
class InterruptibleRuntime {
  isUnavailable = false;
  private current: FakeRuntime;

  constructor(readonly fake: FakeRuntime) {
    this.current = fake;
  }

  readonly runtime: ContainerRuntime = new Proxy({} as ContainerRuntime, {
    get: (_, name: keyof ContainerRuntime) => {
      const value = this.current[name];
      if (typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        if (this.isUnavailable && name !== 'capabilities' && name !== 'close') throw createOutage();
        return (value as (...args: unknown[]) => unknown).apply(this.current, args);
      };
    },
  });

  async becomeUnavailable(): Promise<void> {
    this.isUnavailable = true;
    this.current = await this.current.reopen(); // readers of events get the failure
  }
}

let clock: ManualClock;
let processes: InterruptibleRuntime;
let containers: InterruptibleRuntime;
let runtime: CombinedRuntime;
let stop: AbortController;
let events: ContainerEvent[];

beforeEach(() => {
  clock = new ManualClock();
  processes = new InterruptibleRuntime(
    createFakeRuntime({ clock, capabilities: ['runtime.process', 'exec.tty'] }),
  );
  containers = new InterruptibleRuntime(
    createFakeRuntime({ clock, capabilities: ['runtime.cri', 'exec.tty', 'limits.memory'] }),
  );
  runtime = combineRuntimes({
    processes: processes.runtime,
    containers: containers.runtime,
    clock,
    random: createSeededRandom(1),
    log: silentLog,
  });
  stop = new AbortController();
  events = [];
});
afterEach(async () => {
  stop.abort();
  await runtime.close();
  await settle();
  expect(clock.pendingTimers).toBe(0);
});

const aRequest = (overrides: Partial<ContainerRequest> = {}): ContainerRequest => ({
  containerId: toContainerId(randomHex(random, 32)),
  labels: {},
  command: ['server'],
  args: [],
  env: {},
  ports: [],
  limits: {},
  ...overrides,
});
const start = async (image?: string): Promise<ContainerId> =>
  (await runtime.start(aRequest(image === undefined ? {} : { image }))).containerId;
/** Records all further events in `events`. */
const listen = async (): Promise<void> => {
  const stream = runtime.events(stop.signal);
  await runtime.list();
  void (async () => {
    for await (const event of stream) events.push(event);
  })().catch(() => undefined);
  await settle();
  events = [];
};
const seen = (): readonly unknown[] =>
  events.map(({ kind, status }) => [kind, status.containerId, status.reason]);

describe('combineRuntimes', () => {
  it('sends requests with an image to the container runtime and all others to the process runtime', async () => {
    const image = await start('nginx');
    const process = await start();
    expect((await containers.fake.list()).map(({ containerId }) => containerId)).toEqual([image]);
    expect((await processes.fake.list()).map(({ containerId }) => containerId)).toEqual([process]);
    expect(
      (await runtime.list()).map(({ containerId, runtime: name }) => [name, containerId]),
    ).toEqual([
      ['process', process],
      ['cri', image],
    ]);
  });

  it('has the capabilities of both runtimes, and a name and version of both', async () => {
    expect(runtime.capabilities()).toEqual([
      'runtime.process',
      'exec.tty',
      'runtime.cri',
      'limits.memory',
    ]);
    expect([runtime.name, await runtime.version()]).toEqual([
      'process+cri',
      'process fake, cri fake',
    ]);
  });

  it('reports the health of both runtimes', () => {
    expect(runtime.health?.()).toEqual(HEALTHY);
    const withoutProcess = [toContainerId('a'.repeat(64))];
    containers.fake.health = () => ({ ...HEALTHY, containersSilentMs: 2_000, withoutProcess });
    processes.fake.health = () => ({ ...HEALTHY, processesSilentMs: 7_000, supervisorPid: 17 });
    expect(runtime.health?.()).toEqual({
      ...{ containersSilentMs: 2_000, withoutProcess },
      ...{ processesSilentMs: 7_000, supervisorPid: 17 },
    });
  });

  it('stops a container that another instance has started', async () => {
    const image = await containers.fake.start(aRequest({ image: 'nginx' }));
    expect(await runtime.stop(image.containerId, 0)).toMatchObject({ phase: 'exited' });
  });

  it('lists the last known containers of a part that does not answer for 2 s, and applies its late list', async () => {
    const image = await start('nginx');
    const process = await start();
    await listen();
    const list = containers.fake.list.bind(containers.fake);
    let respond = (): void => undefined;
    containers.fake.list = async () => {
      await new Promise<void>((resolve) => (respond = resolve));
      return list();
    };
    await processes.fake.stop(process, 0);
    const listed = runtime.list();
    await clock.advance(2_000);
    expect((await listed).map(({ containerId, phase }) => [containerId, phase])).toEqual([
      [process, 'exited'],
      [image, 'running'],
    ]);
    containers.fake.machine.removeSilently(image);
    respond();
    await settle();
    expect(seen()).toContainEqual(['exited', image, 'lost: the runtime does not know it any more']);
  });

  it.each([
    ['stop', (id: ContainerId) => runtime.stop(id, 0)],
    [
      'exec',
      (id: ContainerId) =>
        runtime
          .exec(id, { command: ['true'] }, stop.signal)
          [Symbol.asyncIterator]()
          .next(),
    ],
    [
      'logs',
      (id: ContainerId) =>
        runtime.logs(id, { follow: false }, stop.signal)[Symbol.asyncIterator]().next(),
    ],
  ] as const)(
    'rejects an unknown id in %s with notFound only while both parts are available',
    async (_, call) => {
      const unknown = aRequest().containerId;
      await expect(call(unknown)).rejects.toMatchObject({ kind: 'notFound' });
      await containers.becomeUnavailable();
      await expect(call(unknown)).rejects.toMatchObject({ kind: 'unavailable' });
    },
  );

  it('rejects a start whose id belongs to a container of the other part', async () => {
    const request = aRequest();
    await runtime.start(request);
    await expect(runtime.start({ ...request, image: 'nginx' })).rejects.toMatchObject({
      kind: 'exists',
    });
  });

  it('renews the leases of each part although the other part hangs or fails', async () => {
    const lease = { leaseMs: 5_000, graceMs: 0 };
    const leases = new Map([
      [await start(), lease],
      [await start('nginx'), lease],
    ]);
    const renewed: string[] = [];
    containers.fake.renew = async () => void renewed.push('container');
    processes.fake.renew = () => new Promise(() => undefined);
    void runtime.renew(leases);
    await settle();
    processes.fake.renew = () => Promise.reject(createOutage());
    await expect(runtime.renew(leases)).rejects.toMatchObject({ kind: 'unavailable' });
    expect(renewed).toEqual(['container', 'container']);
  });

  it('fails to list until each part has been listed once', async () => {
    containers.isUnavailable = true;
    await start();
    await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
    containers.isUnavailable = false;
    expect(await runtime.list()).toHaveLength(1);
  });

  it('publishes no event about existing containers, and all later events', async () => {
    const { containerId } = await containers.fake.start(aRequest({ image: 'nginx' }));
    const stream = runtime.events(stop.signal)[Symbol.asyncIterator]();
    await runtime.list();
    await settle();
    containers.fake.machine.exit(containerId, 3);
    expect(await stream.next()).toMatchObject({
      value: { kind: 'exited', status: { containerId, exitCode: 3, runtime: 'cri' } },
    });
  });

  it('publishes an exit that happened before the first list', async () => {
    const { containerId } = await containers.fake.start(aRequest({ image: 'nginx' }));
    const list = containers.fake.list.bind(containers.fake);
    containers.fake.list = async () => {
      await settle();
      return list(); // lists the container as exited, so publishes no event
    };
    const stream = runtime.events(stop.signal)[Symbol.asyncIterator]();
    containers.fake.machine.exit(containerId, 3);
    expect(await stream.next()).toMatchObject({
      value: { kind: 'exited', status: { containerId } },
    });
  });

  it('leaves both runtimes open when it is detached', async () => {
    await listen();
    const image = await start('nginx');
    runtime.detach();
    expect(await containers.fake.stop(image, 0)).toMatchObject({ phase: 'exited' });
    await expect(runtime.events(stop.signal)[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      kind: 'unavailable',
    });
  });
});

describe('listAvailable', () => {
  it('returns the processes, and is incomplete until the container runtime was listed once', async () => {
    const { containerId } = await processes.fake.start(aRequest());
    containers.isUnavailable = true;
    expect(await listAvailable(runtime)).toMatchObject({
      containers: [{ containerId, runtime: 'process' }],
      missing: ['container'],
    });
    containers.isUnavailable = false;
    expect(await listAvailable(runtime)).toMatchObject({ missing: [] });
    containers.isUnavailable = true;
    expect(await listAvailable(runtime)).toMatchObject({ missing: [] });
  });

  it.each([
    { name: 'container runtime', part: () => containers, missing: ['container'] },
    { name: 'process runtime', part: () => processes, missing: ['process'] },
  ])('waits 2 s for a $name that hangs', async ({ part, missing }) => {
    part().fake.list = () => new Promise(() => undefined);
    const listed = listAvailable(runtime);
    await clock.advance(1_999);
    expect(await Promise.race([listed, settle().then(() => 'pending')])).toBe('pending');
    await clock.advance(1);
    expect(await listed).toMatchObject({ missing });
  });

  it('reports processes as missing until their runtime has answered', async () => {
    const { containerId } = await containers.fake.start(aRequest({ image: 'nginx' }));
    processes.isUnavailable = true;
    expect(await listAvailable(runtime)).toMatchObject({
      containers: [{ containerId, runtime: 'cri' }],
      missing: ['process'],
    });
    processes.isUnavailable = false;
    const process = await processes.fake.start(aRequest());
    expect(await listAvailable(runtime)).toMatchObject({
      containers: [{ containerId: process.containerId }, { containerId }],
      missing: [],
    });
  });

  it('returns a complete list for a runtime without parts', async () => {
    const { containerId } = await processes.fake.start(aRequest());
    expect(await listAvailable(processes.fake)).toMatchObject({
      containers: [{ containerId }],
      missing: [],
    });
  });
});

describe('combineRuntimes, while the container runtime is unavailable,', () => {
  let image: ContainerId;
  let other: ContainerId;
  let process: ContainerId;
  beforeEach(async () => {
    [image, other, process] = [await start('nginx'), await start('redis'), await start()];
    await listen();
    await containers.becomeUnavailable();
    await settle();
  });

  it('lists its last known containers, rejects calls about them, and serves processes', async () => {
    expect((await runtime.list()).map(({ containerId, phase }) => [containerId, phase])).toEqual([
      [process, 'running'],
      [image, 'running'],
      [other, 'running'],
    ]);
    await expect(runtime.stop(image, 0)).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(runtime.start(aRequest({ image: 'nginx' }))).rejects.toMatchObject({
      kind: 'unavailable',
    });
    processes.fake.machine.exit(process, 3);
    await settle();
    expect(seen()).toEqual([['exited', process, 'exit code 3']]);
    expect(await start()).toBeDefined();
  });

  it('publishes the exits and removals of the outage when the runtime answers again', async () => {
    const { machine } = containers.fake;
    machine.exit(image, 7);
    const vanished = await (async () => {
      containers.isUnavailable = false;
      await clock.advance(60_000);
      const id = await start('postgres');
      await settle();
      await containers.becomeUnavailable();
      await settle();
      return id;
    })();
    expect(seen()).toEqual([
      ['exited', image, 'exit code 7'],
      ['started', vanished, undefined],
    ]);
    events = [];
    machine.removeSilently(vanished);
    containers.isUnavailable = false;
    await clock.advance(60_000);
    expect(seen()).toEqual([['exited', vanished, 'lost: the runtime does not know it any more']]);
    expect((await runtime.list()).map(({ containerId }) => containerId)).toEqual([
      process,
      image,
      other,
    ]);
    events = [];
    machine.exit(other, 1);
    await settle();
    expect(seen()).toEqual([['exited', other, 'exit code 1']]);
  });

  it('publishes each change once when a list after the outage reports it first', async () => {
    containers.fake.machine.exit(image, 7);
    containers.isUnavailable = false;
    await runtime.list();
    await settle();
    expect(seen()).toEqual([['exited', image, 'exit code 7']]);
    await clock.advance(60_000);
    expect(seen()).toHaveLength(1);
  });
});
