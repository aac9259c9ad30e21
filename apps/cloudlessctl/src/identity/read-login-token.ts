import { createUsageFailure } from '../call/failure.js';
import { readHiddenLine } from '../commands/ask-user.js';
import type { CliIo } from '../io/io.js';
import { parseUserToken, readTokenFile } from './token-text.js';
import type { UserToken } from './token-text.js';

/**
 * Reads the token of a login: from `--token-file`, `CLOUDLESS_TOKEN`, piped standard input, or by a
 * question on the terminal whose answer is not shown. A token is never an argument, because other
 * users of the machine see the arguments of processes.
 * @param tokenFile - Value of `--token-file`; `-`: standard input.
 */
export async function readLoginToken(io: CliIo, tokenFile: string | undefined): Promise<UserToken> {
  if (tokenFile !== undefined) return readTokenFile(io, tokenFile, '--token-file');
  const text = io.env['CLOUDLESS_TOKEN'];
  if (text) return parseUserToken(text, 'CLOUDLESS_TOKEN');
  if (io.stdin.kind === 'pipe') return readTokenFile(io, '-', '');
  const answer = await readHiddenLine(io, 'Token: ');
  if (answer !== undefined) return parseUserToken(answer, 'the token');
  throw createUsageFailure(
    'there is no token: give --token-file FILE, or pipe the token into standard input',
  );
}
