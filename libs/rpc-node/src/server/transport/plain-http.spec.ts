import * as http from 'node:http';
import { once } from 'node:events';
import { gzipSync } from 'node:zlib';
import { AgentService, CoordinatorService, toConnectError } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { serversOfTest } from '../testing/fixture.js';
import { http1, http2Request, JSON_TYPE, type RawResponse } from '../testing/raw-http.js';

const open = serversOfTest(afterEach);
const SERVICE = '/cloudless.api.CoordinatorService';
const NDJSON = { ...JSON_TYPE, accept: 'application/x-ndjson' };
const SSE = { ...JSON_TYPE, accept: 'text/event-stream' };

/** Starts a server whose WatchNodes sends `revisions` and then fails with `failure`, if any. */
const openStream = (revisions: readonly bigint[], failure?: CloudlessError, onEnd?: () => void) =>
  open({
    registerRoutes: (router) => {
      router.service(CoordinatorService, {
        getWorkload: ({ name }) => ({ name }),
        watchNodes: async function* ({ afterRevision }) {
          try {
            for (const revision of revisions) yield { revision: revision + afterRevision };
            if (failure !== undefined) throw toConnectError(failure);
          } finally {
            onEnd?.();
          }
        },
      });
    },
  });

const getText = ({ body }: RawResponse): string => body.toString();
const revisionsOf = (lines: readonly string[]): unknown[] =>
  lines.map((line) => (JSON.parse(line) as { revision?: unknown }).revision);

