import type { Command } from 'commander';
import { createUsageFailure } from '../../call/failure.js';
import type { LocalInvocation } from '../../command-tree.js';
import { readTokenText } from '../../identity/token-text.js';
import { getTextOption } from '../options.js';

/** Environment variable with the text of an access token. */
const TOKEN_VARIABLE = 'CLOUDLESS_SECRET_TOKEN';

/** Longest text of an access token that the API accepts. */
const MAX_TOKEN_LENGTH = 128;

/** The form of an audience, for messages. */
const AUDIENCE_RULE =
  'expected letters, digits and . _ : / @ -, at most 253 characters, such as workload/default.web';

/**
 * Adds the options that give the text of an access token of a secret. `--token-file` is the option
 * of every command for the token of the caller.
 */
export function addAccessTokenOptions(command: Command): Command {
  return command
    .option(
      '--access-token-file <file>',
      `file with the access token, or - for standard input (default: ${TOKEN_VARIABLE})`,
    )
    .option(
      '--access-token <text>',
      'the access token; other users of this machine and the history of the shell can show the token',
    );
}

/** Returns true for a text that is meant to be the text of an access token, complete or not. */
export function isAccessToken(text: string): boolean {
  return text.startsWith('cls1.');
}

/** Returns true when one of the options of {@link addAccessTokenOptions} was given. */
export function hasAccessTokenOption({ options }: LocalInvocation): boolean {
  return options['accessTokenFile'] !== undefined || options['accessToken'] !== undefined;
}

/**
 * Returns the text of the access token that the options give, or else the environment.
 * @param hint - What to do without a token, for the message.
 * @throws {@link CliFailure} with exit code 2 without a token, with two of them, and for a text that
 *   is no access token. No message contains the text.
 */
export async function readAccessToken(invocation: LocalInvocation, hint: string): Promise<string> {
  const { session } = invocation;
  const { io } = session;
  const file = getTextOption(invocation, 'accessTokenFile');
  const argument = getTextOption(invocation, 'accessToken');
  if (file !== undefined && argument !== undefined)
    throw createUsageFailure('--access-token-file and --access-token exclude each other');
  if (file === '-' && io.stdin.kind === 'terminal')
    throw createUsageFailure(
      '--access-token-file: standard input is a terminal; write the token with: … | cloudlessctl …',
    );
  if (file !== undefined) {
    const { text, source } = await readTokenText(io, file, '--access-token-file');
    return checkAccessToken(text, source);
  }
  if (argument !== undefined) {
    await session.printNotice(
      session.style.yellow(
        `warning: other users of this machine and the history of the shell can show the token of --access-token; use --access-token-file or ${TOKEN_VARIABLE}`,
      ),
    );
    return checkAccessToken(argument, '--access-token');
  }
  const text = io.env[TOKEN_VARIABLE];
  if (text) return checkAccessToken(text, TOKEN_VARIABLE);
  throw createUsageFailure(
    `the access token is missing: give --access-token-file FILE, or set ${TOKEN_VARIABLE}; ${hint}`,
  );
}

/** @param source - Where the text comes from, for the message, which never repeats the text. */
function checkAccessToken(input: string, source: string): string {
  const text = input.trim();
  if (text === '') throw createUsageFailure(`${source}: there is no token`);
  if (/^clu?1\./.test(text))
    throw createUsageFailure(
      `${source}: this is a token of a ${text.startsWith('clu') ? 'user' : 'machine that joins'}; an access token of a secret begins with cls1. and is created by: cloudlessctl secret token create`,
    );
  if (text.length > MAX_TOKEN_LENGTH || !/^cls1\.[^\s.]+\.[^\s.]+$/.test(text))
    throw createUsageFailure(
      `${source}: expected one access token, which begins with cls1. and has three parts with dots between; is the text complete?`,
    );
  return text;
}

/**
 * Returns the audience of `--audience`, which names exactly one.
 * @throws {@link CliFailure} with exit code 2 when the option is missing or no audience.
 */
export function requireAudience(invocation: LocalInvocation): string {
  const audience = getTextOption(invocation, 'audience');
  if (audience === undefined)
    throw createUsageFailure(
      '--audience is missing: name the audience of the token, such as --audience workload/default.web',
    );
  // A token in the wrong place must not be shown.
  if (isAccessToken(audience))
    throw createUsageFailure('--audience: this is the text of an access token; name its audience');
  if (audience.endsWith('*'))
    throw createUsageFailure(
      `--audience: ${JSON.stringify(audience)} is a prefix; name the one audience of the token, such as workload/default.web`,
    );
  if (!/^[A-Za-z0-9._:/@-]{1,253}$/.test(audience))
    throw createUsageFailure(`--audience: ${AUDIENCE_RULE}, got ${JSON.stringify(audience)}`);
  return audience;
}
