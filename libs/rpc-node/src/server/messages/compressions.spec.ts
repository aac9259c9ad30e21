import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { CoordinatorService, CreateWorkloadRequestSchema, WorkloadSchema } from '@cloudless/api';
import { serversOfTest } from '../testing/fixture.js';
import { envelope, http2Request } from '../testing/raw-http.js';
import { COMPRESS_MIN_BYTES } from './compressions.js';

const open = serversOfTest(afterEach);
const SMALL = 'x'.repeat(COMPRESS_MIN_BYTES - 10);
const LARGE = 'x'.repeat(COMPRESS_MIN_BYTES);

/** Requests a workload with this name, and returns flags and bytes of the response message. */
async function request(name: string, accepted: string) {
  const { url } = await open({
    registerRoutes: (router) =>
      router.rpc(CoordinatorService.method.createWorkload, () => ({ name })),
  });
  const { body } = await http2Request(url, {
    headers: { 'content-type': 'application/grpc', 'grpc-accept-encoding': accepted },
    body: envelope(
      Buffer.from(
        toBinary(CreateWorkloadRequestSchema, create(CreateWorkloadRequestSchema, { name: 'a' })),
      ),
    ),
  });
  return { flags: body[0], bytes: body.subarray(5) };
}

describe('compression of responses', () => {
  it.each(['gzip', 'br', 'gzip,br'])('is not used below the limit, with %s', async (accepted) => {
    const { flags, bytes } = await request(SMALL, accepted);
    expect(flags).toBe(0);
    expect(fromBinary(WorkloadSchema, bytes).name).toBe(SMALL);
  });

  it.each([
    { accepted: 'gzip', decompress: gunzipSync },
    { accepted: 'br', decompress: brotliDecompressSync },
  ])(
    'makes large responses small for clients that accept $accepted',
    async ({ accepted, decompress }) => {
      const { flags, bytes } = await request(LARGE, accepted);
      expect(flags).toBe(1);
      expect(bytes.byteLength).toBeLessThan(LARGE.length / 10);
      expect(fromBinary(WorkloadSchema, decompress(bytes)).name).toBe(LARGE);
    },
  );
});
