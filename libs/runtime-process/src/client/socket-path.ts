import { closeSync, constants, openSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';
import { layout } from '../supervisor/container-paths.js';

/**
 * Longest path that a socket address holds (`sun_path` less its final NUL); the shortest of the
 * systems we know, macOS.
 */
const MAX_PATH_BYTES = 103;

/**
 * Calls `use` with a path of the supervisor's socket that is short enough. On Linux a long
 * directory is reached through a descriptor of it, so that the socket stays where only its owner
 * can get at it.
 * @throws kind `invalid` elsewhere, when the directory's path is too long.
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
