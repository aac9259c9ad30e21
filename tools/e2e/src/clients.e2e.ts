import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { create, toBinary } from '@bufbuild/protobuf';
import { createConnectTransport } from '@connectrpc/connect-node';
import * as grpc from '@grpc/grpc-js';
import {
  CreateWorkloadRequestSchema,
  GetWorkloadRequestSchema,
  ListNodesRequestSchema,
  createCoordinatorClient,
} from '@cloudless/api';
import { COORDINATOR, createBufCurl } from './support/calls.js';
import { RealCluster } from './support/cluster.js';
import { callWithPython, itWithPython } from './support/python-grpc.js';

/** A page that `--allowed-origin` admits, and one that it does not. */
const ADMITTED = 'http://console.example';
const FOREIGN = 'http://evil.example';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start([], async () => undefined, {
    coordinatorFlags: ['--allowed-origin', ADMITTED],
  });
});
afterAll(() => cluster.stop());

/** A namespace with all characters that a client may decode in a wrong way. */
const NAMESPACE = 'a: b/c; d, 100 % %3A "ü名"\n+end';
const MESSAGE = `workload "${NAMESPACE}/nope" not found`;
const request = toBinary(
  GetWorkloadRequestSchema,
  create(GetWorkloadRequestSchema, { namespace: NAMESPACE, name: 'nope' }),
);
const PATH = `/${COORDINATOR}/GetWorkload`;
const getAddress = (): string => new URL(cluster.url).host;

describe('the text and the reason of an error', () => {
  it('arrive at @grpc/grpc-js', async () => {
    const client = new grpc.Client(getAddress(), grpc.credentials.createInsecure());
    const pass = (bytes: Buffer): Buffer => bytes;
    const error = await new Promise<grpc.ServiceError | null>((resolve) => {
      client.makeUnaryRequest(PATH, pass, pass, Buffer.from(request), (reason) => resolve(reason));
    });
    client.close();
    expect(error).toMatchObject({ code: grpc.status.NOT_FOUND, details: MESSAGE });
    const [details] = error?.metadata.get('grpc-status-details-bin') ?? [];
    expect(String(details)).toContain('WORKLOAD_NOT_FOUND');
  });

  itWithPython('arrive at Python with grpcio', async () => {
    const { code, message, details } = callWithPython(getAddress(), PATH, request);
    expect({ code, message }).toEqual({ code: 'NOT_FOUND', message: MESSAGE });
    expect(details).toContain('google.rpc.ErrorInfo');
    expect(details).toContain('WORKLOAD_NOT_FOUND');
  });

  itWithPython('arrive at Python with grpcio when a hundred fields are invalid', async () => {
    const env = Object.fromEntries(
      Array.from({ length: 100 }, (_, i) => [`=${i}`, 'x'.repeat(200)]),
    );
    const bytes = toBinary(
      CreateWorkloadRequestSchema,
      create(CreateWorkloadRequestSchema, { name: 'many', spec: { command: ['a'], env } }),
    );
    const status = callWithPython(getAddress(), `/${COORDINATOR}/CreateWorkload`, bytes);
    expect(status.code).toBe('INVALID_ARGUMENT');
    expect(status.details).toContain('google.rpc.BadRequest');
  });

  it.each(['connect', 'grpc', 'grpcweb'] as const)(
    'arrive at buf curl with %s',
    async (protocol) => {
      const caller = createBufCurl(protocol);
      const body = { namespace: NAMESPACE, name: 'nope' };
      const result = await caller.call(cluster.url, `${COORDINATOR}/GetWorkload`, body);
      expect(result).toMatchObject({ code: 'not_found', message: MESSAGE });
      const [info] = result.details as readonly { readonly type: string; readonly value: string }[];
      expect(info?.type).toBe('google.rpc.ErrorInfo');
      expect(Buffer.from(info?.value ?? '', 'base64').toString()).toContain('WORKLOAD_NOT_FOUND');
    },
  );
});

