import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  NetworkRouteEntrySchema,
  NetworkServiceEntrySchema,
  Port_Protocol as Protocol,
  ServiceSpec_Type,
  type RouteTlsSchema,
} from '@cloudless/api';
import { createSeededRandom, noMeter, noSampledTracer, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  ADDRESS_CHECK_MS,
  type NetworkChanges,
  type NetworkProxy,
  type NetworkView,
} from '@cloudless/mesh';
import type { CertificatePair } from '@cloudless/secrets';
import { createTestPair } from '../testing/test-certificates.js';
import type { ReceivedCertificate } from './certificate-copies.js';
import { createNodeIngress, explainIngressAddress, type NodeIngress } from './node-ingress.js';
import type { CertificateConnection } from './route-certificates.js';

const SERVICE = create(NetworkServiceEntrySchema, {
  ...{ namespace: 'default', name: 'web', spec: { ports: [{ name: 'http', port: 80 }] } },
});
const aRoute = (spec: { hosts?: string[]; tls?: MessageInitShape<typeof RouteTlsSchema> } = {}) =>
  create(NetworkRouteEntrySchema, {
    ...{ namespace: 'default', name: 'shop', certificate: { secretUid: 'u1', version: 1 } },
    spec: {
      rules: [{ pathPrefix: '/', service: 'web', port: 'http', timeout: { seconds: 60n } }],
      limits: { maxHeaderBytes: 16_384 },
      ...spec,
    },
  });
const ROUTE = aRoute();
const withCertificate = (certificateSecret: string) =>
  aRoute({ hosts: ['shop.example.com'], tls: { certificateSecret } });

