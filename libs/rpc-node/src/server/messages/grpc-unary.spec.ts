import { gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext } from '@connectrpc/connect';
import type { UniversalHandler, UniversalServerRequest } from '@connectrpc/connect/protocol';
import {
  CoordinatorService,
  GetWorkloadRequestSchema,
  WorkloadSchema,
  type Workload,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { serversOfTest } from '../testing/fixture.js';
import { envelope, http2Request } from '../testing/raw-http.js';
import { COMPRESS_MIN_BYTES } from './compressions.js';
import { createGrpcHandlers } from './grpc-handlers.js';
import { Implementations } from './implementations.js';

const open = serversOfTest(afterEach);
type Implement = (
  request: { readonly name: string },
  context: HandlerContext,
) => Partial<Workload> | Promise<Partial<Workload>>;

const { getWorkload } = CoordinatorService.method;
const PATH = '/cloudless.api.CoordinatorService/GetWorkload';
const TYPE = { 'content-type': 'application/grpc+proto', te: 'trailers' };
const request = (name: string): Buffer =>
  Buffer.from(toBinary(GetWorkloadRequestSchema, create(GetWorkloadRequestSchema, { name })));

/** Returns the response of a server whose GetWorkload is `implement`, and the fields of its end. */
async function call(implement: Implement, body: Buffer, headers: Readonly<Record<string, string>>) {
  const { url } = await open({
    classifyCall: () => ({ priority: 'read' }),
    registerRoutes: (router) => router.rpc(getWorkload, implement as never),
  });
  const response = await http2Request(url, { path: PATH, headers: { ...TYPE, ...headers }, body });
  return { fields: { ...response.headers, ...response.trailers }, body: response.body };
}

/** A request is served directly, and with a named compression by Connect: both alike. */
const PATHS = [
  { path: 'directly', headers: {} },
  { path: 'by Connect', headers: { 'grpc-encoding': 'gzip' } },
];

describe.each(PATHS)('a unary gRPC call that is served $path', ({ headers }) => {
  const get = (implement: Implement, body = envelope(request('web'))) =>
    call(implement, body, headers);

  it('returns the message, the headers and the trailers of the implementation', async () => {
    const { fields, body } = await get(({ name }, { responseHeader, responseTrailer }) => {
      responseHeader.set('x-early', 'yes');
      responseTrailer.set('x-late', 'yes');
      return { name };
    });
    expect(body).toEqual(
      envelope(Buffer.from(toBinary(WorkloadSchema, create(WorkloadSchema, { name: 'web' })))),
    );
    expect(fields).toMatchObject({
      ...{ ':status': 200, 'content-type': 'application/grpc+proto' },
      ...{ 'grpc-status': '0', 'x-early': 'yes', 'x-late': 'yes' },
    });
  });

  it.each([4_090, 4_096, 100_000, 1_000_000])(
    'returns a message of about %d bytes in one envelope',
    async (length) => {
      const name = 'x'.repeat(length);
      const { body } = await get(() => ({ name }));
      expect(body).toEqual(
        envelope(Buffer.from(toBinary(WorkloadSchema, create(WorkloadSchema, { name })))),
      );
    },
  );

  it.each([
    {
      name: 'the error of the implementation',
      error: new ConnectError('there is no workload "web"', Code.NotFound),
      fields: { 'grpc-status': '5', 'grpc-message': 'there is no workload "web"' },
    },
    {
      name: 'an internal error without its cause',
      error: new CloudlessError('internal', 'a secret'),
      fields: { 'grpc-status': '13', 'grpc-message': 'internal error' },
    },
    {
      name: 'an internal error when the implementation gives no reason',
      error: undefined,
      fields: { 'grpc-status': '13', 'grpc-message': 'internal error' },
    },
  ])('ends with $name', async ({ error, fields }) => {
    const response = await get(() => Promise.reject(error));
    expect(response.fields).toMatchObject(fields);
    expect(response.body).toHaveLength(0);
  });

  it.each([
    { name: 'no message', body: Buffer.alloc(0), code: '12' },
    {
      name: 'two messages',
      body: Buffer.concat([envelope(request('a')), envelope(request('b'))]),
      code: '12',
    },
    {
      name: 'a message and one byte',
      body: Buffer.concat([envelope(request('a')), Buffer.alloc(1)]),
      code: '3',
    },
    {
      name: 'a message and an incomplete message',
      body: Buffer.concat([envelope(request('a')), envelope(request('b')).subarray(0, 7)]),
      code: '3',
    },
    {
      name: 'two messages and one byte',
      body: Buffer.concat([envelope(request('a')), envelope(request('b')), Buffer.alloc(1)]),
      code: '12',
    },
    { name: 'bytes that are no message', body: envelope(Buffer.from([0xff, 0xff])), code: '3' },
    { name: 'an incomplete message', body: envelope(request('web')).subarray(0, 8), code: '3' },
  ])('refuses $name', async ({ body, code }) => {
    const response = await get(({ name }) => ({ name }), body);
    expect(response.fields).toMatchObject({ 'grpc-status': code });
    expect(response.body).toHaveLength(0);
  });

  it('aborts the signal of the call when the call has ended', async () => {
    let signal: AbortSignal | undefined;
    await get((_, context) => {
      ({ signal } = context);
      return {};
    });
    expect(signal?.aborted).toBe(true);
  });
});

describe('a unary gRPC call', () => {
  it('compresses a large response as the client accepts', async () => {
    const name = 'x'.repeat(COMPRESS_MIN_BYTES);
    const { fields, body } = await call(() => ({ name }), envelope(request('web')), {
      'grpc-accept-encoding': 'identity,gzip',
    });
    expect(fields).toMatchObject({ 'grpc-encoding': 'gzip', 'grpc-status': '0' });
    expect(body[0]).toBe(1);
    expect(body.length).toBeLessThan(COMPRESS_MIN_BYTES / 10);
  });

  it('ends at the deadline of the client', async () => {
    const { fields } = await call(() => new Promise(() => undefined), envelope(request('web')), {
      'grpc-timeout': '1m',
    });
    expect(fields).toMatchObject({ 'grpc-status': String(Code.DeadlineExceeded) });
  });

  it.each([
    { name: 'plain gRPC', header: { 'content-type': 'application/grpc' }, direct: true },
    { name: 'gRPC with a deadline', header: { 'grpc-timeout': '10S' }, direct: true },
    { name: 'an invalid deadline', header: { 'grpc-timeout': 'soon' }, direct: false },
    { name: 'a deadline beyond the limit', header: { 'grpc-timeout': '11S' }, direct: false },
    { name: 'a compressed request', header: { 'grpc-encoding': 'gzip' }, direct: false },
    { name: 'JSON', header: { 'content-type': 'application/grpc+json' }, direct: false },
    { name: 'gRPC-Web', header: { 'content-type': 'application/grpc-web' }, direct: false },
  ])('is served directly or by Connect: $name', async ({ header, direct }) => {
    let byConnect = 0;
    const handler = Object.assign(
      async () => {
        byConnect += 1;
        return { status: 200 };
      },
      { method: getWorkload, service: CoordinatorService },
    ) as unknown as UniversalHandler;
    const implementations = new Implementations();
    implementations
      .record({ handlers: [], rpc: () => undefined } as never)
      .rpc(getWorkload, ({ name }) => ({ name }));
    const [serve] = createGrpcHandlers([handler], implementations, {
      interceptors: [],
      maxTimeoutMs: 10_000,
    });
    const body = header['grpc-encoding'] === undefined ? request('web') : gzipSync(request('web'));
    await serve?.({
      ...{ httpVersion: '2.0', method: 'POST', url: `http://localhost${PATH}` },
      header: new Headers({ ...TYPE, ...header } as Record<string, string>),
      signal: new AbortController().signal,
      body: [envelope(body)] as unknown as UniversalServerRequest['body'],
    }).catch(() => undefined);
    expect(byConnect).toBe(direct ? 0 : 1);
  });
});