describe('curl', () => {
  const url = (method: string): string => `${cluster.url}/${COORDINATOR}/${method}`;

  it.each([
    { accept: 'application/x-ndjson', pattern: /^\{"kind":.*"revision":"\d+".*\}$/ },
    { accept: 'text/event-stream', pattern: /^data: \{"kind":.*"revision":"\d+".*\}$/ },
  ])('watches with Accept: $accept', async ({ accept, pattern }) => {
    const curl = spawn('curl', [
      '-sN',
      '-H',
      `accept: ${accept}`,
      '--json',
      '{}',
      url('WatchNodes'),
    ]);
    const [chunk] = (await once(curl.stdout, 'data')) as [Buffer];
    curl.kill();
    expect(chunk.toString().split('\n')[0]).toMatch(pattern);
  });

  it('reads with a GET, and learns from the text at / how to call', () => {
    const get = (...args: string[]): string =>
      execFileSync('curl', ['-s', ...args], { encoding: 'utf8' });
    expect(JSON.parse(get('-G', url('ListNodes'), '--data-urlencode', 'message={}'))).toEqual(
      expect.objectContaining({ nodes: [] }),
    );
    expect(get(cluster.url)).toContain(`curl ${cluster.url}/${COORDINATOR}/`);
    expect(get(cluster.opsUrl)).toContain('/metrics');
  });

  it('finds the reason of a problem in the events', async () => {
    const call = (method: string, body: object): unknown =>
      JSON.parse(
        execFileSync('curl', ['-s', '--json', JSON.stringify(body), url(method)], {
          encoding: 'utf8',
        }),
      );
    const events = spawn('curl', [
      ...['-sN', '-H', 'accept: application/x-ndjson'],
      ...['--json', '{"categories":["SCHEDULING"],"afterRevision":"1"}', url('WatchEvents')],
    ]);
    call('CreateWorkload', { name: 'nowhere', spec: { command: ['sleep', '1'] } });
    let text = '';
    while (!text.includes('ReplicasUnplaced'))
      text += String(((await once(events.stdout, 'data')) as [Buffer])[0]);
    events.kill();
    expect(text).toContain('"errorReason":"NO_CAPACITY"');
    expect(call('DeleteWorkload', { name: 'nowhere' })).toMatchObject({ name: 'nowhere' });
  });
});

it('a Connect client reads with GET when useHttpGet is set', async () => {
  // Only the response to a GET has this header.
  const caching: (string | null)[] = [];
  const transport = createConnectTransport({
    baseUrl: cluster.url,
    httpVersion: '1.1',
    useHttpGet: true,
    interceptors: [
      (next) => async (call) => {
        const response = await next(call);
        caching.push(response.header.get('cache-control'));
        return response;
      },
    ],
  });
  const { nodes } = await createCoordinatorClient(transport).listNodes(
    create(ListNodesRequestSchema),
  );
  expect({ nodes, caching }).toEqual({ nodes: [], caching: ['no-cache'] });
});

it('the fetch of a browser gets responses on an allowed origin, and none on another', () => {
  const script = fileURLToPath(new URL('support/browser-client.mjs', import.meta.url));
  const results = JSON.parse(
    execFileSync(process.execPath, [script, cluster.url, ADMITTED, FOREIGN], { encoding: 'utf8' }),
  ) as Record<string, Record<'post' | 'get', { status?: number; body?: string; error?: string }>>;
  expect(results[ADMITTED]).toMatchObject({ post: { status: 404 }, get: { status: 200 } });
  expect(results[ADMITTED]?.post.body).toContain('WORKLOAD_NOT_FOUND');
  expect(results[FOREIGN]?.post.error).toMatch(/cors|cross-origin/i);
  expect(results[FOREIGN]?.get.error).toMatch(/cors|cross-origin/i);
});
