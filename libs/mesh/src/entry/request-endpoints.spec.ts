import { once } from 'node:events';
import { aService, anEndpoint, TestCluster, type TestProxy } from '../testing/test-cluster.js';
import type { EndpointChoice } from '../ports.js';

let cluster: TestCluster;
let a: TestProxy;
beforeEach(async () => {
  cluster = await TestCluster.create();
  a = await cluster.addProxy('a');
});
afterEach(() => cluster.close());

const choose = (change: { service?: string; port?: number; exclude?: string[] } = {}) =>
  a.proxy.choose({
    ...{ namespace: 'default', service: change.service ?? 'web', port: change.port ?? 80 },
    ...{ clientAddress: '192.0.2.7', clientPort: 4_711, virtual: '10.0.0.5:443' },
    exclude: new Set(change.exclude),
  });

const chosen = (choice: EndpointChoice) => {
  if (choice.kind === 'refused') throw new Error(choice.reason);
  return choice;
};

describe('the endpoint of a request', () => {
  it('is connected, and the connection ends with the endpoint', async () => {
    const port = await cluster.serve((socket) => socket.pipe(socket));
    const endpoint = anEndpoint('web', 'r1', 'a', port);
    await cluster.update({ services: [aService('web', '10.96.0.20')], endpoints: [endpoint] });
    const choice = chosen(choose());
    const stream = await choice.connect();
    stream.write('hello');
    expect(String((await once(stream, 'data'))[0])).toBe('hello');
    expect(a.proxy.status().openConnections).toBe(1);
    const closed = new Promise((resolve) => stream.once('close', resolve));
    await cluster.update({ removedEndpoints: [choice.endpointId] });
    await closed;
    expect(a.proxy.status().openConnections).toBe(0);
    choice.release();
    choice.release();
  });

  it('is another one when the first accepts no connection', async () => {
    const port = await cluster.serve((socket) => socket.pipe(socket));
    await cluster.update({
      services: [aService('web', '10.96.0.20')],
      endpoints: [anEndpoint('web', 'r1', 'a', 1), anEndpoint('web', 'r2', 'a', port)],
    });
    const exclude: string[] = [];
    const results: string[] = [];
    for (let i = 0; i < 2; i++) {
      const choice = chosen(choose({ exclude }));
      exclude.push(choice.endpointId);
      await choice.connect().then(
        (stream) => results.push(stream.destroy() && 'connected'),
        () => results.push('refused'),
      );
    }
    expect(results.sort()).toEqual(['connected', 'refused']);
    expect(choose({ exclude }).kind).toBe('refused');
  });

  it.each([
    [{ service: 'none' }, 'does not exist'],
    [{ port: 81 }, 'does not have the TCP port'],
    [{}, 'has no endpoint'],
  ])('of %o is refused: %s', async (change, reason) => {
    await cluster.update({ services: [aService('web', '10.96.0.20')] });
    expect(choose(change)).toEqual({
      kind: 'refused',
      reason: expect.stringContaining(reason) as string,
    });
  });
});
