import * as http from 'node:http';
import { Code, ConnectError } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { findTrailerError } from '@connectrpc/connect/protocol-grpc';
import { CoordinatorService, readErrorDetails } from '@cloudless/api';
import { serversOfTest } from '../testing/fixture.js';
import { envelope, http1, http2Request, JSON_TYPE, type RawResponse } from '../testing/raw-http.js';

const open = serversOfTest(afterEach);
const MIB = 1024 * 1024;
const FALLBACK = new ConnectError('not a Connect error', Code.Unknown);
/** Field 1 with length 127, but only one byte of data. */
const TRUNCATED = Buffer.from([0x0a, 0x7f, 0x01]);

/** Returns code and message of an error; another body unchanged. */
const parseBody = ({ body }: RawResponse): unknown => {
  const json = JSON.parse(body.toString()) as Record<string, unknown>;
  return 'details' in json ? { code: json['code'], message: json['message'] } : json;
};

describe('a request with malformed JSON', () => {
  it.each([
    {
      name: 'text that is not JSON',
      body: '{"name":',
      message: 'cloudless.api.CreateWorkloadRequest',
    },
    {
      name: 'an unknown field',
      body: '{"name":"a","spec":{"replicaz":2}}',
      message: 'cloudless.api.WorkloadSpec from JSON: key "replicaz" is unknown',
    },
    {
      name: 'an unknown enum value',
      body: '{"spec":{"rollout":{"strategy":"ROLING"}}}',
      message: 'spec.rollout.strategy: "ROLING" is not one of ROLLING_UPDATE, RECREATE, BLUE_GREEN',
    },
    {
      name: 'an unknown enum value in a list',
      body: '{"spec":{"ports":[{"containerPort":80,"protocol":"SCTP"}]}}',
      message:
        'spec.ports[].protocol or spec.network.egress.allowed[].ports[].protocol: "SCTP" is not one of TCP, UDP',
    },
    {
      name: 'a string for a number',
      body: '{"spec":{"replicas":"two"}}',
      message: 'WorkloadSpec.replicas from JSON: expected number',
    },
    {
      name: 'a number out of range',
      body: '{"spec":{"replicas":99999999999}}',
      message: 'WorkloadSpec.replicas',
    },
    {
      name: 'an object for a list',
      body: '{"spec":{"ports":{}}}',
      message: 'WorkloadSpec.ports from JSON: expected Array',
    },
  ])(
    'gets INVALID_ARGUMENT with the field or type in each protocol when it has $name',
    async ({ body, message }) => {
      const { url } = await open();
      const expected = { code: 'invalid_argument', message: expect.stringContaining(message) };
      for (const response of [await http1(url, { body }), await http2Request(url, { body })]) {
        expect({ status: response.status, error: parseBody(response) }).toEqual({
          status: 400,
          error: expected,
        });
      }
      const grpc = await http2Request(url, {
        headers: { 'content-type': 'application/grpc+json' },
        body: envelope(body),
      });
      expect(grpc.trailers['grpc-status']).toBe('3');
      expect(decodeURIComponent(String(grpc.trailers['grpc-message']))).toContain(message);
    },
  );
});

describe('a malformed request', () => {
  it('gets the reason MALFORMED_REQUEST in each protocol', async () => {
    const { url } = await open();
    const body = '{"name":';
    const reason = { reason: 'MALFORMED_REQUEST', metadata: {}, violations: [] };
    const unary = await http1(url, { body });
    expect(readErrorDetails(errorFromJsonBytes(unary.body, undefined, FALLBACK))).toEqual(reason);
    const grpc = await http2Request(url, {
      headers: { 'content-type': 'application/grpc+json' },
      body: envelope(body),
    });
    const trailers = grpc.trailers as Record<string, string>;
    const error = findTrailerError(
      new Headers(Object.entries(trailers).filter(([, value]) => typeof value === 'string')),
    );
    expect(error && readErrorDetails(error)).toEqual(reason);
    const web = await http1(url, {
      headers: { 'content-type': 'application/grpc-web+json' },
      body: envelope(body),
    });
    expect(web.body.toString()).toContain('grpc-message: cannot decode message');
    expect(web.body.toString()).toContain('grpc-status-details-bin: ');
  });
});