describe('a stream for a client without a library', () => {
  it('is one JSON message in each line with Accept: application/x-ndjson', async () => {
    const { url } = await openStream([1n, 2n]);
    const request = { path: `${SERVICE}/WatchNodes`, headers: NDJSON, body: '{}' };
    for (const response of [await http1(url, request), await http2Request(url, request)]) {
      expect(response).toMatchObject({
        status: 200,
        headers: { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' },
      });
      expect(getText(response)).toMatch(/^\{.*\}\n\{.*\}\n$/);
      expect(revisionsOf(getText(response).trimEnd().split('\n'))).toEqual(['1', '2']);
    }
  });

  it('is server-sent events that finish with `end` with Accept: text/event-stream', async () => {
    const { url } = await openStream([1n]);
    const response = await http1(url, { path: `${SERVICE}/WatchNodes`, headers: SSE, body: '{}' });
    expect(response.headers['content-type']).toBe('text/event-stream');
    expect(getText(response)).toMatch(
      /^data: \{.*"revision":"1".*\}\n\nevent: end\ndata: \{\}\n\n$/,
    );
  });

  it('answers a GET, as EventSource sends it', async () => {
    const { url } = await openStream([1n]);
    const path = `${SERVICE}/WatchNodes?encoding=json&message=${encodeURIComponent('{"afterRevision":4}')}`;
    const response = await http1(url, {
      method: 'GET',
      path,
      headers: { accept: 'text/event-stream' },
    });
    expect(getText(response)).toContain('"revision":"5"');
    const bare = await http1(url, {
      method: 'GET',
      path: `${SERVICE}/WatchNodes`,
      headers: { accept: 'text/event-stream' },
    });
    expect(getText(bare)).toContain('"revision":"1"');
  });

  const failure = new CloudlessError('compacted', 'watch again');
  it.each([
    {
      name: 'the last line',
      headers: NDJSON,
      pattern:
        /\n\{"error":\{"code":"out_of_range","message":"watch again","details":\[.*\]\}\}\n$/,
    },
    {
      name: 'the event `failure`',
      headers: SSE,
      pattern:
        /\n\nevent: failure\ndata: \{"code":"out_of_range","message":"watch again","details":\[.*\]\}\n\n$/,
    },
  ])('has its error as $name', async ({ headers, pattern }) => {
    const { url } = await openStream([1n], failure);
    const response = await http1(url, { path: `${SERVICE}/WatchNodes`, headers, body: '{}' });
    expect(response.status).toBe(200);
    expect(getText(response)).toMatch(pattern);
    expect(getText(response)).toContain('HISTORY_COMPACTED');
  });

  it.each([
    { name: 'the handler fails', body: '{}', status: 404, code: 'not_found' },
    { name: 'the request is malformed', body: '{"nope":1}', status: 400, code: 'invalid_argument' },
  ])('answers with an HTTP status when $name before a message', async ({ body, status, code }) => {
    const { url } = await openStream([], new CloudlessError('NODE_NOT_FOUND', 'no such node'));
    const response = await http1(url, { path: `${SERVICE}/WatchNodes`, headers: NDJSON, body });
    expect(response).toMatchObject({ status, headers: { 'content-type': 'application/json' } });
    expect(JSON.parse(getText(response))).toMatchObject({ code });
  });

  it('ends its handler when the client leaves', async () => {
    let hasEnded = false;
    const endless = Array.from({ length: 100_000 }, (_, index) => BigInt(index));
    const { url } = await openStream(endless, undefined, () => (hasEnded = true));
    const request = http.request(`${url}${SERVICE}/WatchNodes`, {
      method: 'POST',
      headers: NDJSON,
    });
    request.end('{}');
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    await once(response, 'data');
    request.destroy();
    while (!hasEnded) await new Promise((resolve) => setImmediate(resolve));
    expect(hasEnded).toBe(true);
  });

  it('counts against the limits of streams', async () => {
    const { url } = await open({
      limits: { streams: 0 },
      registerRoutes: (router) => {
        router.service(CoordinatorService, { watchNodes: async function* () {} });
      },
    });
    const response = await http1(url, { path: `${SERVICE}/WatchNodes`, headers: NDJSON, body: '' });
    expect(response.status).toBe(429);
    expect(getText(response)).toContain('TOO_MANY_STREAMS');
  });

  it.each([
    {
      name: 'an RPC that answers with a stream',
      path: 'WatchNodes',
      help: /application\/x-ndjson/,
    },
    { name: 'an RPC with streams in both directions', path: 'Session', help: /both directions/ },
  ])('is explained in a 415 to plain JSON for $name', async ({ path, help }) => {
    const { url } = await open({
      registerRoutes: (router) => {
        router.service(CoordinatorService, {});
      },
    });
    const response = await http2Request(url, { path: `${SERVICE}/${path}`, body: '{}' });
    expect(response.status).toBe(415);
    expect(getText(response)).toMatch(help);
  });

  it('has no message with a field `error` of its own', () => {
    const outputs = [CoordinatorService, AgentService].flatMap(({ methods }) =>
      methods.filter(({ methodKind }) => methodKind === 'server_streaming').map((m) => m.output),
    );
    expect(outputs.flatMap(({ fields }) => fields.map(({ jsonName }) => jsonName))).not.toContain(
      'error',
    );
  });
});

describe('GET', () => {
  const message = Buffer.from('{"name":"web"}');
  const get = async (query: string, method = 'GetWorkload') => {
    const { url } = await open();
    return http1(url, { method: 'GET', path: `${SERVICE}/${method}?${query}`, headers: {} });
  };

  it.each([
    {
      name: 'JSON',
      query: `connect=v1&encoding=json&message=${encodeURIComponent(String(message))}`,
    },
    { name: 'JSON without an encoding', query: `message=${encodeURIComponent(String(message))}` },
    { name: 'base64', query: `encoding=json&base64=1&message=${message.toString('base64url')}` },
    {
      name: 'compressed base64',
      query: `encoding=json&base64=1&compression=gzip&message=${gzipSync(message).toString('base64url')}`,
    },
  ])('calls an RPC that reads with a message in $name', async ({ query }) => {
    const response = await get(query);
    expect(response).toMatchObject({ status: 200, headers: { 'cache-control': 'no-cache' } });
    expect(JSON.parse(getText(response))).toMatchObject({ name: 'web' });
  });

  it('answers 429 to a message that is too large once it is decompressed', async () => {
    const bomb = gzipSync(Buffer.alloc(5 * 1024 * 1024, ' ')).toString('base64url');
    expect(await get(`base64=1&compression=gzip&message=${bomb}`)).toMatchObject({ status: 429 });
  });

  it('answers 415 to an unknown encoding, and 405 to an RPC that changes something', async () => {
    expect(await get('encoding=xml&message=x')).toMatchObject({ status: 415 });
    expect(await get('message=%7B%7D', 'CreateWorkload')).toMatchObject({
      status: 405,
      headers: { allow: 'POST' },
    });
  });
});

describe('CORS', () => {
  const preflight = async (path: string) => {
    const { url } = await open();
    const headers = { origin: 'http://localhost:5173', 'access-control-request-method': 'POST' };
    return (await http1(url, { method: 'OPTIONS', path, headers })).headers;
  };

  it('allows exactly the methods that an RPC answers', async () => {
    const name = 'access-control-allow-methods';
    expect(await preflight(`${SERVICE}/GetWorkload`)).toMatchObject({ [name]: 'GET, POST' });
    expect(await preflight(`${SERVICE}/CreateWorkload`)).toMatchObject({ [name]: 'POST' });
  });

  it.each([
    { name: 'an image', mode: 'no-cors', dest: 'image', status: 403 },
    { name: 'a frame', mode: 'navigate', dest: 'iframe', status: 403 },
    { name: 'an object', mode: 'navigate', dest: 'object', status: 403 },
    { name: 'a link', mode: 'navigate', dest: 'document', status: 200 },
  ])('answers $status to a GET by $name of another site', async ({ mode, dest, status }) => {
    const { url } = await open();
    const path = `${SERVICE}/GetWorkload?message=%7B%22name%22%3A%22a%22%7D`;
    const headers = {
      'sec-fetch-site': 'cross-site',
      'sec-fetch-mode': mode,
      'sec-fetch-dest': dest,
    };
    expect(await http1(url, { method: 'GET', path, headers })).toMatchObject({ status });
  });
});

describe('the address of the server in a browser', () => {
  it.each([
    { path: '/', status: 200 },
    { path: '/docs', status: 404 },
  ])('answers $status at $path with the ways to call', async ({ path, status }) => {
    const { url } = await open();
    const response = await http1(url, { method: 'GET', path, headers: {} });
    expect(response).toMatchObject({
      status,
      headers: { 'content-type': 'text/plain; charset=utf-8' },
    });
    expect(getText(response)).toContain(`curl ${url}${SERVICE}/`);
    expect(getText(response)).toContain(`  ${SERVICE}/CreateWorkload\n`);
    expect(getText(response)).toContain(`  ${SERVICE}/WatchWorkloads  (GET, stream)\n`);
  });

  it('answers a call of an unknown RPC in the form of Connect', async () => {
    const { url } = await open();
    const response = await http1(url, { path: '/nope', body: '{}' });
    expect(response.status).toBe(404);
    expect(JSON.parse(getText(response))).toMatchObject({ code: 'unimplemented' });
  });
});
