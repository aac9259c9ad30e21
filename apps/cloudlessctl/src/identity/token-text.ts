import { errorCodeOf } from '@cloudless/base';
import { parseToken } from '@cloudless/identity';
import { CliFailure, ExitCode, createUsageFailure } from '../call/failure.js';
import type { CliIo } from '../io/io.js';

/** Largest input that can be a token with white space around it. */
const MAX_TOKEN_BYTES = 4_096;

/** Problems of a path that was given, by the error code of Node.js. */
const PATH_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  ENOTDIR: 'no such file or directory',
  EISDIR: 'is a directory; give the file with the token',
  EACCES: 'permission denied',
};

/** A token of a user. */
export interface UserToken {
  /** Id of the token: its second part. */
  readonly id: string;
  /** The whole text. Secret. */
  readonly text: string;
  /** SHA-256 of each root certificate that the token names. */
  readonly caSha256s: readonly string[];
}

/**
 * Checks the text of a token.
 * @param origin - Where the text comes from, for messages, which never repeat the text.
 * @throws {@link CliFailure} with exit code 2 when the text is not a token of a user.
 */
export function parseUserToken(input: string, origin: string): UserToken {
  const text = input.trim();
  const token = parseToken(text);
  if (token?.kind === 'user') return { id: token.id, text, caSha256s: token.caSha256s };
  if (token?.kind === 'join')
    throw createUsageFailure(
      `${origin}: this is a join token for machines; a token of a user begins with clu1. and is created by: cloudlessctl user token create`,
    );
  throw createUsageFailure(
    text === ''
      ? `${origin}: there is no token`
      : `${origin}: expected one token of a user, which begins with clu1. and has four or five parts with dots between; is the text complete?`,
  );
}

/**
 * Reads the token of a file.
 * @param path - `-`: standard input.
 * @throws {@link CliFailure} when there is no such file, others can read the file, or its content
 *   is not a token of a user.
 */
export async function readTokenFile(io: CliIo, path: string, origin: string): Promise<UserToken> {
  const { text, source } = await readTokenText(io, path, origin);
  return parseUserToken(text, source);
}

/**
 * Reads the text of a token of any kind, which is not checked.
 * @param path - `-`: standard input.
 * @param origin - The option with the path, for messages.
 * @returns The text, and where the text comes from, for messages.
 * @throws {@link CliFailure} when there is no such file, others can read the file, or the file is
 *   too long for a token.
 */
export async function readTokenText(
  io: CliIo,
  path: string,
  origin: string,
): Promise<{ readonly text: string; readonly source: string }> {
  if (path === '-') {
    const bytes = await io.stdin.readAll(MAX_TOKEN_BYTES);
    return { text: new TextDecoder().decode(bytes ?? new Uint8Array()), source: 'standard input' };
  }
  let bytes: Uint8Array;
  try {
    bytes = await io.files.readSecret(path);
  } catch (reason) {
    const problem = PATH_PROBLEMS[errorCodeOf(reason) ?? ''];
    const message = reason instanceof Error ? reason.message : String(reason);
    throw new CliFailure(
      problem === undefined ? ExitCode.error : ExitCode.usage,
      `${origin}: ${problem === undefined ? message : `${path}: ${problem}`}`,
      { cause: reason },
    );
  }
  if (bytes.length > MAX_TOKEN_BYTES) throw createUsageFailure(`${origin}: ${path} is no token`);
  return { text: new TextDecoder().decode(bytes), source: `${origin} (${path})` };
}