describe('a request with malformed protobuf', () => {
  const message =
    'not a valid cloudless.api.CreateWorkloadRequest in the binary format: premature EOF';

  it('gets INVALID_ARGUMENT in Connect', async () => {
    const { url } = await open();
    const response = await http1(url, {
      headers: { 'content-type': 'application/proto' },
      body: TRUNCATED,
    });
    expect({ status: response.status, error: parseBody(response) }).toEqual({
      status: 400,
      error: { code: 'invalid_argument', message },
    });
  });

  it('gets INVALID_ARGUMENT in gRPC', async () => {
    const { url } = await open();
    const { trailers } = await http2Request(url, {
      headers: { 'content-type': 'application/grpc' },
      body: envelope(TRUNCATED),
    });
    expect({
      status: trailers['grpc-status'],
      message: decodeURIComponent(String(trailers['grpc-message'])),
    }).toEqual({
      status: '3',
      message,
    });
  });

  it('gets INVALID_ARGUMENT in gRPC-Web', async () => {
    const { url } = await open();
    const { body } = await http1(url, {
      headers: { 'content-type': 'application/grpc-web+proto' },
      body: envelope(TRUNCATED),
    });
    expect({ flags: body[0], length: body.readUInt32BE(1) }).toEqual({
      flags: 0x80,
      length: body.length - 5,
    });
    expect(decodeURIComponent(body.subarray(5).toString())).toContain('grpc-status: 3');
    expect(decodeURIComponent(body.subarray(5).toString())).toContain(message);
  });

  it('gets INVALID_ARGUMENT in a Connect stream', async () => {
    const { url } = await open();
    const path = '/cloudless.api.CoordinatorService/WatchWorkloads';
    const { body } = await http2Request(url, {
      path,
      headers: { 'content-type': 'application/connect+proto' },
      body: envelope(TRUNCATED),
    });
    expect(body[0]).toBe(0b10);
    expect(JSON.parse(body.subarray(5).toString())).toMatchObject({
      error: {
        code: 'invalid_argument',
        message:
          'not a valid cloudless.api.WatchWorkloadsRequest in the binary format: premature EOF',
      },
    });
  });
});

describe('an exception of a handler', () => {
  it('is reported as INTERNAL without its message, in Connect and gRPC', async () => {
    const { url } = await open({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.createWorkload, () => {
          throw new Error('s3cr3t at /some/file.ts:1');
        }),
    });
    const response = await http1(url, { body: '{}' });
    expect({ status: response.status, error: parseBody(response) }).toEqual({
      status: 500,
      error: { code: 'internal', message: 'internal error' },
    });
    const { trailers } = await http2Request(url, {
      headers: { 'content-type': 'application/grpc' },
      body: envelope(''),
    });
    expect(trailers).toMatchObject({ 'grpc-status': '13', 'grpc-message': 'internal error' });
  });
});

describe('a request message of 5 MiB', () => {
  const large = Buffer.alloc(5 * MIB, ' ');

  it('gets RESOURCE_EXHAUSTED in each protocol, also before the client has sent all of it', async () => {
    const { url } = await open();
    const expected = { code: 'resource_exhausted', message: expect.stringContaining('4194304') };
    expect(parseBody(await http1(url, { body: large }))).toEqual(expected);
    expect(parseBody(await http2Request(url, { body: large }))).toEqual(expected);
    const grpc = await http2Request(url, {
      headers: { 'content-type': 'application/grpc' },
      body: envelope(large),
    });
    expect(grpc.trailers['grpc-status']).toBe('8');
    const web = await http1(url, {
      headers: { 'content-type': 'application/grpc-web+proto' },
      body: envelope(large),
    });
    expect(web.body.toString()).toContain('grpc-status: 8');
  });

  it('leaves its connection usable for the next request', async () => {
    const { url } = await open();
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    await http1(url, { body: large }, agent);
    const grpcWeb = {
      headers: { 'content-type': 'application/grpc-web+proto' },
      body: envelope(large),
    };
    await http1(url, grpcWeb, agent);
    expect(await http1(url, { headers: JSON_TYPE, body: '{"name":"web"}' }, agent)).toMatchObject({
      status: 200,
    });
    agent.destroy();
  });
});

describe('JSON responses', () => {
  it('include fields with zero values', async () => {
    const { url } = await open();
    expect(parseBody(await http1(url, { body: '{"name":"web"}' }))).toEqual({
      namespace: '',
      name: 'web',
      uid: '',
      generation: '0',
    });
  });
});
