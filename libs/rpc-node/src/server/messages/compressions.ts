import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { compressionBrotli, compressionGzip } from '@connectrpc/connect-node';
import type { Compression } from '@connectrpc/connect/protocol';

const runGzip = promisify(gzip);
const runBrotli = promisify<Uint8Array, object, Buffer>(brotliCompress);

/** Node allocates the results of zlib outside of its shared memory. */
const toBytes = ({ buffer, byteOffset, byteLength }: Buffer): Uint8Array<ArrayBuffer> =>
  new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/**
 * Compressions that the server accepts, with the fastest level for responses: the default level of
 * gzip costs 20 µs for each replica in a response, twelve times as much as the fastest, and the
 * default of Brotli is its slowest, which takes seconds of CPU time for a large response.
 */
export const COMPRESSIONS: readonly Compression[] = [
  {
    ...compressionGzip,
    compress: async (bytes) => toBytes(await runGzip(bytes, { level: constants.Z_BEST_SPEED })),
  },
  {
    ...compressionBrotli,
    compress: async (bytes) =>
      toBytes(
        await runBrotli(bytes, {
          params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MIN_QUALITY },
        }),
      ),
  },
];

/**
 * Bytes of a response message from which the server compresses. Every client of Connect accepts
 * compression, so a lower limit would compress each message of a watch once for each watcher, which
 * costs more than everything else in the call. Kubernetes has a limit for the same reason.
 */
export const COMPRESS_MIN_BYTES = 1024 * 1024;
