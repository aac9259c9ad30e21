import { once } from 'node:events';
import * as http2 from 'node:http2';
import { Code, createClient, type Interceptor, type Transport } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from '@connectrpc/connect-node';
import { CoordinatorService } from '@cloudless/api';
import { Health, ServerReflectionV1 } from '@cloudless/api/grpc';
import { CloudlessError } from '@cloudless/base';
import type { Principal } from '@cloudless/identity';
import type { RpcServerOptions } from '../options.js';
import { serversOfTest } from '../testing/fixture.js';
import { http1, http2Request, JSON_TYPE } from '../testing/raw-http.js';
import {
  callerKey,
  toLimitedClient,
  type AuthorizeCall,
  type Caller,
} from './call-authorization.js';
import type { ClientConnection } from './connection.js';

const open = serversOfTest(afterEach);
const SERVICE = '/cloudless.api.CoordinatorService';
const AUTHORIZED = { authorization: 'Bearer alice' };
const REFUSAL = 'this call needs credentials; log in with cloudlessctl login';

/** A user with the name in the Authorization header. Without the header the call is refused. */
const authorizeByHeader: AuthorizeCall = ({ header, connection }) => {
  const [, userName] = /^Bearer (\w+)$/.exec(header.get('authorization') ?? '') ?? [];
  if (userName === undefined) throw new CloudlessError('unauthenticated', REFUSAL);
  return aCaller({ kind: 'user', name: `user/${userName}`, userName, grants: [] }, connection?.id);
};

function aCaller(principal: Principal, connectionId = 'c1', check = (): void => undefined): Caller {
  return { principal, connectionId, check };
}

/** A handler of each kind, which counts its calls. */
function aCountedApi() {
  const api = { calls: 0, callers: [] as (Caller | undefined)[] };
  const registerRoutes: RpcServerOptions['registerRoutes'] = (router) =>
    router.service(CoordinatorService, {
      getWorkload: (_request, { values }) => {
        api.calls += 1;
        api.callers.push(values.get(callerKey));
        return {};
      },
      watchWorkloads: async function* () {
        api.calls += 1;
        yield {};
      },
    });
  return Object.assign(api, { registerRoutes });
}

const transports = (baseUrl: string, interceptors: Interceptor[] = []) =>
  ({
    'Connect over HTTP/1.1': createConnectTransport({ baseUrl, httpVersion: '1.1', interceptors }),
    'Connect over HTTP/2': createConnectTransport({ baseUrl, httpVersion: '2', interceptors }),
    gRPC: createGrpcTransport({ baseUrl, interceptors }),
    'gRPC-Web': createGrpcWebTransport({ baseUrl, httpVersion: '1.1', interceptors }),
  }) satisfies Record<string, Transport>;

const PROTOCOLS = ['Connect over HTTP/1.1', 'Connect over HTTP/2', 'gRPC', 'gRPC-Web'] as const;

