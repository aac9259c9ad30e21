import { FakeCriServer } from '../testing/fake-cri-server.js';
import { realClock } from '../testing/system.js';
import { CriClient } from './cri-client.js';

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

  it('ends its calls and leaves no connection when it is closed: one would keep its process alive', async () => {
    const client = new CriClient({ socketPath: server.socketPath, clock: realClock });
    await client.version();
    const reached = new Promise<void>((resolve) => (asked = resolve));
    const pending = client.quick('ListContainers', (calls, signal) => calls.listContainers({}, { signal }));
    await reached;
    client.close();
    await expect(pending).rejects.toMatchObject({ kind: 'unavailable', message: 'this runtime is closed' });
    await server.left();
    const events = client.events(new AbortController().signal);
    await expect(events.next()).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(client.version()).rejects.toMatchObject({ kind: 'unavailable' });
  });
});