describe('the HTTP ingress of a node', () => {
  let pair: CertificatePair;
  beforeAll(async () => {
    pair = await createTestPair('shop.example.com');
  });
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

  const setUp = async (
    ingressHttps?: { readonly host: string; readonly port: number },
    loadCopies = () => Promise.resolve(new Map<string, ReceivedCertificate>()),
    ingressHttp = { host: '127.0.0.1', port: 0 },
  ) => {
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
    const network = { serviceCidr: '10.96.0.0/16', addresses: ['127.0.0.1'] };
    const servers: (readonly [string, net.Server])[] = [];
    const state = { complete: true, loads: 0, isStopped: false, kept: [] as string[] };
    const ingress = createNodeIngress(
      {
        ...{ nodeId: 'n1', ...(ingressHttps === undefined ? {} : { ingressHttps }) },
        ...(ingressHttps === undefined ? { ingressHttp } : {}),
      },
      {
        proxy: {
          view: {
            ...{ routes, services },
            get settings() {
              return network;
            },
          } as unknown as NetworkView,
          onChange: (listener) => {
            listeners.push(listener);
            return () => undefined;
          },
          status: () => ({ complete: state.complete }) as ReturnType<NetworkProxy['status']>,
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
          listenTcp: async (address) => {
            const failure = failures.shift();
            if (failure !== undefined) throw Object.assign(new Error(failure), { code: failure });
            const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true });
            ports.push(await listen(server));
            servers.push([address, server]);
            return server;
          },
        },
        copies: {
          load: () => {
            state.loads += 1;
            return loadCopies();
          },
          keep: (received) => (state.kept = [...received.keys()]),
          stop: () => (state.isStopped = true),
        },
        listAddresses: () => network.addresses,
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
    const change = (keys: { routes?: string[]; services?: string[]; settings?: true }): void => {
      const { settings = false } = keys;
      const changes = { routes: new Set(keys.routes), services: new Set(keys.services), settings };
      for (const listener of listeners) listener(changes as unknown as NetworkChanges);
    };
    const getTls = async (): Promise<string> => {
      const request = https.get({
        ...{ host: '127.0.0.1', port: ports.at(-1), agent: false, ca: pair.certificate },
        ...{ servername: 'shop.example.com', headers: { host: 'shop.example.com' } },
      });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      let text = `${response.statusCode} `;
      for await (const chunk of response) text += String(chunk);
      return text;
    };
    const listening = (): string[] =>
      servers.flatMap(([address, server]) => (server.listening ? [address] : []));
    const fixtures = { ingress, routes, services, asked, responses, clock, failures, ports, state };
    return { ...fixtures, network, listening, get, getTls, change };
  };

  const setUpAt = (host: string, port = 80) =>
    setUp(undefined, () => Promise.resolve(new Map()), { host, port });

  /** A connection to a coordinator that sends the pair. */
  const connectTo = (requests: string[]) =>
    ({
      client: {
        getRouteCertificate: ({ name }: { readonly name: string }) => {
          requests.push(name);
          return Promise.resolve({
            version: { secretUid: 'u1', version: 1 },
            certificate: Buffer.from(pair.certificate),
            key: Buffer.from(pair.key),
          });
        },
      },
    }) as unknown as CertificateConnection;
  const HTTPS = { host: '127.0.0.1', port: 0 };

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

  it.each([
    { host: '0.0.0.0', expected: ['127.0.0.1', '10.77.0.11'] },
    { host: '[::]', expected: ['127.0.0.1', '10.77.0.11', '::1', 'fd00::11'] },
    { host: '[0::0]', expected: ['127.0.0.1', '10.77.0.11', '::1', 'fd00::11'] },
    { host: '10.77.0.11', expected: ['10.77.0.11'] },
  ])(
    'with the host $host listens at no virtual or link-local address',
    async ({ host, expected }) => {
      const { ingress, network, listening } = await setUpAt(host);
      network.addresses = [
        '127.0.0.1',
        '10.77.0.11',
        '10.96.0.20',
        '::1',
        'fd00::11',
        'fe80::1%eth0',
      ];
      await ingress.start();
      expect([listening(), ingress.problems]).toEqual([expected, []]);
    },
  );

  it('with the host 0.0.0.0 follows the addresses of the machine', async () => {
    const { ingress, network, clock, listening, get } = await setUpAt('0.0.0.0');
    await ingress.start();
    network.addresses = ['10.77.0.11'];
    await clock.advance(ADDRESS_CHECK_MS);
    await new Promise(setImmediate);
    expect([listening(), await get()]).toEqual([['10.77.0.11'], '200 web']);
  });

  it('with the host 0.0.0.0 leaves the addresses of a range that becomes known later', async () => {
    const { ingress, network, change, listening } = await setUpAt('0.0.0.0');
    network.serviceCidr = '';
    network.addresses = ['127.0.0.1', '10.96.0.20'];
    await ingress.start();
    expect(listening()).toEqual(['127.0.0.1', '10.96.0.20']);
    network.serviceCidr = '10.96.0.0/16';
    change({ settings: true });
    expect(listening()).toEqual(['127.0.0.1']);
  });

  it.each([
    { name: 'TCP at the same port', external: true, port: { port: 80 } },
    { name: 'TCP at another port', external: false, port: { port: 81 } },
    { name: 'UDP at the same port', external: false, port: { port: 80, protocol: Protocol.UDP } },
  ])('with the host 0.0.0.0 and an external address of a service with $name', async (given) => {
    const { ingress, network, services, change, listening } = await setUpAt('0.0.0.0');
    network.addresses = ['127.0.0.1', '203.0.113.9'];
    await ingress.start();
    const spec = {
      type: ServiceSpec_Type.LOAD_BALANCER,
      ...{ externalIps: ['203.0.113.9', '203.0.113.10'], ports: [{ name: 'http', ...given.port }] },
    };
    const service = { namespace: 'default', name: 'shop', spec };
    services.set('default/shop', create(NetworkServiceEntrySchema, service));
    change({ services: ['default/shop'] });
    await new Promise(setImmediate);
    expect(listening().includes('203.0.113.9')).toBe(!given.external);
    services.delete('default/shop');
    change({ services: ['default/shop'] });
    while (!listening().includes('203.0.113.9')) await new Promise(setImmediate);
    expect(ingress.problems).toEqual([]);
  });

  it('reports the addresses of the machine that are taken, and listens there later', async () => {
    const { ingress, network, failures, clock, listening } = await setUpAt('0.0.0.0');
    network.addresses = ['127.0.0.1', '10.77.0.11'];
    failures.push('EADDRINUSE', 'EADDRINUSE');
    await ingress.start();
    expect(ingress.problems).toEqual([
      '--ingress-http 0.0.0.0:80: cannot listen at 127.0.0.1 and 1 more: EADDRINUSE',
    ]);
    await clock.advance(1_000);
    while (ingress.problems.length > 0) await new Promise(setImmediate);
    expect(listening().sort()).toEqual(['10.77.0.11', '127.0.0.1']);
  });

  it.each([
    { host: '[::]', addresses: ['fd00::11'] },
    { host: '[fd00::11]', addresses: ['fd00::11'] },
    { host: '0.0.0.0', addresses: ['10.77.0.11'] },
  ])('with the host $host waits for an address that is not usable yet', async (given) => {
    const { ingress, network, failures, clock, listening } = await setUpAt(given.host);
    network.addresses = given.addresses;
    failures.push('EADDRNOTAVAIL', 'EADDRNOTAVAIL');
    await ingress.start();
    expect([ingress.problems, listening()]).toEqual([[], []]);
    await clock.advance(500);
    expect(ingress.problems).toEqual([]);
    await clock.advance(500);
    while (listening().length === 0) await new Promise(setImmediate);
    expect(ingress.problems).toEqual([]);
  });

  it.each([
    { host: '[fd00::11]', waitMs: 5_000 },
    { host: '10.77.0.11', waitMs: 0 },
  ])('reports that the machine does not have $host after $waitMs ms', async (given) => {
    const { ingress, failures, clock } = await setUpAt(given.host);
    failures.push(...Array.from({ length: 30 }, () => 'EADDRNOTAVAIL'));
    await ingress.start();
    if (given.waitMs > 0) {
      await clock.advance(given.waitMs - 1);
      expect(ingress.problems).toEqual([]);
      await clock.advance(1);
    }
    expect(ingress.problems).toEqual([
      `--ingress-http ${given.host}:80: cannot listen: EADDRNOTAVAIL`,
    ]);
  });

  it('reports that the addresses of the machine are not known', async () => {
    const { ingress, network } = await setUpAt('0.0.0.0');
    network.addresses = [];
    await ingress.start();
    expect(ingress.problems).toEqual([
      '--ingress-http 0.0.0.0:80: no address of this machine is known that no service has at this port',
    ]);
  });

  it('listens with the stored certificates, once they are loaded', async () => {
    const stored = { version: { secretUid: 'u1', version: 1 }, pair };
    let load: (copies: Map<string, ReceivedCertificate>) => void = () => undefined;
    const test = await setUp(HTTPS, () => new Promise((resolve) => (load = resolve)));
    test.state.complete = false;
    test.routes.set('default/shop', withCertificate('tls'));
    test.change({ routes: ['default/shop'] });
    const started = test.ingress.start();
    test.change({ routes: ['default/shop'] });
    await new Promise(setImmediate);
    expect(test.ports).toEqual([]);
    load(new Map([['default/tls', stored]]));
    await started;
    expect(await test.getTls()).toBe('200 web');
    expect(test.ingress.problems).toEqual([]);
  });

  it('listens after 5 s although the file of a certificate does not answer', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'node-ingress-'));
    const pipe = join(directory, 'tls.crt');
    await promisify(execFile)('mkfifo', [pipe]);
    const test = await setUp(HTTPS);
    const tls = { certificateFile: pipe, keyFile: '/dev/null' };
    test.routes.set('default/shop', aRoute({ tls }));
    const started = test.ingress.start();
    await test.clock.advance(4_999);
    expect(test.ports).toEqual([]);
    await test.clock.advance(1);
    await started;
    expect(test.ports).toHaveLength(1);
    await writeFile(pipe, ''); // ends the read
    await rm(directory, { recursive: true });
  });

  it('serves certificates that a coordinator sends, and forgets them with their routes', async () => {
    const test = await setUp(HTTPS);
    test.state.complete = false;
    await test.ingress.start();
    test.routes.set('default/shop', withCertificate('tls'));
    test.change({ routes: ['default/shop'] });
    await expect(test.getTls()).rejects.toThrow();
    expect(test.ingress.problems).toEqual([
      'route "default/shop": the certificate of the secret "default/tls" has not arrived: no coordinator is connected',
    ]);
    const requests: string[] = [];
    const endUse = test.ingress.useConnection(connectTo(requests));
    await new Promise(setImmediate);
    expect(await test.getTls()).toBe('200 web');
    expect([requests, test.ingress.problems]).toEqual([['shop'], []]);
    endUse();

    test.routes.clear();
    test.change({ routes: ['default/shop'] });
    expect(test.state.kept).toEqual(['default/tls']);
    // The first complete update may contain no route.
    test.state.complete = true;
    test.change({});
    expect(test.state.kept).toEqual([]);
    await expect(test.getTls()).rejects.toThrow();
  });

  it('fetches and stores no certificate while it drains', async () => {
    const test = await setUp(HTTPS);
    await test.ingress.start();
    await test.ingress.drain(1_000);
    test.routes.set('default/shop', withCertificate('tls'));
    test.change({ routes: ['default/shop'] });
    const requests: string[] = [];
    test.ingress.useConnection(connectTo(requests));
    await new Promise(setImmediate);
    expect([test.state.isStopped, requests]).toEqual([true, []]);
  });

  it('fetches no certificate and loads no copy without an address for TLS', async () => {
    const test = await setUp();
    test.routes.set('default/shop', withCertificate('tls'));
    const requests: string[] = [];
    test.ingress.useConnection(connectTo(requests));
    await test.ingress.start();
    test.change({ routes: ['default/shop'] });
    await new Promise(setImmediate);
    expect([test.state.loads, requests, test.ingress.problems]).toEqual([0, [], []]);
  });

  it('is not created without an address', () => {
    expect(createNodeIngress({ nodeId: 'n1' }, {} as never)).toBeUndefined();
  });
});

