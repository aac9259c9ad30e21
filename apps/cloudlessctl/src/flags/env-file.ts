import { errorCodeOf } from '@cloudless/base';
import { createUsageFailure } from '../call/failure.js';
import type { CliIo } from '../io/io.js';

/** Largest file that is parsed. The limit protects against a wrong path, such as a log file. */
const MAX_FILE_BYTES = 2 ** 20;

const ENV_FILE_FLAG = '--env-file';

/**
 * Adds the variables of the `--env-file` files to the values of `--env`. Values of `--env` come
 * last and take precedence.
 * @param io - Reads the files and provides the caller's environment.
 * @returns The options with the combined `env`.
 * @throws {@link CliFailure} with exit code 2 that names the file and, for a syntax error, the
 *   line.
 */
export async function withEnvFiles(
  options: Readonly<Record<string, unknown>>,
  io: Pick<CliIo, 'files' | 'env'>,
): Promise<Readonly<Record<string, unknown>>> {
  const { envFile: paths, env: given } = options;
  if (!Array.isArray(paths)) return options;
  const pairs: string[] = [];
  for (const path of paths.map(String))
    pairs.push(...parseEnvFile(path, await readFile(path, io), io.env));
  return { ...options, env: [...pairs, ...(Array.isArray(given) ? given : [])] };
}

/**
 * Parses the env-file format of container engines: `NAME=VALUE`, where quotes are part of the
 * value; `NAME` alone takes the value from the caller's environment and is skipped when unset;
 * empty lines and lines that start with `#` are ignored.
 * @param flag - The flag that names the file, for messages. Default: `--env-file`.
 * @returns `NAME=VALUE` of each variable.
 */
export function parseEnvFile(
  path: string,
  text: string,
  env: CliIo['env'],
  flag = ENV_FILE_FLAG,
): readonly string[] {
  return text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .flatMap((raw, index) => {
      const line = raw.replace(/\r$/, '').trimStart();
      if (line === '' || line.startsWith('#')) return [];
      const [, name = '', , value] = /^([^=\s]+)\s*(=(.*))?$/s.exec(line) ?? [];
      if (name === '') {
        // The line of another flag may contain a secret.
        const got = flag === ENV_FILE_FLAG ? `, got ${JSON.stringify(line)}` : '';
        throw createUsageFailure(`${flag}: ${path}, line ${index + 1}: expected NAME=VALUE${got}`);
      }
      const variable = value ?? env[name];
      return variable === undefined ? [] : [`${name}=${variable}`];
    });
}

async function readFile(path: string, { files }: Pick<CliIo, 'files'>): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = await files.read(path);
  } catch (reason) {
    const isMissing = errorCodeOf(reason) === 'ENOENT';
    throw createFailure(
      `${path}: ${isMissing ? 'no such file or directory' : reason instanceof Error ? reason.message : String(reason)}`,
    );
  }
  if (bytes.length > MAX_FILE_BYTES) throw createFailure(`${path}: larger than 1 MiB`);
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}

function createFailure(message: string): Error {
  return createUsageFailure(`${ENV_FILE_FLAG}: ${message}`);
}
