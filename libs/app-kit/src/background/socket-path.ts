import { closeSync, constants, openSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';

/**
 * Longest path of a socket address (`sun_path` without its final NUL) on macOS. The limit of Linux
 * is higher.
 */
const MAX_PATH_BYTES = 103;

/**
 * Calls `use` with a path of a socket in a directory that fits into a socket address. On Linux the
 * path of a long directory leads through `/proc/self/fd`, so that the socket stays in the private
 * directory. The path is valid until the promise of `use` settles.
 * @throws kind `invalid` on other systems when the path of the directory is too long, `unavailable`
 *   when a long directory cannot be opened.
 */
export async function withSocketPath<Result>(
  directory: string,
  name: string,
  use: (target: string) => Promise<Result>,
): Promise<Result> {
  const socketPath = path.join(directory, name);
  if (Buffer.byteLength(socketPath) <= MAX_PATH_BYTES) return use(socketPath);
  if (process.platform !== 'linux') {
    throw new CloudlessError(
      'invalid',
      `directory: ${directory} is too long for a socket in it (at most ${MAX_PATH_BYTES - name.length - 1} bytes)`,
    );
  }
  let fd: number;
  try {
    fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (cause) {
    throw new CloudlessError(
      'unavailable',
      'the directory of a background program cannot be opened',
      {
        cause,
      },
    );
  }
  try {
    return await use(path.join(`/proc/self/fd/${fd}`, name));
  } finally {
    closeSync(fd);
  }
}