describe('explainIngressAddress', () => {
  const at = (host: string, port: number) => ({ host, port });
  it.each([
    { settings: { ingressHttp: at('10.0.0.1', 80) }, flag: '--ingress-http 10.0.0.1:80' },
    { settings: { ingressHttps: at('10.0.0.1', 80) }, flag: '--ingress-https 10.0.0.1:80' },
    { settings: { ingressHttp: at('[fd00:0::1]', 80) }, flag: '--ingress-http [fd00:0::1]:80' },
    { settings: { ingressHttp: at('0.0.0.0', 80) } },
    { settings: { ingressHttp: at('[::]', 80) } },
    { settings: { ingressHttp: at('10.0.0.1', 81) } },
    { settings: { ingressHttp: at('localhost', 80) } },
    { settings: {} },
  ])('with $settings names $flag for the external port 80', ({ settings, flag }) => {
    const found = ['10.0.0.1', 'fd00::1'].map((address) =>
      explainIngressAddress(settings, { address, port: 80, scope: 'external' }),
    );
    const expected = flag === undefined ? [] : [`${flag} serves HTTP routes there`];
    expect(found.filter((each) => each !== undefined)).toEqual(expected);
  });

  it.each([
    { settings: { ingressHttp: at('0.0.0.0', 30_080) }, flag: '--ingress-http 0.0.0.0:30080' },
    { settings: { ingressHttps: at('[::]', 30_080) }, flag: '--ingress-https [::]:30080' },
    { settings: { ingressHttps: at('::', 30_080) }, flag: '--ingress-https :::30080' },
    { settings: { ingressHttp: at('10.0.0.1', 30_080) }, flag: '--ingress-http 10.0.0.1:30080' },
    { settings: { ingressHttp: at('10.0.0.2', 30_080) } },
    { settings: { ingressHttp: at('0.0.0.0', 30_081), ingressHttps: at('[::]', 443) } },
    { settings: {} },
  ])('with $settings names $flag for the node port 30080', ({ settings, flag }) => {
    const listener = { address: '10.0.0.1', port: 30_080, scope: 'node' } as const;
    expect(explainIngressAddress(settings, listener)).toBe(
      flag === undefined ? undefined : `${flag} serves HTTP routes there`,
    );
  });

  it.each([
    { host: '0.0.0.0', address: 'fd00::1', isReserved: false },
    { host: '[::]', address: 'fd00::1', isReserved: true },
    { host: '[0::0]', address: 'fd00::1', isReserved: true },
    { host: '[::]', address: 'fe80::1%eth0', isReserved: false },
    { host: 'localhost', address: '127.0.0.1', isReserved: false },
  ])('has the node port at $address with $host: $isReserved', ({ host, address, isReserved }) => {
    const listener = { address, port: 30_080, scope: 'node' } as const;
    const found = explainIngressAddress({ ingressHttp: at(host, 30_080) }, listener);
    expect(found !== undefined).toBe(isReserved);
  });
});
