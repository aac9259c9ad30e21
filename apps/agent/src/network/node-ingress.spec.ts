import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { create } from '@bufbuild/protobuf';
import { NetworkRouteEntrySchema, NetworkServiceEntrySchema } from '@cloudless/api';
import { createSeededRandom, noMeter, noSampledTracer, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { NetworkChanges, NetworkProxy, NetworkView } from '@cloudless/mesh';
import { createNodeIngress, type NodeIngress } from './node-ingress.js';

const SERVICE = create(NetworkServiceEntrySchema, {
  ...{ namespace: 'default', name: 'web', spec: { ports: [{ name: 'http', port: 80 }] } },
});
const ROUTE = create(NetworkRouteEntrySchema, {
  ...{ namespace: 'default', name: 'shop' },
  spec: {
    rules: [{ pathPrefix: '/', service: 'web', port: 'http', timeout: { seconds: 60n } }],
    limits: { maxHeaderBytes: 16_384 },
  },
});

describe('the HTTP ingress of a node', () => {
  const closers: (() => unknown)[] = [];
  afterEach(() => {
    for (const close of closers.splice(0).reverse()) close();
  });

  const listen = async (server: net.Server): Promise<number> => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    closers.push(() => server.close());
    return (server.address() as AddressInfo).port;
  };

  const setUp = async () => {
    const endpoint = http.createServer((_req, res) => res.end('web'));
    const port = await listen(endpoint);
    closers.push(() => endpoint.closeAllConnections());
    const routes = new Map([['default/shop', ROUTE]]);
    const services = new Map([['default/web', SERVICE]]);
    const listeners: ((changes: NetworkChanges) => void)[] = [];
    const asked: Parameters<NetworkProxy['choose']>[0][] = [];
    const responses: unknown[] = [];
    const clock = new ManualClock();
    const failures: string[] = [];
    const ports: number[] = [];
    const ingress = createNodeIngress(
      { nodeId: 'n1', ingressHttp: { host: '127.0.0.1', port: 0 } },
      {
        proxy: {
          view: { routes, services } as unknown as NetworkView,
          onChange: (listener) => {
            listeners.push(listener);
            return () => undefined;
          },
          traffic: { addResponse: (response) => void responses.push(response) },
          choose: (request) => {
            asked.push(request);
            const connect = async () => {
              const socket = net.connect(port, '127.0.0.1');
              await once(socket, 'connect');
              return socket;
            };
            const release = () => undefined;
            return { kind: 'chosen', endpointId: 'e1', namesClient: false, connect, release };
          },
        },
        tracer: noSampledTracer,
        sockets: {
          listenTcp: async () => {
            const failure = failures.shift();
            if (failure !== undefined) throw new Error(failure);
            const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true });
            ports.push(await listen(server));
            return server;
          },
        },
        ...{ clock, random: createSeededRandom(1), log: silentLog, meter: noMeter },
      },
    ) as NodeIngress;
    closers.push(() => ingress.close());
    const get = async (): Promise<string> => {
      const request = http.get({ host: '127.0.0.1', port: ports.at(-1), agent: false });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      let text = `${response.statusCode} `;
      for await (const chunk of response) text += String(chunk);
      return text;
    };
    const change = (keys: { routes?: string[]; services?: string[] }): void => {
      const changes = { routes: new Set(keys.routes), services: new Set(keys.services) };
      for (const listener of listeners) listener(changes as unknown as NetworkChanges);
    };
    return { ingress, routes, services, asked, responses, clock, failures, get, change };
  };

  it('serves the routes of the proxy with its choice of endpoints', async () => {
    const { ingress, asked, responses, get } = await setUp();
    await ingress.start();
    expect(await get()).toBe('200 web');
    expect(asked[0]).toMatchObject({ namespace: 'default', service: 'web', port: 80 });
    expect(asked[0]).toMatchObject({ clientAddress: '127.0.0.1' });
    expect(responses).toMatchObject([{ endpoint: 'e1', status: 200 }]);
    expect(ingress.problems).toEqual([]);
  });

  it('follows changes of routes and of the services behind them', async () => {
    const { ingress, routes, services, asked, get, change } = await setUp();
    services.delete('default/web');
    await ingress.start();
    await get();
    services.set('default/web', SERVICE);
    change({ services: ['default/web'] });
    await get();
    expect(asked.map(({ port }) => port)).toEqual([0, 80]);
    routes.clear();
    change({ routes: ['default/shop'] });
    expect(await get()).toMatch(/^404 /);
  });

  it('reports an address that is taken, and listens there later', async () => {
    const { ingress, failures, clock, get } = await setUp();
    failures.push('EADDRINUSE', 'EADDRINUSE');
    await ingress.start();
    expect(ingress.problems).toEqual(['--ingress-http 127.0.0.1:0: cannot listen: EADDRINUSE']);
    while (ingress.problems.length > 0) {
      await clock.advance(1_000);
      await new Promise(setImmediate);
    }
    expect(await get()).toBe('200 web');
  });

  it('is not created without an address', () => {
    expect(createNodeIngress({ nodeId: 'n1' }, {} as never)).toBeUndefined();
  });
});
