import * as http2 from 'node:http2';
import { once } from 'node:events';
import { createClient } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from '@connectrpc/connect-node';
import { CoordinatorService } from '@cloudless/api';
import type { RpcServer, RpcServerOptions } from '../options.js';
import { aServer } from '../testing/fixture.js';
import { connectionKey, type ClientConnection } from './connection.js';

const servers: RpcServer[] = [];
async function open(options?: Partial<RpcServerOptions>) {
  const server = await aServer(options);
  servers.push(server);
  return server;
}
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

describe('startRpcServer', () => {
  it.each([
    {
      name: 'Connect over HTTP/1.1',
      transport: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: '1.1' }),
    },
    {
      name: 'Connect over HTTP/2',
      transport: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: '2' }),
    },
    { name: 'gRPC', transport: (baseUrl: string) => createGrpcTransport({ baseUrl }) },
    {
      name: 'gRPC-Web over HTTP/1.1',
      transport: (baseUrl: string) => createGrpcWebTransport({ baseUrl, httpVersion: '1.1' }),
    },
    {
      name: 'gRPC-Web over HTTP/2',
      transport: (baseUrl: string) => createGrpcWebTransport({ baseUrl, httpVersion: '2' }),
    },
  ])('serves $name on its port', async ({ transport }) => {
    const { url } = await open();
    const client = createClient(CoordinatorService, transport(url));
    expect(await client.getWorkload({ namespace: 'default', name: 'web' })).toMatchObject({
      namespace: 'default',
      name: 'web',
    });
  });

  it('gives handlers a connection that reports PINGs of the client and its own end', async () => {
    const connections: ClientConnection[] = [];
    const { address, url } = await open({
      registerRoutes: (router) =>
        router.service(CoordinatorService, {
          getWorkload: (_request, { values }) => {
            const connection = values.get(connectionKey);
            if (connection !== undefined) connections.push(connection);
            return {};
          },
        }),
    });
    expect(address.port).toBeGreaterThan(0);
    const session = http2.connect(url);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/cloudless.api.CoordinatorService/GetWorkload',
      'content-type': 'application/json',
    });
    stream.end('{}');
    stream.resume();
    await once(stream, 'end');
    const [connection] = connections;
    if (connection === undefined) throw new Error('the handler got no connection');
    let pings = 0;
    const unsubscribe = connection.onPing(() => (pings += 1));
    await new Promise<void>((resolve, reject) =>
      session.ping((reason) => (reason === null ? resolve() : reject(reason))),
    );
    await new Promise<void>((resolve, reject) =>
      session.ping((reason) => (reason === null ? resolve() : reject(reason))),
    );
    expect(pings).toBe(2);
    unsubscribe();
    await new Promise<void>((resolve, reject) =>
      session.ping((reason) => (reason === null ? resolve() : reject(reason))),
    );
    expect(pings).toBe(2);
    const closed = new Promise<void>((resolve) => connection.onClose(resolve));
    session.destroy();
    await closed;
    // also when the subscription comes after the end
    await new Promise<void>((resolve) => connection.onClose(resolve));
  });
});
