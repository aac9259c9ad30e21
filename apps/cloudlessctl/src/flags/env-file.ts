import { usageFailure } from '../failure.js';
import type { CliIo } from '../io.js';

/** More than a spec may hold. */
const MAX_FILE_BYTES = 2 ** 20;

/**
 * Replaces the files of `--env-file` by variables of `--env`, in front of those that were given,
 * which therefore win.
 * @param io - Reads the files, and provides the values of names that stand alone in a file.
 * @throws a usage failure that names the file and, if known, the line.
 */
export async function withEnvFiles(
  options: Readonly<Record<string, unknown>>,
  io: Pick<CliIo, 'files' | 'env'>,
): Promise<Readonly<Record<string, unknown>>> {
  const { envFile: paths, env: given } = options;
  if (!Array.isArray(paths)) return options;
  const pairs: string[] = [];
  for (const path of paths.map(String))
    pairs.push(...parseEnvFile(path, await read(path, io), io.env));
  return { ...options, env: [...pairs, ...(Array.isArray(given) ? given : [])] };
}

/**
 * Reads the format that container engines share: `NAME=VALUE`, where quotes are part of the value;
 * `NAME` alone takes the value from the caller's environment and is left out when there is none;
 * empty lines and lines that begin with `#` are ignored.
 */
function parseEnvFile(path: string, text: string, env: CliIo['env']): readonly string[] {
  return text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .flatMap((raw, index) => {
      const line = raw.replace(/\r$/, '').trimStart();
      if (line === '' || line.startsWith('#')) return [];
      const [, name = '', , value] = /^([^=\s]+)\s*(=(.*))?$/s.exec(line) ?? [];
      if (name === '')
        throw wrong(`${path}, line ${index + 1}: expected NAME=VALUE, got ${JSON.stringify(line)}`);
      const found = value ?? env[name];
      return found === undefined ? [] : [`${name}=${found}`];
    });
}

async function read(path: string, { files }: Pick<CliIo, 'files'>): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = await files.read(path);
  } catch (reason) {
    const isMissing = reason instanceof Error && 'code' in reason && reason.code === 'ENOENT';
    throw wrong(
      `${path}: ${isMissing ? 'no such file or directory' : reason instanceof Error ? reason.message : String(reason)}`,
    );
  }
  if (bytes.length > MAX_FILE_BYTES) throw wrong(`${path}: larger than 1 MiB`);
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}

function wrong(message: string): Error {
  return usageFailure(`--env-file: ${message}`);
}