describe('RpcServerOptions.authorize', () => {
  it.each(PROTOCOLS)('refuses calls and streams in the protocol of %s', async (protocol) => {
    const api = aCountedApi();
    const { url } = await open({ ...api, authorize: authorizeByHeader });
    const client = createClient(CoordinatorService, transports(url)[protocol]);
    const refused = { code: Code.Unauthenticated, rawMessage: REFUSAL };
    await expect(client.getWorkload({})).rejects.toMatchObject(refused);
    const stream = client.watchWorkloads({})[Symbol.asyncIterator]();
    await expect(stream.next()).rejects.toMatchObject(refused);
    expect(api.calls).toBe(0);
  });

  it.each(PROTOCOLS)('gives the handler its caller over %s', async (protocol) => {
    const api = aCountedApi();
    const { url } = await open({ ...api, authorize: authorizeByHeader });
    const addHeader: Interceptor = (next) => (request) => {
      request.header.set('authorization', AUTHORIZED.authorization);
      return next(request);
    };
    await createClient(CoordinatorService, transports(url, [addHeader])[protocol]).getWorkload({});
    expect(api.callers).toMatchObject([{ principal: { name: 'user/alice' } }]);
  });

  it('refuses a call before its body arrives', async () => {
    const { url } = await open({ authorize: authorizeByHeader });
    const session = http2.connect(url);
    const stream = session.request({
      ':method': 'POST',
      ':path': `${SERVICE}/CreateWorkload`,
      ...JSON_TYPE,
    });
    stream.write('{');
    const [head] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
    expect(head[':status']).toBe(401);
    session.destroy();
  });

  it.each([
    ['a GET of a unary RPC', 'GET', `${SERVICE}/GetWorkload?message=%7B%7D&encoding=json`, {}],
    ['an NDJSON stream', 'POST', `${SERVICE}/WatchWorkloads`, { accept: 'application/x-ndjson' }],
    ['server-sent events', 'GET', `${SERVICE}/WatchWorkloads`, { accept: 'text/event-stream' }],
    ['a wrong HTTP method', 'GET', `${SERVICE}/CreateWorkload`, {}],
    ['a wrong content type', 'POST', `${SERVICE}/GetWorkload`, { 'content-type': 'text/plain' }],
    ['plain JSON for a stream', 'POST', `${SERVICE}/WatchWorkloads`, {}],
    ['an unknown RPC', 'POST', `${SERVICE}/Nothing`, {}],
    ['an unknown path', 'GET', '/admin', {}],
  ])('answers %s with the refusal', async (_name, method, path, extra) => {
    const api = aCountedApi();
    const { url } = await open({ ...api, authorize: authorizeByHeader });
    const headers: Record<string, string> = { ...JSON_TYPE, ...extra };
    for (const request of [http1, http2Request]) {
      const { status, body } = await request(url, {
        method,
        path,
        headers,
        body: method === 'GET' ? '' : '{}',
      });
      const isStream = 'accept' in extra;
      expect([isStream ? 200 : 401, 401]).toContain(status);
      expect(body.toString()).toContain(REFUSAL);
      expect(body.toString()).not.toContain('ListWorkloads');
    }
    expect(api.calls).toBe(0);
  });

  it('shows the RPCs at / only to clients that may call', async () => {
    const { url } = await open({ authorize: authorizeByHeader });
    const anonymous = await http1(url, { method: 'GET', path: '/', headers: {} });
    expect(anonymous).toMatchObject({ status: 200 });
    expect(anonymous.body.toString()).toContain(REFUSAL);
    expect(anonymous.body.toString()).not.toContain('/cloudless.api');
    const known = await http1(url, { method: 'GET', path: '/', headers: AUTHORIZED });
    expect(known.body.toString()).toContain(`${SERVICE}/GetWorkload`);
    const unknownPath = await http1(url, { method: 'GET', path: '/x', headers: AUTHORIZED });
    expect(unknownPath).toMatchObject({ status: 404 });
  });

  it('applies to health and reflection', async () => {
    const methods: string[] = [];
    const { url } = await open({
      authorize: (call) => {
        methods.push(call.method.name);
        return authorizeByHeader(call);
      },
    });
    const transport = createGrpcTransport({ baseUrl: url });
    const refused = { code: Code.Unauthenticated, rawMessage: REFUSAL };
    await expect(createClient(Health, transport).check({})).rejects.toMatchObject(refused);
    const infos = createClient(ServerReflectionV1, transport)
      .serverReflectionInfo((async function* () {})())
      [Symbol.asyncIterator]();
    await expect(infos.next()).rejects.toMatchObject(refused);
    expect(methods).toEqual(['Check', 'ServerReflectionInfo']);
  });

  it('answers PERMISSION_DENIED with 403, and an error of its own without details', async () => {
    const answers: readonly [Error, number, string][] = [
      [
        new CloudlessError('denied', 'user/alice may not do this'),
        403,
        'user/alice may not do this',
      ],
      [new Error('secret'), 500, 'internal error'],
    ];
    for (const [reason, status, text] of answers) {
      const { url } = await open({
        authorize: () => {
          throw reason;
        },
      });
      const response = await http1(url, { path: `${SERVICE}/GetWorkload`, body: '{}' });
      expect(response.status).toBe(status);
      expect(response.body.toString()).toContain(text);
      expect(response.body.toString()).not.toContain('secret');
    }
  });

  it('counts the calls of one user over several connections together', async () => {
    const running: (() => void)[] = [];
    const { url } = await open({
      authorize: authorizeByHeader,
      limits: { streamsPerPrincipal: 2 },
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.watchWorkloads, async function* () {
          yield {};
          await new Promise<void>((resolve) => running.push(resolve));
        }),
    });
    const openStream = async (user: string): Promise<unknown> => {
      const addHeader: Interceptor = (next) => (request) => {
        request.header.set('authorization', `Bearer ${user}`);
        return next(request);
      };
      const transport = createGrpcTransport({ baseUrl: url, interceptors: [addHeader] });
      return createClient(CoordinatorService, transport)
        .watchWorkloads({})
        [Symbol.asyncIterator]()
        .next();
    };
    await openStream('alice');
    await openStream('alice');
    await expect(openStream('alice')).rejects.toMatchObject({ code: Code.ResourceExhausted });
    await openStream('bob');
  });
});

