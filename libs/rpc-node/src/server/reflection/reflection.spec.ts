import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { fromBinary, type DescFile } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { Code, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { AgentService, CoordinatorService } from '@cloudless/api';
import { ServerReflectionV1, ServerReflectionV1Alpha } from '@cloudless/api/grpc';
import { serversOfTest } from '../testing/fixture.js';
import { ReflectionStream, type ReflectionResponse } from './reflection.js';
import { ReflectionIndex } from './reflection-index.js';

const open = serversOfTest(afterEach);
const index = new ReflectionIndex([CoordinatorService, AgentService]);
/** Responds to one request, by default on a new stream. */
const respond = (
  request: Parameters<ReflectionStream['respond']>[0],
  stream = new ReflectionStream(index),
) => stream.respond(request);

/** Returns the names of the files in a response. */
function fileNames(response: ReflectionResponse): string[] {
  if (response.case !== 'fileDescriptorResponse') throw new Error(`unexpected ${response.case}`);
  return response.value.fileDescriptorProto.map(
    (bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name,
  );
}

describe('ReflectionStream', () => {
  it('lists the services of its index', () => {
    expect(respond({ case: 'listServices', value: '' })).toMatchObject({
      value: {
        service: [
          { name: 'cloudless.api.AgentService' },
          { name: 'cloudless.api.CoordinatorService' },
        ],
      },
    });
  });

  it('sends a file with all its imports, directly or not', () => {
    const response = respond({ case: 'fileByFilename', value: 'cloudless/api/workload.proto' });
    expect(fileNames(response)[0]).toBe('cloudless/api/workload.proto');
    if (response.case !== 'fileDescriptorResponse') throw new Error('no files');
    const files = response.value.fileDescriptorProto.map((bytes) =>
      fromBinary(FileDescriptorProtoSchema, bytes),
    );
    const names = files.map(({ name }) => name);
    for (const { dependency } of files) expect(names).toEqual(expect.arrayContaining(dependency));
    expect(new Set(names).size).toBe(names.length);
  });

  it('sends each file once per stream, and again when a request names the file', () => {
    const stream = new ReflectionStream(index);
    const request = { case: 'fileByFilename', value: 'cloudless/api/workload.proto' } as const;
    expect(fileNames(respond(request, stream)).length).toBeGreaterThan(1);
    expect(fileNames(respond(request, stream))).toEqual(['cloudless/api/workload.proto']);
  });

  it.each([
    { symbol: 'cloudless.api.CoordinatorService', file: 'cloudless/api/coordinator_service.proto' },
    {
      symbol: 'cloudless.api.CoordinatorService.GetWorkload',
      file: 'cloudless/api/coordinator_service.proto',
    },
    { symbol: 'cloudless.api.WorkloadSpec', file: 'cloudless/api/workload.proto' },
    { symbol: 'cloudless.api.WorkloadSpec.image', file: 'cloudless/api/workload.proto' },
    { symbol: 'cloudless.api.Probe.check', file: 'cloudless/api/workload.proto' },
    { symbol: 'cloudless.api.Probe.HttpCheck', file: 'cloudless/api/workload.proto' },
    { symbol: 'cloudless.api.Rollout.Strategy', file: 'cloudless/api/workload.proto' },
    { symbol: 'cloudless.api.Rollout.RECREATE', file: 'cloudless/api/workload.proto' },
    { symbol: 'google.protobuf.Duration', file: 'google/protobuf/duration.proto' },
    { symbol: 'buf.validate.field', file: 'buf/validate/validate.proto' },
  ])('finds the file of $symbol', ({ symbol, file }) => {
    expect(fileNames(respond({ case: 'fileContainingSymbol', value: symbol }))[0]).toBe(file);
  });

  it('finds every message of every reflected file', () => {
    const files: readonly DescFile[] = index.withImports(CoordinatorService.file);
    for (const file of files) {
      for (const { typeName } of file.messages) expect(index.findFileBySymbol(typeName)).toBe(file);
    }
  });

  it('finds extensions by type and by number', () => {
    expect(
      respond({ case: 'allExtensionNumbersOfType', value: 'google.protobuf.FieldOptions' }),
    ).toMatchObject({
      value: {
        baseTypeName: 'google.protobuf.FieldOptions',
        extensionNumber: expect.arrayContaining([1159]),
      },
    });
    const request = {
      case: 'fileContainingExtension',
      value: { containingType: 'google.protobuf.FieldOptions', extensionNumber: 1159 },
    } as const;
    expect(fileNames(respond(request))[0]).toBe('buf/validate/validate.proto');
    expect(
      respond({ case: 'allExtensionNumbersOfType', value: 'cloudless.api.Workload' }),
    ).toMatchObject({
      value: { extensionNumber: [] },
    });
  });

  it.each([
    {
      name: 'an unknown file',
      request: { case: 'fileByFilename', value: 'none.proto' } as const,
      code: Code.NotFound,
    },
    {
      name: 'a symbol that is not reflected',
      request: { case: 'fileContainingSymbol', value: 'cloudless.store.WorkloadRecord' } as const,
      code: Code.NotFound,
    },
    {
      name: 'an unknown message type',
      request: { case: 'allExtensionNumbersOfType', value: 'none.Type' } as const,
      code: Code.NotFound,
    },
    {
      name: 'an unknown extension',
      request: {
        case: 'fileContainingExtension',
        value: { containingType: 'none', extensionNumber: 1 },
      } as const,
      code: Code.NotFound,
    },
    { name: 'no field', request: { case: undefined } as const, code: Code.InvalidArgument },
  ])('responds with an error when a request has $name', ({ request, code }) => {
    expect(respond(request)).toMatchObject({ case: 'errorResponse', value: { errorCode: code } });
  });
});

describe('reflection service', () => {
  it.each([
    { name: 'v1', service: ServerReflectionV1 },
    { name: 'v1alpha', service: ServerReflectionV1Alpha },
  ])('serves $name of the reflection protocol', async ({ service }) => {
    const { url } = await open();
    const transport = createGrpcTransport({ baseUrl: url });
    async function* requests() {
      yield { host: 'h', messageRequest: { case: 'listServices', value: '*' } as const };
      yield { host: 'h', messageRequest: { case: 'fileByFilename', value: 'none' } as const };
    }
    const responses = [];
    for await (const response of createClient(
      service as typeof ServerReflectionV1,
      transport,
    ).serverReflectionInfo(requests()))
      responses.push(response);
    expect(responses).toMatchObject([
      {
        validHost: 'h',
        originalRequest: { host: 'h' },
        messageResponse: { case: 'listServicesResponse' },
      },
      { messageResponse: { case: 'errorResponse', value: { errorCode: Code.NotFound } } },
    ]);
    expect(JSON.stringify(responses[0]?.messageResponse.value)).toContain('grpc.health.v1.Health');
  });

  it.each(['connect', 'grpc', 'grpcweb'])(
    'lets buf curl call an RPC without a schema over %s',
    async (protocol) => {
      const { url } = await open();
      const { stdout } = await runBufCurl(
        '--protocol',
        protocol,
        '--http2-prior-knowledge',
        '-d',
        '{"name":"web"}',
        `${url}/cloudless.api.CoordinatorService/GetWorkload`,
      );
      expect(JSON.parse(stdout)).toMatchObject({ name: 'web' });
    },
    60_000,
  );

  it('lets buf curl list the methods of the reflected services only', async () => {
    const { url } = await open();
    const { stdout } = await runBufCurl('--list-methods', '--http2-prior-knowledge', url);
    expect(stdout).toContain('cloudless.api.CoordinatorService/GetWorkload');
    expect(stdout).toContain('cloudless.api.AgentService/StreamLogs');
    expect(stdout).not.toContain('cloudless.store');
  }, 60_000);
});

/** Runs `buf curl`; rejects with stderr when the command fails. */
function runBufCurl(...args: string[]): Promise<{ stdout: string }> {
  const buf = createRequire(import.meta.url).resolve('@bufbuild/buf/bin/buf');
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [buf, 'curl', ...args], (reason, stdout, stderr) =>
      reason === null ? resolve({ stdout }) : reject(new Error(stderr, { cause: reason })),
    );
  });
}
