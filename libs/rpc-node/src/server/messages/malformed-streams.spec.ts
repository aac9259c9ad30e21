import { gzipSync } from 'node:zlib';
import { Code } from '@connectrpc/connect';
import { definedFields } from '@cloudless/base';
import { CoordinatorService, createErrorInterceptor } from '@cloudless/api';
import { aLog, serversOfTest } from '../testing/fixture.js';
import { envelope, http2Request, type RawResponse } from '../testing/raw-http.js';

const open = serversOfTest(afterEach);

/** Returns an envelope; its flags and length need not be valid. */
function encodeEnvelope(flags: number, data: Uint8Array, length = data.length): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, data]);
}

/** Field 1 with length 127, but only one byte of data. */
const TRUNCATED = Buffer.from([0x0a, 0x7f, 0x01]);

const emptyMessage = Buffer.alloc(0);
const validEnvelope = envelope(emptyMessage);

interface Malformed {
  readonly name: string;
  readonly body: Buffer;
  /** Compression of the messages, as the request head names it. */
  readonly encoding?: string;
  /** The message is JSON. Default: protobuf. */
  readonly json?: true;
}

const malformed: readonly Malformed[] = [
  { name: 'a message that is not protobuf', body: envelope(TRUNCATED) },
  { name: 'a message of one byte that never ends', body: envelope(Buffer.alloc(12, 0xff)) },
  { name: 'half an envelope head', body: validEnvelope.subarray(0, 3) },
  {
    name: 'an envelope that announces more bytes than follow',
    body: encodeEnvelope(0, Buffer.from([1, 2]), 100),
  },
  {
    name: 'bytes after the last envelope',
    body: Buffer.concat([validEnvelope, Buffer.from([0, 0])]),
  },
  { name: 'unknown flags', body: encodeEnvelope(0b0111_1100, emptyMessage) },
  { name: 'the end-of-stream flag', body: encodeEnvelope(0b10, Buffer.from('{}')) },
  {
    name: 'the trailers flag',
    body: encodeEnvelope(0b1000_0000, Buffer.from('grpc-status: 0\r\n')),
  },
  { name: 'all flags', body: encodeEnvelope(0xff, emptyMessage) },
  {
    name: 'the compressed flag without an encoding',
    body: encodeEnvelope(1, gzipSync(emptyMessage)),
  },
  {
    name: 'the compressed flag with the encoding identity',
    body: encodeEnvelope(1, gzipSync(emptyMessage)),
    encoding: 'identity',
  },
  {
    name: 'a compressed message that is not gzip',
    body: encodeEnvelope(1, Buffer.from('no gzip')),
    encoding: 'gzip',
  },
  {
    name: 'a compressed message that is not protobuf',
    body: encodeEnvelope(1, gzipSync(TRUNCATED)),
    encoding: 'gzip',
  },
  {
    name: 'a truncated compressed message',
    body: encodeEnvelope(1, gzipSync(TRUNCATED).subarray(0, 8)),
    encoding: 'gzip',
  },
  { name: 'a message that is not JSON', body: envelope('{"name":'), json: true },
  { name: 'a message with an unknown JSON key', body: envelope('{"nom":"a"}'), json: true },
];

interface Protocol {
  readonly name: string;
  readonly type: string;
  readonly encodingHeader: string;
  /** Returns the gRPC code of a response, -1 when the response has no code. */
  readCode(response: RawResponse): number;
}

const bodyText = ({ body }: RawResponse): string => body.toString('latin1');

const protocols: readonly Protocol[] = [
  {
    name: 'Connect',
    type: 'application/connect+',
    encodingHeader: 'connect-content-encoding',
    readCode: (response) =>
      /"code":"invalid_argument"/.test(bodyText(response)) ? Code.InvalidArgument : -1,
  },
  {
    name: 'gRPC',
    type: 'application/grpc+',
    encodingHeader: 'grpc-encoding',
    readCode: ({ headers, trailers }) => Number(trailers['grpc-status'] ?? headers['grpc-status']),
  },
  {
    name: 'gRPC-Web',
    type: 'application/grpc-web+',
    encodingHeader: 'grpc-encoding',
    readCode: (response) => Number(/grpc-status: (\d+)/.exec(bodyText(response))?.[1] ?? -1),
  },
];

const calls = ['WatchWorkloads', 'Exec'] as const;
const cases = protocols.flatMap((protocol) =>
  calls.flatMap((rpc) => malformed.map((input) => ({ protocol, rpc, input }))),
);

describe('a stream with a malformed request', () => {
  it.each(
    cases.map((testCase) => ({
      ...testCase,
      title: `${testCase.rpc} in ${testCase.protocol.name} receives ${testCase.input.name}`,
    })),
  )(
    'gets INVALID_ARGUMENT, and no warning is logged, when $title',
    async ({ protocol, rpc, input }) => {
      const faults: unknown[] = [];
      const log = aLog();
      const { url } = await open({
        log,
        interceptors: [createErrorInterceptor((_rpc, reason) => void faults.push(reason))],
        registerRoutes: (router) =>
          router.service(CoordinatorService, {
            watchWorkloads: async function* () {
              yield {};
            },
            exec: async function* (requests) {
              for await (const { request } of requests) if (request.case === 'start') yield {};
            },
          }),
      });
      const headers = {
        'content-type': protocol.type + (input.json === undefined ? 'proto' : 'json'),
        ...definedFields({ [protocol.encodingHeader]: input.encoding }),
      };
      const path = `/cloudless.api.CoordinatorService/${rpc}`;
      const response = await http2Request(url, { path, headers, body: input.body });
      expect(protocol.readCode(response)).toBe(Code.InvalidArgument);
      expect(faults).toEqual([]);
      expect(log.lines.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
    },
  );
});

describe('a stream whose handler fails', () => {
  it('ends with INTERNAL, and the cause is reported, also when the error looks like a parse error', async () => {
    const faults: unknown[] = [];
    const { url } = await open({
      interceptors: [createErrorInterceptor((_rpc, reason) => void faults.push(String(reason)))],
      registerRoutes: (router) =>
        router.service(CoordinatorService, {
          exec: async function* (requests) {
            for await (const { request } of requests) if (request.case === 'start') yield {};
            throw new Error('parse binary: of something else');
          },
        }),
    });
    const path = '/cloudless.api.CoordinatorService/Exec';
    const { trailers } = await http2Request(url, {
      path,
      headers: { 'content-type': 'application/grpc' },
      body: validEnvelope,
    });
    expect(trailers['grpc-status']).toBe(String(Code.Internal));
    expect(faults).toEqual(['Error: parse binary: of something else']);
  });
});