describe('Caller.check', () => {
  /** A server with a stream and a slow call, whose caller can be revoked. */
  async function openRevocable() {
    let revoked: CloudlessError | undefined;
    let started: () => void = () => undefined;
    const slowCall = new Promise<void>((resolve) => (started = resolve));
    const server = await open({
      authorize: ({ connection }) =>
        aCaller({ kind: 'controller', name: 'controller/c' }, connection?.id, () => {
          if (revoked !== undefined) throw revoked;
        }),
      registerRoutes: (router) =>
        router.service(CoordinatorService, {
          getWorkload: () => {
            started();
            return new Promise<never>(() => undefined);
          },
          watchWorkloads: async function* () {
            yield {};
            await new Promise<never>(() => undefined);
          },
        }),
    });
    const transport = createGrpcTransport({ baseUrl: server.url });
    const client = createClient(CoordinatorService, transport);
    const stream = client.watchWorkloads({})[Symbol.asyncIterator]();
    await stream.next();
    const next = stream.next();
    const call = client.getWorkload({});
    await slowCall;
    const revoke = (): void => {
      revoked = new CloudlessError('unauthenticated', 'the credential was revoked');
    };
    return { server, next, call, revoke };
  }
  const ended = { code: Code.Unauthenticated, rawMessage: 'the credential was revoked' };

  it('ends an open stream and a running call within a second after it throws', async () => {
    const { server, next, call, revoke } = await openRevocable();
    const results = Promise.all([
      expect(next).rejects.toMatchObject(ended),
      expect(call).rejects.toMatchObject(ended),
    ]);
    await server.clock.advance(5_000);
    revoke();
    await server.clock.advance(1_000);
    await results;
    await server.close();
    expect(server.clock.pendingTimers).toBe(0);
  });

  it('ends them at once after RpcServer.recheckCallers', async () => {
    const { server, next, call, revoke } = await openRevocable();
    revoke();
    server.recheckCallers();
    await expect(next).rejects.toMatchObject(ended);
    await expect(call).rejects.toMatchObject(ended);
  });

  it('refuses a call whose caller was revoked while the request arrived', async () => {
    const api = aCountedApi();
    const { url } = await open({
      ...api,
      authorize: () =>
        aCaller({ kind: 'controller', name: 'controller/c' }, 'c1', () => {
          throw new CloudlessError('unauthenticated', 'the credential was revoked');
        }),
    });
    const transport = createGrpcTransport({ baseUrl: url });
    const call = createClient(CoordinatorService, transport).getWorkload({});
    await expect(call).rejects.toMatchObject(ended);
    expect(api.calls).toBe(0);
  });
});

describe('toLimitedClient', () => {
  const connection = { id: 'c7' } as ClientConnection;
  const unauthenticated: Principal = { kind: 'unauthenticated', name: 'unauthenticated' };
  const ada: Principal = { kind: 'user', name: 'user/ada', userName: 'ada', grants: [] };

  it.each([
    { name: 'a user', caller: aCaller(ada), expected: 'user/ada' },
    { name: 'a user of a forwarded call', caller: from('192.0.2.1', ada), expected: 'user/ada' },
    { name: 'no caller', caller: undefined, expected: 'c7' },
    { name: 'an anonymous client', caller: aCaller(unauthenticated), expected: 'c7' },
    { name: 'one of a forwarded call', caller: from('192.0.2.1'), expected: 'c7 192.0.2.1' },
    { name: 'an IPv6 client', caller: from('2001:db8::9'), expected: 'c7 2001:db8:0:0::/64' },
  ])('is $expected for $name', ({ caller, expected }) => {
    expect(toLimitedClient(caller, connection)).toBe(expected);
  });

  function from(address: string, principal = unauthenticated): Caller {
    return { ...aCaller(principal), address };
  }
});
