import { ManualClock } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { CriClient } from './cri-client.js';

describe('CriClient.unansweredMs', () => {
  let server: FakeCriServer;
  let clock: ManualClock;
  let client: CriClient;
  beforeEach(async () => {
    server = new FakeCriServer();
    await server.listen();
    clock = new ManualClock();
    client = new CriClient({ socketPath: server.socketPath, clock });
  });
  afterEach(async () => {
    client.close();
    await server.dispose();
  });

  it('is 0 while the runtime responds, even with an error, and while no call is made', async () => {
    await client.version();
    await clock.advance(60_000);
    expect(client.unansweredMs).toBe(0);
    const refused = client.callQuick('Status', (calls, signal) =>
      calls.containerStatus({ containerId: 'x' }, { signal }),
    );
    await expect(refused).rejects.toMatchObject({ kind: 'notFound' });
    await clock.advance(1_000);
    expect(client.unansweredMs).toBe(0);
  });

  it('counts from the first call without a response to the next response', async () => {
    await server.disconnect();
    for (let call = 0; call < 3; call += 1) {
      await expect(client.version()).rejects.toMatchObject({ kind: 'unavailable' });
      await clock.advance(1_000);
    }
    expect(client.unansweredMs).toBe(3_000);
    await server.listen();
    await client.version();
    expect(client.unansweredMs).toBe(0);
  });

  it('counts while a call waits for a runtime that never responds', async () => {
    server.overrides.version = () => new Promise(() => undefined);
    await server.disconnect();
    await server.listen();
    const stuck = client.version();
    stuck.catch(() => undefined);
    await clock.advance(6_000);
    expect(client.unansweredMs).toBe(6_000);
  });
});

describe('CriClient.closed', () => {
  it('lets more than ten calls wait without a warning of Node.js about a memory leak', async () => {
    const server = new FakeCriServer();
    server.overrides.version = () => new Promise(() => undefined);
    await server.listen();
    const client = new CriClient({ socketPath: server.socketPath, clock: new ManualClock() });
    const calls = Array.from({ length: 20 }, () => client.version());
    // A warning reaches the process of the test runner only, so the mark of Node.js is read.
    const hasWarned = Object.getOwnPropertySymbols(client.closed).find(
      ({ description }) => description === 'events.maxEventTargetListenersWarned',
    );
    expect(Reflect.get(client.closed, hasWarned ?? '')).toBe(false);
    client.close();
    await Promise.allSettled(calls);
    await server.dispose();
  });
});

describe('CriClient.onReconnected', () => {
  it.each([
    { name: 'once after a quick call that exceeded its timeout', quick: true, calls: 1 },
    { name: 'not after work that exceeded its timeout', quick: false, calls: 0 },
  ])('is called $name', async ({ quick, calls }) => {
    const server = new FakeCriServer();
    const reached = new Promise<void>((resolve) => {
      server.overrides.listContainers = () => {
        resolve();
        return new Promise(() => undefined); // never responds
      };
    });
    await server.listen();
    const clock = new ManualClock();
    let reconnected = 0;
    const onReconnected = (): void => void (reconnected += 1);
    const client = new CriClient({ socketPath: server.socketPath, clock, onReconnected });
    try {
      const list: Parameters<CriClient['callQuick']>[1] = (runtime, signal) =>
        runtime.listContainers({}, { signal });
      const stuck = quick
        ? client.callQuick('ListContainers', list)
        : client.callSlow('ListContainers', list);
      const failed = expect(stuck).rejects.toThrow('did not answer ListContainers in');
      await reached;
      await clock.advance(240_000);
      await failed;
      await client.version();
      await client.version();
      expect(reconnected).toBe(calls);
    } finally {
      client.close();
      await server.dispose();
    }
  });
});

describe('CriClient.close', () => {
  const server = new FakeCriServer();
  let onListCall = (): void => undefined;
  beforeAll(() => {
    server.overrides.listContainers = () => {
      onListCall();
      return new Promise(() => undefined); // never responds
    };
    return server.listen();
  });
  afterAll(() => server.dispose());

  it('fails running and later calls and closes the connection', async () => {
    const client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
    await client.version();
    const reached = new Promise<void>((resolve) => (onListCall = resolve));
    const pending = client.callQuick('ListContainers', (calls, signal) =>
      calls.listContainers({}, { signal }),
    );
    await reached;
    client.close();
    await expect(pending).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'this runtime is closed',
    });
    await server.waitUntilDisconnected();
    const events = client.events(new AbortController().signal);
    await expect(events.next()).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(client.version()).rejects.toMatchObject({ kind: 'unavailable' });
  });
});
