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

  it('is 0 while the runtime answers, even with an error, and while no call is made', async () => {
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

  it('counts from the first call without an answer to the next answer', async () => {
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

  it('counts while a call waits for a stuck runtime', async () => {
    server.overrides.version = () => new Promise(() => undefined);
    await server.disconnect();
    await server.listen();
    const stuck = client.version();
    stuck.catch(() => undefined);
    await clock.advance(6_000);
    expect(client.unansweredMs).toBe(6_000);
  });
});

describe('CriClient', () => {
  const server = new FakeCriServer();
  let asked = (): void => undefined;
  beforeAll(() => {
    server.overrides.listContainers = () => {
      asked();
      return new Promise(() => undefined); // never answered
    };
    return server.listen();
  });
  afterAll(() => server.dispose());

  it('ends its calls and its connection on close, so that the process can exit', async () => {
    const client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
    await client.version();
    const reached = new Promise<void>((resolve) => (asked = resolve));
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
