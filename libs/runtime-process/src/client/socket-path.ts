import { closeSync, constants, openSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';
import { layout } from '../supervisor/container/container-paths.js';

/**
 * Longest path of a socket address (`sun_path` without its final NUL) on macOS, the shortest of the
 * supported systems.
 */
const MAX_PATH_BYTES = 103;

/**
 * Calls `use` with a path of the supervisor's socket that fits into a socket address. On Linux a
 * long directory is reached through `/proc/self/fd`, so that the socket stays in the private
 * directory.
 * @throws kind `invalid` on other systems when the path of the directory is too long.
 */
export async function withSocketPath<Result>(
  directory: string,
  use: (target: string) => Promise<Result>,
): Promise<Result> {
  const plain = layout.socket(directory);
  if (Buffer.byteLength(plain) <= MAX_PATH_BYTES) return use(plain);
  if (process.platform !== 'linux') {
    throw new CloudlessError(
      'invalid',
      `directory: ${directory} is too long for a socket in it (at most ${MAX_PATH_BYTES - 7} bytes)`,
    );
  }
  let fd: number;
  try {
    fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (cause) {
    throw new CloudlessError('unavailable', 'the directory of the supervisor cannot be opened', {
      cause,
    });
  }
  try {
    return await use(layout.socket(`/proc/self/fd/${fd}`));
  } finally {
    closeSync(fd);
  }
}
